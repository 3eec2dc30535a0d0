package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// VerifyQuery asks for the accounts of an app from one instant to another, both inclusive.
type VerifyQuery struct {
	App string
	// From and To are cut to what the history holds; zero means all of it.
	From, To time.Time
	// Page.Limit is how many jobs are looked at at most; the cursor is that of VerifyPage.
	Page Page
	Now  time.Time
}

// TriggerVerification is the reconciliation of a trigger's schedule with the ledger, or of a part of it.
type TriggerVerification struct {
	Job     string `json:"job"`
	Trigger string `json:"trigger"`
	// From and To bound the instants looked at, both inclusive.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Scheduled is how many instants the schedule had. Each has a run, lies inside a misfire
	// decision, is still open (due, and to be claimed or settled), or is a discrepancy.
	Scheduled int `json:"scheduled"`
	Runs      int `json:"runs"`
	Misfired  int `json:"misfired"`
	Open      int `json:"open"`
	// Discrepancies are the first hundred; Unexplained is how many there are.
	Unexplained   int           `json:"unexplained"`
	Discrepancies []Discrepancy `json:"discrepancies,omitempty"`
	// Unchecked says why a part of the trigger's history was not looked at.
	Unchecked string `json:"unchecked,omitempty"`
}

// Discrepancy is an instant at which schedule and ledger disagree.
type Discrepancy struct {
	At   time.Time       `json:"at"`
	Kind DiscrepancyKind `json:"kind"`
}

// DiscrepancyKind says how they disagree.
type DiscrepancyKind string

// The kinds of discrepancy.
const (
	DiscrepancyMissing    DiscrepancyKind = "missing"    // neither a run nor a decision
	DiscrepancyDoubled    DiscrepancyKind = "doubled"    // more than one of these
	DiscrepancyUnexpected DiscrepancyKind = "unexpected" // a run for what is no instant of the schedule
)

// VerifyPage is one page of an audit; Next is the cursor of the following one, empty after the last.
type VerifyPage struct {
	Items []TriggerVerification `json:"items"`
	Next  string                `json:"next,omitempty"`
}

const (
	// verifyInstants bounds the instants that one call of Audit looks at.
	verifyInstants = 20_000
	// mostDiscrepancies bounds those that are listed of a trigger.
	mostDiscrepancies = 100
)

// VerifyLedger is what Audit reads.
type VerifyLedger interface {
	Revisions
	Misfires(ctx context.Context, query RunQuery) ([]Misfire, error)
}

// ErrVerifyCursor says that a cursor is not one of VerifyPage.Next.
var ErrVerifyCursor = errors.New("not a cursor of an audit")

// Audit reconciles the ledger of an app with its schedules, job by job. One call does a bounded
// amount of work; a job with more instants than that goes on at the next.
func Verify(ctx context.Context, ledger VerifyLedger, query VerifyQuery) (VerifyPage, error) {
	page := VerifyPage{Items: []TriggerVerification{}}
	after, again, from, err := parseVerifyCursor(query.Page.Cursor)
	if err != nil {
		return page, err
	}
	app, err := ledger.AppHistory(ctx, query.App, query.To, query.Now)
	if err != nil {
		return page, err
	}
	first, last := latestOf(query.From, app.Since), query.To
	if last.IsZero() || last.After(app.Now) {
		last = app.Now
	}
	jobs, err := ledger.EveryJobName(ctx, query.App, Page{Cursor: after, Limit: query.Page.Limit})
	if err != nil {
		return page, err
	}
	more := len(jobs) == query.Page.Limit
	if again != "" {
		jobs = append([]string{again}, jobs...)
	}
	budget := verifyInstants
	for i, job := range jobs {
		if i > 0 || again == "" {
			from = first
		}
		items, reached, used, err := verifyJob(ctx, ledger, query.App, job, latestOf(from, first), last)
		if err != nil {
			return page, fmt.Errorf("audit job %s/%s: %w", query.App, job, err)
		}
		page.Items = append(page.Items, items...)
		budget -= used
		switch {
		case reached.Before(last):
			page.Next = job + "@" + strconv.FormatInt(reached.UnixMilli()+1, 10)
			return page, nil
		case budget <= 0 && (i+1 < len(jobs) || more):
			page.Next = job
			return page, nil
		}
	}
	if more {
		page.Next = jobs[len(jobs)-1]
	}
	return page, nil
}

func latestOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// parseVerifyCursor reads JOB, which is done with, or JOB@MS, which goes on from there.
func parseVerifyCursor(cursor string) (after, again string, from time.Time, err error) {
	if cursor == "" {
		return "", "", from, nil
	}
	job, ms, goesOn := strings.Cut(cursor, "@")
	if !namePattern.MatchString(job) {
		return "", "", from, ErrVerifyCursor
	}
	if !goesOn {
		return job, "", from, nil
	}
	n, err := strconv.ParseInt(ms, 10, 64)
	if err != nil || n < 0 {
		return "", "", from, ErrVerifyCursor
	}
	return job, job, time.UnixMilli(n).UTC(), nil
}

// IsVerifyCursor tells cursors of audits.
func IsVerifyCursor(text string) bool {
	_, _, _, err := parseVerifyCursor(text)
	return err == nil
}

// verifyJob looks at the triggers of a job from one instant on, up to the one that it returns,
// and tells how many instants that took.
func verifyJob(ctx context.Context, ledger VerifyLedger, app, job string, from, to time.Time) (items []TriggerVerification, reached time.Time, used int, err error) {
	if to.Before(from) {
		return nil, to, 0, nil
	}
	records, err := ledger.TriggerHistories(ctx, app, job, from)
	if err != nil || len(records) == 0 {
		return nil, to, 1, err
	}
	accounts := newRevisionReader(ledger, app, job)
	all := make([]*owedInstants, len(records))
	share := max(verifyInstants/len(records), 100)
	for i := range records {
		if all[i], err = accounts.owed(ctx, &records[i], from, to, share); err != nil {
			return nil, to, 0, err
		}
		to = all[i].reached(to)
	}
	// Who has a thousand times more runs than instants is not stopped by this, only slowed.
	const most = 2 * verifyInstants
	fires, err := ledger.Fires(ctx, app, job, from, to, most)
	if err != nil {
		return nil, to, 0, err
	}
	if len(fires) == most && fires[most-1].ScheduledAt.After(from) {
		to = fires[most-1].ScheduledAt.Add(-time.Millisecond)
	}
	missed, err := misfiresOf(ctx, ledger, RunQuery{App: app, Job: job, From: from, To: to})
	if err != nil {
		return nil, to, 0, err
	}
	ran := map[int64][]time.Time{}
	for _, key := range fires {
		ran[key.TriggerID] = append(ran[key.TriggerID], key.ScheduledAt)
	}
	for _, one := range all {
		one.cut(to)
		used += len(one.instants) + 1
		items = append(items, one.reconcile(job, from, to, ran[TriggerID(app, job, one.record.Name)], missed[one.record.Name]))
	}
	slices.SortFunc(items, func(a, b TriggerVerification) int { return cmp.Compare(a.Trigger, b.Trigger) })
	return items, to, used + len(fires), nil
}

// misfiresOf returns all decisions that a query selects, by trigger.
func misfiresOf(ctx context.Context, ledger VerifyLedger, query RunQuery) (map[string][]Misfire, error) {
	all := map[string][]Misfire{}
	for query.Page.Limit = 1000; ; {
		page, err := ledger.Misfires(ctx, query)
		if err != nil {
			return nil, err
		}
		for _, m := range page {
			all[m.Trigger] = append(all[m.Trigger], m)
		}
		if len(page) < query.Page.Limit {
			return all, nil
		}
		query.Page.Cursor = page[len(page)-1].Cursor()
	}
}

// owedInstants is what a trigger owed in a stretch of time.
type owedInstants struct {
	record   *TriggerHistory
	instants []time.Time // in order
	full     bool        // there are more than were asked for
	open     time.Time   // the first that is still to be claimed or settled; zero: none
	// unchecked are stretches of which nobody can say what they owed, and why says why not.
	unchecked []span
	why       string
	// doubtful are stretches in which another time zone database was in use, which may have had
	// other instants.
	doubtful []span
}

