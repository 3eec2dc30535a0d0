package store

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/definitions"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/store/reads"
	"github.com/carillon-dev/carillon/dispatcher/store/retention"
)

// ForeignTables finds tables of other programs.
const ForeignTables = foreignTables

// Missing returns the known commits that a node does not find on a new connection.
func Missing(ctx context.Context, s *Store, conn *pgx.Conn) (string, error) {
	return s.Rollbacks.Lost(ctx, conn)
}

// ExplainDue returns the plan of a read of due triggers.
func ExplainDue(ctx context.Context, s *Store, query dispatcher.DueQuery) (string, error) {
	return s.explain(ctx, s.Hot.Due.Of(query).Parts[0], s.DueArgs(query))
}

// ExplainUnclaimed returns the plan of finding due fires that no node has claimed, also those that no node serves.
func ExplainUnclaimed(ctx context.Context, s *Store, until int64) (string, error) {
	return s.explain(ctx, dispatch.Unclaimed(` AND c.due_at <= $1 AND (c.due_at, c.id) > ($2, $3)`, `$4`),
		[]any{until, int64(0), int64(0), int64(500)})
}

// ExplainEnded returns the plan of the search for fixed delays to schedule next.
func ExplainEnded(ctx context.Context, s *Store) (string, error) {
	return s.explain(ctx, s.Hot.Ended.Parts[0], []any{int64(500)})
}

// ExplainRetries returns the plan of the search for retrying runs due at now.
func ExplainRetries(ctx context.Context, s *Store, now int64) (string, error) {
	args := s.LookArgs(dispatcher.AdoptQuery{Node: 1, Now: db.Instant(now), Limit: 500, Retries: true}, []string{""}, []string{""})
	return s.explain(ctx, s.Hot.DueRetries.Parts[0], args)
}

// ExplainAbandoned returns the plans of the search for runs that no node works on, and of ending the runs that dead
// nodes have begun.
func ExplainAbandoned(ctx context.Context, s *Store) (look, failLost string, err error) {
	args := s.LookArgs(dispatcher.AdoptQuery{Node: 1, Limit: 500}, []string{""}, []string{""})
	if look, err = s.explain(ctx, s.Hot.Idle.Parts[0], args); err != nil {
		return "", "", err
	}
	failLost, err = s.explain(ctx, s.Hot.FailLost.Parts[0], append([]any{int64(0), int64(500)}, s.db.Batch([]int64{0})...))
	return look, failLost, err
}

// ExplainRun returns the plan of finding a run by its key.
func ExplainRun(ctx context.Context, s *Store, key run.Key) (string, error) {
	return s.explain(ctx, reads.RunQuery(reads.OneRun(s.db.Flavor)),
		[]any{key.ScheduledAt.UnixMilli(), key.TriggerID, int64(key.Kind.Code())})
}

// ExplainRunsOfApp returns the plan of reading the runs of an app between two instants.
func ExplainRunsOfApp(ctx context.Context, s *Store, app string, from, to time.Time) (string, error) {
	query, args, err := s.lookAtRuns(ctx, app, from, to)
	if err != nil {
		return "", err
	}
	return s.explain(ctx, query, args)
}

// RunsOfAppBuffers returns how many pages of PostgreSQL that read touches.
func RunsOfAppBuffers(ctx context.Context, s *Store, app string, from, to time.Time) (int, error) {
	query, args, err := s.lookAtRuns(ctx, app, from, to)
	if err != nil {
		return 0, err
	}
	return s.buffers(ctx, query, args)
}

func (s *Store) lookAtRuns(ctx context.Context, app string, from, to time.Time) (string, []any, error) {
	claimed, err := s.ClaimedNow(ctx)
	if err != nil {
		return "", nil, err
	}
	var w db.Conditions
	w.Add("r.scheduled_at >= %s AND r.scheduled_at < %s", from.UnixMilli(), to.UnixMilli())
	query, args := s.JobsQuery(w, claimed, run.AppID(app), false, 100)
	return query, args, nil
}

// ExplainRemoveJobs returns the plans of removing deleted jobs and their triggers.
func ExplainRemoveJobs(ctx context.Context, s *Store) (string, error) {
	triggers := s.db.Rows(0, 1, "", db.IDColumns...) + retention.RemoveTriggersOf
	if s.db.Single() {
		return s.explain(ctx, triggers, s.db.Batch([]int64{1, 2, 3}))
	}
	tx, err := s.db.Write.BeginTx(ctx, nil)
	if err != nil {
		return "", err
	}
	defer tx.Rollback()
	if err := s.db.LimitLockWait(ctx, tx); err != nil {
		return "", err
	}
	lines, err := db.Collect(ctx, tx, db.ScanText, "EXPLAIN "+triggers, s.db.Batch([]int64{1, 2, 3})...)
	return strings.Join(lines, "\n"), err
}

