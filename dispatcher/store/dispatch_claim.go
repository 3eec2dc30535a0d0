package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
)

func (s *store) Due(ctx context.Context, query dispatcher.DueQuery) ([]dispatcher.DueTrigger, error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	page := s.hot.due
	if query.Overdue {
		page = s.hot.overdue
	}
	after := int64(-1)
	if !query.AfterTime.IsZero() {
		after = query.AfterTime.UnixMilli()
	}
	args := append([]any{query.Until.UnixMilli(), orZero(query.Now), after, query.AfterID, int64(query.Limit), int64(len(query.Apps))},
		s.batch(append([]string{}, query.Apps...))...)
	var due []dispatcher.DueTrigger
	_, err := s.run(ctx, page, args, func(row scanner) error {
		t, err := scanTrigger(row)
		due = append(due, t.due())
		return err
	})
	return due, err
}

func (s *store) OverdueApps(ctx context.Context, apps []string, labels dispatcher.Labels, now time.Time) ([]string, error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	names, served, err := s.adoptLists(ctx, apps, labels)
	if err != nil {
		return nil, fmt.Errorf("look for overdue triggers: %w", err)
	}
	// $1 now, $2 number of apps, from $3 on: adoptColumns
	query := s.rows(1, 3, "", adoptColumns...) + ` SELECT DISTINCT a.name FROM triggers AS t JOIN apps AS a ON a.id = t.app_id
		WHERE t.state = 'waiting' AND NOT t.paused AND NOT t.job_paused AND t.due_at IS NOT NULL AND t.due_at <= (SELECT now FROM n)` + tooLate + `
			AND a.enabled AND ($2 = 0 OR a.name IN (SELECT name FROM b)) AND (t.node_labels = '' OR t.node_labels IN (SELECT labels FROM b))`
	return collect(ctx, s.read, func(row scanner) (name string, err error) {
		err = row.Scan(&name)
		return name, err
	}, query, append([]any{orZero(now), int64(len(apps))}, s.batch(names, served)...)...)
}

// due returns a trigger as the engine plans it.
func (t triggerRow) due() dispatcher.DueTrigger {
	return dispatcher.DueTrigger{
		ID: t.id, JobID: t.jobID, AppID: t.appID, Revision: t.revision, CalendarRevision: t.calendars,
		NodeLabels: dispatcher.ParseLabels(t.nodeLabels),
		Spec:       t.Spec("", t.AnchorAt), Calendar: t.Calendar,
		MisfireAfter: t.MisfireAfter.Std(), MisfirePolicy: t.MisfirePolicy, CatchUpWindow: t.CatchUpWindow.Std(),
		PrevFireTime: zeroable(t.PrevFireTime), NextFireTime: zeroable(t.NextFireTime), DueAt: zeroable(t.DueAt),
	}
}

// heldRuns runs a hot statement that returns runs, the latest last.
func (s *store) heldRuns(ctx context.Context, most time.Duration, hot statement, args []any) ([]dispatcher.HeldRun, error) {
	ctx, cancel := bound(ctx, most)
	defer cancel()
	var held []dispatcher.HeldRun
	err := retry(ctx, s.transient, func() error {
		held = nil
		_, err := s.run(ctx, hot, args, func(row scanner) error {
			var run dispatcher.HeldRun
			var at int64
			var until *int64
			var kind int16
			err := row.Scan(&at, &run.TriggerID, &kind, &run.JobID, &run.Revision, &run.Token, &run.Attempt, &run.Failures, &until)
			run.ScheduledAt, run.RetryUntil = instant(at), zeroable(optional(until))
			run.Kind, _ = dispatcher.KindOfCode(byte(kind))
			held = append(held, run)
			return err
		})
		return err
	})
	slices.SortFunc(held, func(a, b dispatcher.HeldRun) int {
		return cmp.Or(a.ScheduledAt.Compare(b.ScheduledAt), cmp.Compare(a.TriggerID, b.TriggerID))
	})
	return held, err
}

// advances are the columns of a batch of compare-and-swaps.
type advances struct {
	id, revision, calendars, next []int64
	prev, then, thenDue           []*int64
}

func (a *advances) add(one dispatcher.Advance) {
	a.id = append(a.id, one.TriggerID)
	a.revision = append(a.revision, one.Revision)
	a.calendars = append(a.calendars, one.CalendarRevision)
	a.prev = append(a.prev, orNull(one.Prev))
	a.next = append(a.next, one.Next.UnixMilli())
	a.then = append(a.then, orNull(one.Then))
	a.thenDue = append(a.thenDue, dueOrNull(one.Then, one.ThenDue))
}

