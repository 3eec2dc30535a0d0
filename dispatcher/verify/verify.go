package verify

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

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// Query selects the scheduled times of an app to verify.
type Query struct {
	App string
	// From and To bound the scheduled times, both inclusive. They are cut to the kept history; zero means all of it.
	From, To time.Time
	// Page.Limit is the maximum number of jobs; the cursor is Page.Next of the previous page.
	Page input.Page
	Now  time.Time
}

// Page is one page of results; Next is the cursor of the next page, empty after the last.
type Page struct {
	Items []Trigger `json:"items"`
	// Leaks are the first hundred leaks of the whole app, in any period. Only the first page has them.
	Leaks []dispatcher.Leak `json:"leaks,omitempty" schema:"max=100"`
	Next  string            `json:"next,omitempty" schema:"Next"`
}

// Trigger compares the schedule of a trigger with the ledger, for a period or a part of it.
type Trigger struct {
	Job     string `json:"job"`
	Trigger string `json:"trigger"`
	// From and To bound the scheduled times that were compared, both inclusive.
	From time.Time `json:"from"`
	// Last scheduled time that was compared.
	To time.Time `json:"to"`
	// Scheduled counts the scheduled times. Each of them has a run, lies in a misfire decision, is
	// open (not yet claimed or settled), or is a discrepancy.
	Scheduled int `json:"scheduled"`
	// How many of them have a run.
	Runs int `json:"runs"`
	// How many of them a misfire decision covers.
	Misfired int `json:"misfired"`
	// How many of them are due and not yet claimed or settled.
	Open int `json:"open"`
	// Backfilled counts the runs of backfills. They do not explain scheduled times.
	Backfilled int `json:"backfilled,omitempty"`
	// Unexplained counts the discrepancies. Discrepancies are the first hundred of them.
	Unexplained int `json:"unexplained"`
	// The first of them.
	Discrepancies []Discrepancy `json:"discrepancies,omitempty" schema:"max=100"`
	// Unchecked is why a part of the trigger's history was not compared.
	Unchecked string `json:"unchecked,omitempty"`
}

// Extend adds the next part of the period.
func (t *Trigger) Extend(part Trigger) {
	t.To = part.To
	t.Scheduled, t.Runs, t.Misfired = t.Scheduled+part.Scheduled, t.Runs+part.Runs, t.Misfired+part.Misfired
	t.Open, t.Backfilled, t.Unexplained = t.Open+part.Open, t.Backfilled+part.Backfilled, t.Unexplained+part.Unexplained
	t.Discrepancies = append(t.Discrepancies, part.Discrepancies...)
	t.Unchecked = cmp.Or(t.Unchecked, part.Unchecked)
}

// Discrepancy is a time at which schedule and ledger disagree.
type Discrepancy struct {
	At   time.Time       `json:"at"`
	Kind DiscrepancyKind `json:"kind"`
}

// DiscrepancyKind is how they disagree.
type DiscrepancyKind string

// The kinds of discrepancy.
const (
	DiscrepancyMissing    DiscrepancyKind = "missing"    // neither a run nor a misfire decision
	DiscrepancyDoubled    DiscrepancyKind = "doubled"    // more than one of these
	DiscrepancyUnexpected DiscrepancyKind = "unexpected" // a run at a time that was not scheduled
)

const (
	// maxTimes bounds the scheduled times that one call of Ledger compares.
	maxTimes = 20_000
	// maxDiscrepancies bounds the listed discrepancies of a trigger.
	maxDiscrepancies = 100
	// maxEvaluation bounds the steps that one call of Ledger takes to evaluate schedules, which is
	// some tenths of a second.
	maxEvaluation = 40 * maxTimes
	// maxLeaks bounds the listed leaks of an app.
	maxLeaks = 100
	// leakAfter is longer than nodes take to free slots and waits of a run: two rounds of the handler, and a check each
	// minute.
	leakAfter = 5 * time.Minute
)