// Partitions returns the names of the partitions of PostgreSQL, by day.
func Partitions(ctx context.Context, s *Store) (names []string, err error) {
	all, err := db.Partitions(ctx, s.db.Read)
	for _, one := range all {
		names = append(names, one.Name())
	}
	return names, err
}

// Count returns the number that a query returns.
func Count(ctx context.Context, s *Store, query string) (int64, error) {
	n, _, err := db.First(ctx, s.db.Read, db.ScanInt, query)
	return n, err
}

// CloseReads makes all reads outside of a writing transaction fail.
func CloseReads(s *Store) error { return s.db.Read.Close() }

// PutCalendarMeanwhile is PutCalendar, with do between its plan and its transaction.
func PutCalendarMeanwhile(ctx context.Context, s *Store, calendar dispatcher.Calendar,
	change input.Change, do func()) (dispatcher.Calendar, error) {
	put := s.CalendarPut(calendar, change)
	prepare := put.Prepare
	put.Prepare = func(ctx context.Context, q db.Querier, next definitions.Replacement, now time.Time) error {
		err := prepare(ctx, q, next, now)
		do()
		return err
	}
	stored, _, err := definitions.Redefine(ctx, &s.definitionsStore, change, put)
	return stored, err
}

// PurgeMeanwhile is Purge by a node that freezes once it has the lock, calls do, and wakes when its time has passed.
func PurgeMeanwhile(ctx context.Context, s *Store, node run.NodeID, now time.Time,
	do func(wake time.Time)) (dispatcher.Purged, error) {
	c, err := s.Cleaner(ctx, node, now)
	if err != nil {
		return dispatcher.Purged{}, err
	}
	c.Now = now.Add(retention.CleanUpTime)
	do(c.Now)
	t := c.PurgeWith(c)
	err = errors.Join(t.Run(ctx, c.Now), c.End(ctx))
	return t.Result, err
}

func (s *Store) explain(ctx context.Context, query string, args []any) (string, error) {
	explain := "EXPLAIN "
	if s.db.Single() {
		explain = "EXPLAIN QUERY PLAN "
	}
	var plan strings.Builder
	_, err := s.db.Execute(ctx, db.Reading(explain+query), args, func(row db.Scanner) error {
		var line string
		var node, parent, unused int
		columns := []any{&line}
		if s.db.Single() {
			columns = []any{&node, &parent, &unused, &line}
		}
		err := row.Scan(columns...)
		plan.WriteString(line + "\n")
		return err
	})
	return plan.String(), err
}

// Exec runs a statement on the store's database.
func Exec(ctx context.Context, s *Store, statement string) error {
	_, err := s.db.Write.ExecContext(ctx, statement)
	return err
}

// HotStatement is a hot statement in the form of the golden files.
type HotStatement struct {
	Parts  []string
	OrElse string
	// Args are examples of its parameters on PostgreSQL.
	Args []any
}