// columns are in the order of advanceColumns, with more behind them.
func (a *advances) columns(more ...any) []any {
	return append([]any{a.id, a.revision, a.calendars, a.prev, a.next, a.then, a.thenDue}, more...)
}

func (s *store) Claim(ctx context.Context, batch dispatcher.ClaimBatch) ([]dispatcher.HeldRun, error) {
	if len(batch.Advances) == 0 {
		return nil, nil
	}
	// In the order of their ids: two nodes that claim the same fires cannot deadlock.
	sorted := slices.SortedFunc(slices.Values(batch.Advances), func(a, b dispatcher.Advance) int {
		return cmp.Compare(a.TriggerID, b.TriggerID)
	})
	var a advances
	for _, one := range sorted {
		a.add(one)
	}
	args := append([]any{int64(batch.Node), int64(batch.Token), orZero(batch.Now), batch.Lead.Milliseconds()},
		s.batch(a.columns()...)...)
	failpoint.During(failpoint.DuringClaim)
	held, err := s.heldRuns(ctx, claimTimeout, s.hot.claim, args)
	if err != nil {
		return nil, fmt.Errorf("claim %d fires: %w", len(sorted), err)
	}
	s.seen.won(held)
	return held, nil
}

func (s *store) Settle(ctx context.Context, batch dispatcher.SettleBatch) ([]dispatcher.HeldRun, error) {
	if len(batch.Settlements) == 0 {
		return nil, nil
	}
	sorted := slices.SortedFunc(slices.Values(batch.Settlements), func(a, b dispatcher.Settlement) int {
		return cmp.Compare(a.TriggerID, b.TriggerID)
	})
	var a advances
	var to, missed []int64
	var decision, reason []string
	var catchUp []*int64
	for _, one := range sorted {
		a.add(one.Advance)
		to, missed = append(to, one.To.UnixMilli()), append(missed, int64(one.Count))
		decision, reason = append(decision, string(one.Decision)), append(reason, one.Reason)
		catchUp = append(catchUp, orNull(one.CatchUp))
	}
	args := append([]any{int64(batch.Node), int64(batch.Token), orZero(batch.Now), int64(0)},
		s.batch(a.columns(to, missed, decision, reason, catchUp)...)...)
	held, err := s.heldRuns(ctx, otherTimeout, s.hot.settle, args)
	if err != nil {
		return nil, fmt.Errorf("settle %d triggers: %w", len(sorted), err)
	}
	return held, nil
}

func (s *store) Adopt(ctx context.Context, query dispatcher.AdoptQuery) ([]dispatcher.HeldRun, error) {
	names, served, err := s.adoptLists(ctx, query.Apps, query.Labels)
	if err != nil {
		return nil, fmt.Errorf("adopt runs: %w", err)
	}
	args := append([]any{nil, nil, int64(query.Node), int64(query.Token), orZero(query.Now), int64(query.Limit), int64(len(query.Apps))},
		s.batch(names, served)...)
	find, adopt := s.hot.adoptable, s.hot.adopt
	if query.Retries {
		find, adopt = s.hot.retriable, s.hot.adoptRetries
	}
	found, err := s.setDays(ctx, find, args)
	if err != nil {
		return nil, fmt.Errorf("look for runs to adopt: %w", err)
	}
	if !found {
		return nil, nil
	}
	held, err := s.heldRuns(ctx, otherTimeout, adopt, args)
	if err != nil {
		return nil, fmt.Errorf("adopt runs: %w", err)
	}
	return held, nil
}

// setDays sets the first two of args to the days of the runs that a statement, run with them,
// finds. What comes after it looked is for the next round.
func (s *store) setDays(ctx context.Context, find statement, args []any) (found bool, err error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	args[0], args[1] = int64(0), int64(math.MaxInt64)
	var first, last *int64
	_, err = s.run(ctx, find, args, func(row scanner) error { return row.Scan(&first, &last) })
	if err != nil || first == nil {
		return false, err
	}
	args[0], args[1] = day(*first), day(*last)+dayMillis
	return true, nil
}

// adoptLists returns adoptColumns for a node of these apps and labels.
func (s *store) adoptLists(ctx context.Context, apps []string, labels dispatcher.Labels) (names, served []string, err error) {
	if served, err = s.servedLabels(ctx, labels); err != nil {
		return nil, nil, err
	}
	names = append([]string{}, apps...)
	for len(names) < len(served) {
		names = append(names, "")
	}
	for len(served) < len(names) {
		served = append(served, "")
	}
	return names, served, nil
}