// Ledger compares the ledger of an app with its schedules, job by job. One call does a bounded amount of work: a job
// with more scheduled times than that continues on the next page. The error is ErrNotFound if the app does not exist,
// and ErrCursor for an invalid cursor.
func Ledger(ctx context.Context, reader Reader, query Query) (Page, error) {
	page := Page{Items: []Trigger{}}
	from, err := parseCursor(query.Page.Cursor)
	if err != nil {
		return page, err
	}
	app, err := reader.AppHistory(ctx, query.App, query.To, query.Now)
	if err != nil {
		return page, err
	}
	first := input.Later(query.From, app.Since)
	if query.Page.Cursor == "" {
		if page.Leaks, err = reader.Leaks(ctx, query.App, app.Now.Add(-leakAfter), maxLeaks); err != nil {
			return page, err
		}
	}
	jobs, err := reader.EveryJobName(ctx, query.App, input.Page{Cursor: from.job, Limit: query.Page.Limit})
	if err != nil {
		return page, err
	}
	more := len(jobs) == query.Page.Limit
	start := first
	if from.within {
		jobs = append([]string{from.job}, jobs...)
		start = input.Later(from.at, first)
	}
	c := comparison{reader: reader, app: query.App, last: end(query.To, app.Now), steps: schedule.NewBudget(ctx, maxEvaluation)}
	for i, job := range jobs {
		items, reached, err := c.job(ctx, job, start)
		if err != nil {
			return page, fmt.Errorf("verify job %s/%s: %w", query.App, job, err)
		}
		start = first
		page.Items = append(page.Items, items...)
		switch {
		case reached.Before(c.last):
			page.Next = cursor{job: job, within: true, at: reached.Add(time.Millisecond)}.String()
			return page, nil
		case (c.looked >= maxTimes || c.steps.Used() > maxEvaluation/2) && (i+1 < len(jobs) || more): // it has done its work
			page.Next = job
			return page, nil
		}
	}
	if more {
		page.Next = jobs[len(jobs)-1]
	}
	return page, nil
}

// end returns the last time to compare: at most now, which zero also means.
func end(to, now time.Time) time.Time {
	if to.IsZero() || to.After(now) {
		return now
	}
	return to
}

// comparison is one call of Ledger.
type comparison struct {
	reader Reader
	app    string
	last   time.Time
	steps  *schedule.Budget // of evaluating schedules
	looked int              // number of compared scheduled times and runs
}

// job compares the triggers of a job from one time on. It returns the time up to which it has compared.
func (c *comparison) job(ctx context.Context, job string, from time.Time) (items []Trigger, to time.Time, err error) {
	if to = c.last; to.Before(from) {
		return nil, to, nil
	}
	key, err := c.reader.JobKey(ctx, c.app, job)
	if errors.Is(err, dispatcher.ErrNotFound) {
		c.looked++
		return nil, to, nil // it was purged or renamed a moment ago
	}
	if err != nil {
		return nil, to, err
	}
	histories, err := c.reader.TriggerHistories(ctx, from, []int64{key})
	if err != nil || len(histories) == 0 {
		c.looked++
		return nil, to, err
	}
	schedules := dispatcher.NewPastSchedules(c.reader, c.app)
	all := make([]*scheduled, len(histories))
	share := max(maxTimes/len(histories), 100)
	for i := range histories {
		all[i] = &scheduled{from: from, to: to, most: share}
		if err := all[i].evaluate(ctx, schedules, &histories[i], c.steps); err != nil {
			return nil, to, err
		}
		to = all[i].reached(to)
	}
	// A job with a thousand times more runs than scheduled times gets through, but slowly.
	const most = 2 * maxTimes
	fires, err := c.reader.Fires(ctx, key, from, to, most)
	if err != nil {
		return nil, to, err
	}
	if len(fires) == most && fires[most-1].ScheduledAt.After(from) {
		to = fires[most-1].ScheduledAt.Add(-time.Millisecond)
	}
	misfires, err := misfiresByTrigger(ctx, c.reader, dispatcher.RunQuery{App: c.app, Job: job, From: from, To: to})
	if err != nil {
		return nil, to, err
	}
	runs := map[int64][]time.Time{}
	for _, key := range fires {
		runs[key.TriggerID] = append(runs[key.TriggerID], key.ScheduledAt)
	}
	backfilled, err := c.reader.Backfilled(ctx, key, from, to)
	if err != nil {
		return nil, to, err
	}
	c.looked += len(fires)
	for _, one := range all {
		one.cut(to)
		c.looked += len(one.times) + 1
		result := Trigger{Job: job, Trigger: one.trigger, From: from, To: to, Backfilled: backfilled[one.id]}
		one.compare(&result, runs[one.id], misfires[one.id])
		items = append(items, result)
	}
	slices.SortFunc(items, func(a, b Trigger) int { return cmp.Compare(a.Trigger, b.Trigger) })
	return items, to, nil
}