// HotStatements returns the hot statements of a database, by name.
func HotStatements(database string, at int64) map[string]HotStatement {
	flavors := map[string]db.Flavor{"postgres": &db.Postgres{Has: db.AllCapabilities()}, "sqlite": &db.SQLite{}}
	f := flavors[database]
	all := dispatch.StatementsOf(f)
	node, token, many, zero := int64(1), int64(1), int64(500), int64(0)
	days := []any{db.Day(at), db.Day(at) + db.DayMillis}
	window := []any{at, at, int64(-1), zero, many, zero, int64(math.MaxInt64), zero, zero}
	claim := []any{node, token, at, zero}
	adopt, look := []any{node, token, at}, []any{node, at, many, zero, zero}
	ends, tokens := []any{at, many}, []int64{1, 2, 3}
	shown := map[string]HotStatement{}
	add := func(name string, hot db.Statement, args []any, columns ...db.Column) {
		for _, c := range columns {
			args = append(args[:len(args):len(args)], example(c, at))
		}
		shown[name] = HotStatement{Parts: hot.Parts, OrElse: strings.Join(hot.OrElse, "\n"), Args: args}
	}
	add("due", all.Due.Window, window, dispatch.DueLists...)
	add("due_of_jobs", all.Due.OfJobs, window, dispatch.DueOfJobs...)
	add("overdue", all.Due.Overdue, window, dispatch.DueLists...)
	add("triggers", all.Triggers, nil, db.IDColumns...)
	add("claim", all.Claim, claim, db.ClaimColumns...)
	add("claim_live", all.ClaimLive, claim, db.ClaimColumns...)
	add("settle", all.Settle, claim, db.SettleColumns...)
	add("held", all.Held, []any{node, token})
	add("release", all.Release, nil, db.KeyColumns...)
	add("begin", all.Begin, nil, db.KeyColumns...)
	add("record", all.Record.Ended, []any{tokens, tokens}, db.FireColumns...)
	add("record_retry", all.Record.Again, []any{tokens, tokens}, db.FireAgainColumns...)
	add("record_followed", all.Record.Followed.Ended, []any{tokens, tokens}, db.FireColumns...)
	add("record_followed_retry", all.Record.Followed.Again, []any{tokens, tokens}, db.FireAgainColumns...)
	add("record_live", all.Record.LiveEnded, nil, db.RecordColumns...)
	add("record_live_retry", all.Record.LiveAgain, nil, db.AgainColumns...)
	add("record_late", all.Late, days, db.LateColumns...)
	add("record_responses", all.Responses, nil, db.ResponseColumns...)
	add("unfold", db.Writing(all.Unfold.Insert), append(days[:2:2], tokens))
	add("unfold_find", db.Reading(all.Unfold.Abandoned), []any{tokens, many})
	add("nodes_dead", db.Reading(all.Unfold.Dead), []any{at}, db.IDColumns...)
	add("nodes_empty", all.NoteEmpty, []any{at}, db.IDColumns...)
	add("adopt_find", all.Idle, look, db.LookColumns...)
	add("adopt", all.Adopt, adopt, db.AdoptColumns...)
	add("retry_find", all.DueRetries, look, db.LookColumns...)
	add("retry_find_by_turns", all.RetriesByTurns, look, db.LookColumns...)
	add("retry_find_waiting", all.Waiting, []any{node, at, many, node, zero}, db.LookColumns...)
	add("retry", all.Retry, adopt, db.AdoptColumns...)
	add("begun", all.Begun, []any{node})
	add("lost", all.FailLost, ends, db.IDColumns...)
	add("lost_begun", all.LoseBegun, []any{at}, db.KeyColumns...)
	add("give_up", all.GiveUp, ends, db.IDColumns...)
	add("rollback_skip", all.RollbackSkip, ends, db.IDColumns...)
	add("delays_ended", all.Ended, []any{many})
	add("delays_ended_of", all.EndedOf, []any{many}, db.IDColumns...)
	add("schedule_next", all.ScheduleNext, nil, db.ScheduleNextColumns...)
	add("heartbeat", all.Heartbeat, []any{node, zero, zero, zero, zero, at, at, at, false})
	add("mark_dead", db.Writing(all.MarkDead[:]...), []any{at, int64(15_000)}, db.Col("id", db.Bigint), db.Col("heartbeat", db.Bigint))
	add("locks_take", db.Writing(all.TakeLocks), []any{at, node, many, zero}, db.NameColumns...)
	add("locks_give_back", db.Writing(all.GiveBack), nil, db.LockColumns...)
	add("slots_lock_jobs", db.Writing(all.Slots.LockJobs), nil, db.IDColumns...)
	add("slots_held", db.Writing(all.Slots.Held), nil, db.IDColumns...)
	add("slots_asking", db.Writing(all.Slots.Asking), nil, db.KeyColumns...)
	add("slots_waiting", db.Writing(all.Slots.Waiting), nil, db.IDColumns...)
	add("slots_gone", db.Writing(all.Slots.Gone), nil, db.WaitedColumns...)
	add("slots_edges", db.Writing(all.Slots.Edges), []any{many}, db.IDColumns...)
	add("slots_left", db.Reading(all.Slots.Left), []any{node, zero, zero, zero, zero, "", many})
	add("slots_free", db.Writing(all.Slots.Free), nil, db.SlotColumns...)
	add("slots_leave", db.Writing(all.Slots.Leave), nil, db.SlotColumns...)
	add("slots_grant", db.Writing(all.Slots.Grant), nil, db.SlotColumns...)
	add("slots_wait", db.Writing(all.Slots.Wait), nil, db.KeyColumns...)
	add("slots_wake", db.Writing(all.Slots.Wake), nil, db.KeyColumns...)
	add("slots_skip", all.Slots.Skip, []any{at}, db.EndColumns...)
	add("slots_cancel", all.Slots.Cancel, []any{at}, db.EndColumns...)
	add("broadcast_spread", db.Writing(all.Broadcast.Insert), []any{many, true}, append(db.KeyColumns[:5:5], db.Col("job_id", db.Bigint))...)
	add("queue", db.Writing(all.Queue.Insert), days, dispatch.QueuedColumns...)
	add("queue_recheck", db.Writing(all.Queue.Recheck), days, dispatch.QueuedColumns...)
	add("queue_inputs", db.Writing(all.Queue.Input), nil, dispatch.InputColumns...)
	add("broadcast_shards", db.Reading(all.Broadcast.Shards), nil, db.KeyColumns[:3]...)
	add("broadcast_keep_slot", db.Writing(all.Broadcast.KeepSlot), nil, db.SlotColumns...)
	add("broadcast_end", all.Broadcast.End, []any{at}, dispatch.BroadcastEndColumns...)
	add("broadcasts_done", db.Reading(all.Broadcast.Done), []any{many})
	add("broadcast_done", db.Reading(dispatch.DoneAttempt), []any{at, many, int16(1)})
	add("broadcasts_orphaned", db.Reading(all.Broadcast.Orphaned), []any{many})
	return shown
}