// servedLabels returns those sets of labels that jobs require and a node with these labels has.
func (s *store) servedLabels(ctx context.Context, have dispatcher.Labels) ([]string, error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	const required = `SELECT DISTINCT node_labels FROM jobs WHERE node_labels <> ''`
	all, err := collect(ctx, s.read, func(row scanner) (labels string, err error) {
		return labels, row.Scan(&labels)
	}, required)
	return slices.DeleteFunc(all, func(labels string) bool { return !have.Have(dispatcher.ParseLabels(labels)) }), err
}

// keys are the columns of a batch of runs.
type keys struct {
	at, trigger, token []int64
	kind, attempt      []int32
}

func (k *keys) add(key dispatcher.RunKey, token dispatcher.Token, attempt int) {
	k.at = append(k.at, key.ScheduledAt.UnixMilli())
	k.trigger = append(k.trigger, key.TriggerID)
	k.kind = append(k.kind, int32(key.Kind.Code()))
	k.token = append(k.token, int64(token))
	k.attempt = append(k.attempt, int32(attempt))
}

// keysOf returns the batch of runs, in the order in which all statements lock them.
func (s *store) keysOf(runs []dispatcher.HeldRun) []any {
	var k keys
	for _, run := range sortedBy(runs, func(r dispatcher.HeldRun) dispatcher.RunKey { return r.RunKey }) {
		k.add(run.RunKey, run.Token, run.Attempt)
	}
	return s.dated(k.at, k.trigger, k.kind, k.token, k.attempt)
}

// dated is batch for runs in the order of their instants, which the first column holds, after
// the bounds of their days: from the first inclusive, to the second exclusive.
func (s *store) dated(columns ...any) []any {
	at := columns[0].([]int64)
	first, last := day(at[0]), day(at[len(at)-1])
	return append([]any{first, last + dayMillis}, s.batch(columns...)...)
}

func (s *store) Held(ctx context.Context, node dispatcher.NodeID, token dispatcher.Token) ([]dispatcher.HeldRun, error) {
	held, err := s.heldRuns(ctx, claimTimeout, s.hot.held, []any{int64(node), int64(token)})
	if err != nil {
		return nil, fmt.Errorf("read held runs: %w", err)
	}
	return held, nil
}

func (s *store) Release(ctx context.Context, runs []dispatcher.HeldRun) error {
	if len(runs) == 0 {
		return nil
	}
	for _, run := range runs {
		s.seen.returning(run.RunKey)
	}
	if _, err := s.exec(ctx, s.hot.release, s.keysOf(runs)); err != nil {
		return fmt.Errorf("release %d runs: %w", len(runs), err)
	}
	// Other nodes may adopt them now.
	return s.change(ctx, dispatcher.Change{}, func(_ context.Context, t *tx) error {
		t.tell("")
		return nil
	})
}

func (s *store) Begin(ctx context.Context, runs []dispatcher.HeldRun) ([]dispatcher.HeldRun, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	begun, err := s.heldRuns(ctx, claimTimeout, s.hot.begin, s.keysOf(runs))
	if err != nil {
		return nil, fmt.Errorf("begin %d runs: %w", len(runs), err)
	}
	return begun, nil
}

// endBatch bounds what one statement ends; the next round ends the rest.
const endBatch = 1000

func (s *store) FailLostRuns(ctx context.Context, now time.Time) (int, error) {
	return s.endRuns(ctx, s.hot.forfeitable, s.hot.failLost, now)
}

// endRuns ends runs that nobody works on, in the days in which find finds some, and returns how
// many.
func (s *store) endRuns(ctx context.Context, find, end statement, now time.Time) (int, error) {
	args := append([]any{nil, nil, orZero(now), int64(endBatch)}, s.batch([]int64{0})...)
	if found, err := s.setDays(ctx, find, args); err != nil || !found {
		return 0, err
	}
	ended, err := s.heldRuns(ctx, otherTimeout, end, args)
	if err != nil || len(ended) == 0 {
		return 0, err
	}
	// Fixed delays go on from here.
	err = s.change(ctx, dispatcher.Change{}, func(_ context.Context, t *tx) error {
		t.tell("")
		return nil
	})
	return len(ended), err
}