// misfiresByTrigger returns all misfire decisions that a query selects, by trigger.
func misfiresByTrigger(
	ctx context.Context, reader Reader, query dispatcher.RunQuery,
) (map[int64][]dispatcher.Misfire, error) {
	all := map[int64][]dispatcher.Misfire{}
	for query.Page.Limit = 1000; ; {
		page, err := reader.Misfires(ctx, query)
		if err != nil {
			return nil, err
		}
		for _, m := range page {
			all[m.TriggerID] = append(all[m.TriggerID], m)
		}
		if len(page) < query.Page.Limit {
			return all, nil
		}
		query.Page.Cursor = page[len(page)-1].Cursor()
	}
}

// scheduled are the scheduled times of a trigger in a period.
type scheduled struct {
	from, to time.Time // the period
	most     int       // number of requested times
	id       int64     // of the trigger
	trigger  string
	times    []time.Time // in order
	full     bool        // there are more
	open     time.Time   // the first that is not yet claimed or settled; zero if none
	// unchecked are spans with unknown scheduled times; why is the reason.
	unchecked []dispatcher.Span
	why       string
	// doubtful are spans evaluated then with another time zone database, which may have had
	// other scheduled times.
	doubtful []dispatcher.Span
	// moved are spans with runs that may have come with the app from another installation.
	moved []dispatcher.Span
}

// evaluate finds the scheduled times of a trigger.
func (t *scheduled) evaluate(
	ctx context.Context, schedules *dispatcher.PastSchedules, history *dispatcher.TriggerHistory, steps *schedule.Budget,
) error {
	t.id, t.trigger, t.moved = history.ID, history.Name, movedSpans(history)
	for _, s := range history.Spans() {
		if !s.Open.IsZero() {
			t.open = s.Open
		}
		low, high := input.Later(s.From, t.from), s.Until
		if high.After(t.to) {
			high = t.to
		}
		if high.Before(low) || t.full {
			continue
		}
		parsed, err := schedules.At(ctx, history.Identity, s.Revision)
		var unreadable *dispatcher.UnreadableError
		switch {
		case errors.As(err, &unreadable):
			t.skip(s, "its definition cannot be evaluated: "+err.Error())
			continue
		case err != nil:
			return err
		}
		if _, delayed := parsed.FixedDelay(); delayed {
			t.skip(s, "the fires of a fixed delay follow from its runs")
			continue
		}
		if s.Revision.UsesZones() && s.Revision.Zones != schedule.ZonesVersion() {
			t.doubtful = append(t.doubtful, s)
		}
		times, err := parsed.BetweenWithin(steps, low.Add(-time.Millisecond), high, t.most+1-len(t.times))
		var costly input.Problems
		switch {
		case errors.As(err, &costly):
			t.skip(s, "its scheduled times take too long to evaluate: "+err.Error())
			continue
		case err != nil:
			return err
		}
		t.times = append(t.times, times...)
		t.full = len(t.times) > t.most
	}
	var reached time.Time
	if t.full {
		reached = t.times[t.most-1]
	}
	// Two spans contain the same time if its fire was claimed early and its job was then deleted and declared again.
	slices.SortFunc(t.times, time.Time.Compare)
	t.times = slices.CompactFunc(t.times, time.Time.Equal)
	if t.full {
		t.cut(reached)
	}
	return nil
}

// movedSpans returns the spans before the first time that a trigger scheduled here, for each import of its app. Runs
// of fires that were won elsewhere may have come with it.
func movedSpans(history *dispatcher.TriggerHistory) (all []dispatcher.Span) {
	for i := range history.Revisions {
		one := &history.Revisions[i]
		if one.Cause != dispatcher.CauseImport {
			continue
		}
		s := dispatcher.Span{Revision: one, Until: one.From}
		if one.NextFireTime != nil {
			s.Until = one.NextFireTime.Add(-time.Millisecond)
		}
		if i > 0 {
			s.From = one.Settled.Add(time.Millisecond)
		}
		all = append(all, s)
	}
	return all
}

func (t *scheduled) skip(s dispatcher.Span, why string) {
	t.unchecked, t.why = append(t.unchecked, s), why
}

// reached returns the time up to which t is complete.
func (t *scheduled) reached(to time.Time) time.Time {
	if t.full && len(t.times) > 0 && t.times[len(t.times)-1].Before(to) {
		return t.times[len(t.times)-1]
	}
	return to
}

// cut drops the times after to.
func (t *scheduled) cut(to time.Time) {
	n := sort.Search(len(t.times), func(i int) bool { return t.times[i].After(to) })
	t.times = t.times[:n]
}