// owed returns the instants from one to another that a trigger owed, at most limit.
func (a *revisionReader) owed(ctx context.Context, record *TriggerHistory, from, to time.Time, limit int) (*owedInstants, error) {
	account := &owedInstants{record: record}
	for _, s := range record.spans() {
		if !s.open.IsZero() {
			account.open = s.open
		}
		low, high := latestOf(s.from, from), s.until
		if high.After(to) {
			high = to
		}
		if high.Before(low) || account.full {
			continue
		}
		parsed, err := a.schedule(ctx, record.Name, s.revision, false)
		var unreadable *unreadableError
		switch {
		case errors.As(err, &unreadable):
			account.skip(s, "its definition cannot be evaluated: "+err.Error())
			continue
		case err != nil:
			return nil, err
		}
		if _, delayed := parsed.FixedDelay(); delayed {
			account.skip(s, "the fires of a fixed delay follow from its runs")
			continue
		}
		if s.revision.zonal() && s.revision.Zones != schedule.ZonesVersion() {
			account.doubtful = append(account.doubtful, s)
		}
		account.instants = append(account.instants, parsed.Between(low.Add(-time.Millisecond), high, limit+1-len(account.instants))...)
		account.full = len(account.instants) > limit
	}
	var reached time.Time
	if account.full {
		reached = account.instants[limit-1]
	}
	// What was claimed ahead of its time is owed once more when its job is deleted and declared again before it.
	slices.SortFunc(account.instants, time.Time.Compare)
	account.instants = slices.CompactFunc(account.instants, time.Time.Equal)
	if account.full {
		account.cut(reached)
	}
	return account, nil
}

func (t *owedInstants) skip(s span, why string) {
	t.unchecked, t.why = append(t.unchecked, s), why
}

// reached returns up to when t knows its instants.
func (t *owedInstants) reached(to time.Time) time.Time {
	if t.full && len(t.instants) > 0 && t.instants[len(t.instants)-1].Before(to) {
		return t.instants[len(t.instants)-1]
	}
	return to
}

// cut forgets what is after to.
func (t *owedInstants) cut(to time.Time) {
	n := sort.Search(len(t.instants), func(i int) bool { return t.instants[i].After(to) })
	t.instants = t.instants[:n]
}

// reconcile compares what was owed with the runs, in order, and the decisions.
func (t *owedInstants) reconcile(job string, from, to time.Time, ran []time.Time, missed []Misfire) TriggerVerification {
	result := TriggerVerification{
		Job: job, Trigger: t.record.Name, From: from, To: to, Scheduled: len(t.instants), Unchecked: t.why,
	}
	accounts := make([]int, len(t.instants))
	covered := make([]bool, len(t.instants))
	for _, m := range missed {
		first := sort.Search(len(t.instants), func(i int) bool { return !t.instants[i].Before(m.From) })
		for i := first; i < len(t.instants) && !t.instants[i].After(m.To); i++ {
			accounts[i]++
			covered[i] = true
		}
	}
	for _, at := range ran {
		i, owed := slices.BinarySearchFunc(t.instants, at, time.Time.Compare)
		switch {
		case owed:
			accounts[i]++
			result.Runs++
		case at.After(to) || t.isOpen(at) || within(t.unchecked, at):
		default:
			t.differ(&result, at, DiscrepancyUnexpected)
		}
	}
	for i, n := range accounts {
		if covered[i] {
			result.Misfired++
		}
		switch {
		case n > 1:
			t.differ(&result, t.instants[i], DiscrepancyDoubled)
		case n == 0 && t.isOpen(t.instants[i]):
			result.Open++
		case n == 0:
			t.differ(&result, t.instants[i], DiscrepancyMissing)
		}
	}
	slices.SortFunc(result.Discrepancies, func(a, b Discrepancy) int { return a.At.Compare(b.At) })
	return result
}

// isOpen tells of what may have been claimed only after the record was read.
func (t *owedInstants) isOpen(at time.Time) bool { return !t.open.IsZero() && !at.Before(t.open) }

func within(spans []span, at time.Time) bool {
	return slices.ContainsFunc(spans, func(s span) bool { return !at.Before(s.from) && !at.After(s.until) })
}

// differ adds a discrepancy, unless nobody can be sure of it.
func (t *owedInstants) differ(a *TriggerVerification, at time.Time, kind DiscrepancyKind) {
	if within(t.doubtful, at) {
		a.Unchecked = "schedule and ledger differ where another time zone database was in use, such as at " + FormatInstant(at)
		return
	}
	if a.Unexplained++; a.Unexplained <= mostDiscrepancies {
		a.Discrepancies = append(a.Discrepancies, Discrepancy{at, kind})
	}
}