// example is a column of a batch of three rows.
func example(c db.Column, at int64) any {
	switch c.Type {
	case db.Text:
		return []string{"a", "b", "c"}
	case db.Boolean:
		return []bool{true, true, true}
	case db.Integer:
		return []int32{1, 1, 1}
	}
	return []int64{at, at, at}
}

// PostgresPlan returns the plan of a statement on PostgreSQL, without costs.
func PostgresPlan(ctx context.Context, s *Store, statement string, args []any) (string, error) {
	var plan strings.Builder
	_, err := s.db.Execute(ctx, db.Reading("EXPLAIN (COSTS OFF) "+statement), args, func(row db.Scanner) error {
		line, err := db.ScanText(row)
		plan.WriteString(line + "\n")
		return err
	})
	return plan.String(), err
}

// RemoveNotifications removes notifications too old for any node.
func RemoveNotifications(ctx context.Context, s *Store) error {
	return db.RemoveLeft(ctx, s.db.Write)
}

// Freeze starts a transaction with one statement and leaves it open, as a suspended node does. end rolls it back.
func Freeze(ctx context.Context, s *Store, statement string) (end func(), err error) {
	tx, err := s.db.Write.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	_, err = tx.ExecContext(ctx, statement)
	return func() { _ = tx.Rollback() }, err
}

// Contenders returns how many of the first and last runs of a job a decision about its slots reads.
func Contenders(ctx context.Context, s *Store, job int64, most int) (int, error) {
	runs := 0
	_, err := s.db.Execute(ctx, db.Reading(s.Hot.Slots.Edges), append([]any{int64(most)}, s.db.Batch([]int64{job})...),
		func(db.Scanner) error {
			runs++
			return nil
		})
	return runs, err
}

// Writers returns how many callers have waited for a connection that writes.
func Writers(s *Store) int64 { return s.db.Write.Stats().WaitCount }

// ExplainAuditLog returns the plan of reading a page of the audit log.
func ExplainAuditLog(ctx context.Context, s *Store, query access.AuditQuery) (string, error) {
	statement, args, err := definitions.AuditStatement(query)
	if err != nil {
		return "", err
	}
	return s.explain(ctx, statement, args)
}

// Walks are the limits of walks of lists.
type Walks struct {
	Jobs, Rows, Counted int
	Span                time.Duration
}

// SetWalks sets the limits.
func SetWalks(s *Store, w Walks) {
	s.Walks = reads.Walks{Jobs: w.Jobs, CountedJobs: w.Jobs, Rows: w.Rows, Counted: w.Counted, Span: w.Span}
}

// MostImported is the maximum number of rows that a part of an import writes.
const MostImported = definitions.MostImported

// ImportMeanwhile is ImportApp with between called after each part but the last. The node dies if that returns false.
func ImportMeanwhile(ctx context.Context, s *Store, export access.Export, change input.Change,
	between func() bool) error {
	i, err := s.BeginImport(ctx, export, change)
	for more := true; more && err == nil; {
		if more, err = i.Part(ctx); more && !between() {
			break
		}
	}
	return err
}