// decide adds to found, which counts the runs of each time, the misfire decisions of each time, and returns the last of
// them. A change of a schedule decides or runs at once the times that it no longer contains, and other times are decided
// later: the later decision then spans times that it does not count. Its first and its last it always counts.
func (t *scheduled) decide(result *Trigger, misfires []dispatcher.Misfire, found []int) (by []*dispatcher.Misfire) {
	by = make([]*dispatcher.Misfire, len(t.times))
	byLength := func(a, b dispatcher.Misfire) int { return cmp.Compare(a.To.Sub(a.From), b.To.Sub(b.From)) }
	for _, m := range slices.SortedStableFunc(slices.Values(misfires), byLength) {
		first := sort.Search(len(t.times), func(i int) bool { return !t.times[i].Before(m.From) })
		after := sort.Search(len(t.times), func(i int) bool { return t.times[i].After(m.To) })
		others := after - first - m.Count
		if m.From.Before(result.From) || m.To.After(result.To) { // how many of its times are elsewhere is not known
			others = after - first
		}
		for i := first; i < after; i++ {
			if found[i] > 0 && others > 0 && t.times[i].After(m.From) && t.times[i].Before(m.To) {
				others--
				continue
			}
			found[i]++
			by[i] = &m
		}
	}
	return by
}

// compare fills result from the scheduled times, the runs in order, and the misfire decisions.
func (t *scheduled) compare(result *Trigger, runs []time.Time, misfires []dispatcher.Misfire) {
	result.Scheduled, result.Unchecked = len(t.times), t.why
	found := make([]int, len(t.times)) // runs and decisions of each time
	for _, at := range runs {
		i, expected := slices.BinarySearchFunc(t.times, at, time.Time.Compare)
		switch {
		case expected:
			found[i]++
			result.Runs++
		case at.After(result.To) || t.isOpen(at) || within(t.unchecked, at) || within(t.moved, at):
		default:
			t.report(result, at, DiscrepancyUnexpected)
		}
	}
	by := t.decide(result, misfires, found)
	for i, n := range found {
		if by[i] != nil {
			result.Misfired++
		}
		switch {
		case n > 1:
			t.report(result, t.times[i], DiscrepancyDoubled)
		case n == 0 && t.isOpen(t.times[i]):
			result.Open++
		case n == 0:
			t.report(result, t.times[i], DiscrepancyMissing)
		}
	}
	slices.SortFunc(result.Discrepancies, func(a, b Discrepancy) int { return a.At.Compare(b.At) })
}

// isOpen reports whether a fire may have been claimed only after the history was read.
func (t *scheduled) isOpen(at time.Time) bool { return !t.open.IsZero() && !at.Before(t.open) }

func within(spans []dispatcher.Span, at time.Time) bool {
	return slices.ContainsFunc(spans, func(s dispatcher.Span) bool { return s.Contains(at) })
}

// report adds a discrepancy, unless the time is in a doubtful span.
func (t *scheduled) report(result *Trigger, at time.Time, kind DiscrepancyKind) {
	if within(t.doubtful, at) {
		result.Unchecked = "schedule and ledger differ, such as at " + input.FormatInstant(at) +
			", but another time zone database was in use then"
		return
	}
	if result.Unexplained++; result.Unexplained <= maxDiscrepancies {
		result.Discrepancies = append(result.Discrepancies, Discrepancy{at, kind})
	}
}

// ErrCursor means that a cursor is not one of Page.Next.
var ErrCursor = errors.New("not a cursor of this list")

// cursor is where a page begins: after a job, or within it at a time.
type cursor struct {
	job    string
	within bool
	at     time.Time
}

// String writes JOB, or JOB@MS within a job.
func (c cursor) String() string {
	if !c.within {
		return c.job
	}
	return c.job + "@" + strconv.FormatInt(c.at.UnixMilli(), 10)
}

func parseCursor(text string) (cursor, error) {
	if text == "" {
		return cursor{}, nil
	}
	job, ms, within := strings.Cut(text, "@")
	var problems input.Problems
	if input.CheckName(&problems, "", job); len(problems) > 0 {
		return cursor{}, ErrCursor
	}
	if !within {
		return cursor{job: job}, nil
	}
	n, err := strconv.ParseInt(ms, 10, 64)
	if err != nil || n < 0 {
		return cursor{}, ErrCursor
	}
	return cursor{job: job, within: true, at: time.UnixMilli(n).UTC()}, nil
}

// IsCursor reports whether text is a cursor of Page.Next.
func IsCursor(text string) bool {
	_, err := parseCursor(text)
	return err == nil
}