func (s *store) Record(ctx context.Context, records []dispatcher.Record) error {
	if len(records) == 0 {
		return nil
	}
	sorted := sortedBy(records, func(r dispatcher.Record) dispatcher.RunKey { return r.RunKey })
	for i := range sorted {
		sorted[i].Outcome.Error = storable(sorted[i].Outcome.Error)
		if next := sorted[i].Next; next != nil && next.NotAttempted {
			s.seen.returning(sorted[i].RunKey)
		}
	}
	ended, again := partRetries(sorted)
	// Anyone who sees that a run has ended sees what it was answered. That it could not be kept is no reason
	// to keep the outcome back.
	err := errors.Join(s.recordResponses(ctx, sorted), s.recordAll(ctx, s.hot.record, ended), s.recordAll(ctx, s.hot.again, again))
	if err != nil {
		return fmt.Errorf("record %d attempts: %w", len(records), err)
	}
	return nil
}

// recordAll stores records, sorted, by one hot statement.
func (s *store) recordAll(ctx context.Context, by statement, records []dispatcher.Record) error {
	if len(records) == 0 {
		return nil
	}
	columns := outcomes(records)
	all := columns
	if records[0].Next != nil {
		all = append(columns[:len(columns):len(columns)], nextAttempts(records)...)
	}
	recorded, err := s.exec(ctx, by, s.dated(all...))
	if err == nil && int(recorded) < len(records) {
		// Some were fenced off. If this is interrupted, the caller records them again.
		err = s.recordLate(ctx, records, columns)
	}
	return err
}

// storable returns what of a text a database takes: PostgreSQL refuses NUL and what is not
// UTF-8, both of which a server can put into a response, and with it the whole batch.
func storable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "")
}

// outcomes returns the columns of a batch of records.
func outcomes(records []dispatcher.Record) []any {
	var k keys
	var node, started, ended []int64
	var status []int32
	var state, class, message []string
	for _, r := range records {
		k.add(r.RunKey, r.Token, r.Attempt)
		o := r.Outcome
		node, status = append(node, int64(r.Node)), append(status, int32(o.HTTPStatus))
		started, ended = append(started, o.StartedAt.UnixMilli()), append(ended, o.EndedAt.UnixMilli())
		state, class, message = append(state, string(o.State)), append(class, string(o.Class)), append(message, o.Error)
	}
	return []any{k.at, k.trigger, k.kind, k.token, k.attempt, node, started, ended, status, state, class, message}
}

// recordLate keeps the results of those of records whose attempt was taken from their node.
func (s *store) recordLate(ctx context.Context, records []dispatcher.Record, columns []any) error {
	late := make([]string, len(records))
	for i, r := range records {
		r.Outcome.Response = nil // which is kept with those of all attempts
		outcome, err := json.Marshal(r.Outcome)
		if err != nil {
			return err
		}
		late[i] = string(outcome)
	}
	_, err := s.exec(ctx, s.hot.late, s.dated(append(columns, late)...))
	return err
}

// exec runs a hot statement that returns no rows.
func (s *store) exec(ctx context.Context, hot statement, args []any) (affected int64, err error) {
	ctx, cancel := bound(ctx, recordTimeout)
	defer cancel()
	err = retry(ctx, s.transient, func() error {
		affected, err = s.run(ctx, hot, args, nil)
		return err
	})
	return affected, err
}

// sortedBy returns items in the order of their runs, in which all statements lock them.
func sortedBy[T any](items []T, key func(T) dispatcher.RunKey) []T {
	return slices.SortedFunc(slices.Values(items), func(x, y T) int {
		a, b := key(x), key(y)
		return cmp.Or(a.ScheduledAt.Compare(b.ScheduledAt), cmp.Compare(a.TriggerID, b.TriggerID))
	})
}

func (s *store) Quarantine(ctx context.Context, triggerID, revision int64, reason string) error {
	return s.change(ctx, dispatcher.Change{}, func(ctx context.Context, t *tx) error {
		// $1 id, $2 revision, $3 reason. The next fire time stays: a change of the definition
		// accounts for what was due.
		const quarantine = `UPDATE triggers SET state = 'error', error = $3 WHERE id = $1 AND revision = $2 AND state = 'waiting'`
		if _, err := t.ExecContext(ctx, quarantine, triggerID, revision, storable(reason)); err != nil {
			return err
		}
		t.tell("")
		return t.writeError(ctx, triggerID)
	})
}

func (s *store) Listen(ctx context.Context, notification func(dispatcher.Notification)) error {
	return s.listen(ctx, notification)
}
