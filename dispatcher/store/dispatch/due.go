package dispatch

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// dueColumns are a DueTrigger of trigger_clock AS t; -1 stands for NULL.
const dueColumns = `t.id, t.app_id, t.revision, t.calendar_revision, coalesce(t.prev_fire_time, -1), coalesce(t.next_fire_time, -1),
	coalesce(t.due_at, -1), t.misfire_after, coalesce(t.attempt_timeout, -1), t.node_labels`

// dueRow is the scan destination of dueColumns, reused for each row. A poll reads a row for every fire, and separate
// destinations would cost an allocation for each column.
type dueRow struct {
	trigger                                dispatcher.DueTrigger
	prev, next, due, misfireAfter, timeout int64
	labels                                 string
	refs                                   []any
}

func newDueRow() *dueRow {
	r := &dueRow{}
	t := &r.trigger
	r.refs = []any{&t.ID, &t.AppID, &t.Revision, &t.CalendarRevision, &r.prev, &r.next, &r.due, &r.misfireAfter, &r.timeout, &r.labels}
	return r
}

func (r *dueRow) scan(row db.Scanner) (dispatcher.DueTrigger, error) {
	err := row.Scan(r.refs...)
	t := r.trigger
	t.PrevFireTime, t.NextFireTime, t.DueAt = orNever(r.prev), orNever(r.next), orNever(r.due)
	t.MisfireAfter, t.NodeLabels = db.Millis(r.misfireAfter).Std(), input.ParseLabels(r.labels)
	if t.Timeout = target.DefaultTimeout.Std(); r.timeout >= 0 {
		t.Timeout = db.Millis(r.timeout).Std()
	}
	return t, err
}

// orNever returns the instant of a column of dueColumns.
func orNever(ms int64) time.Time {
	if ms < 0 {
		return time.Time{}
	}
	return db.Instant(ms)
}

// DueLists are the lists of a query of due triggers next to each other, all padded. Only DueOfJobs has jobs.
var (
	DueLists  = []db.Column{db.Col("app", db.Bigint), db.Col("labels", db.Text)}
	DueOfJobs = append(DueLists[:2:2], db.Col("job", db.Bigint))
)

// dueTriggers is one page of the window, by trigger_clock_due: it reads no entries of triggers that are off, and no
// rows of triggers outside the range of ids.
// $2 until, $3 due and $4 trigger of the last row, $5 limit, $6 first and $7 last id
const dueTriggers = ` SELECT ` + dueColumns + ` FROM trigger_clock AS t
	WHERE t.off = 0 AND t.due_at IS NOT NULL AND t.due_at <= $2 AND (t.due_at, t.id) > ($3, $4) AND t.id >= $6 AND t.id <= $7` + dueFilter

// dueTriggersOfJobs does the same for the triggers of some jobs, by triggers_job. The planner can only begin with
// these: the condition for triggers is one expression that needs the rows of both.
const dueTriggersOfJobs = `, d AS MATERIALIZED (SELECT g.id, b.yes, b.no FROM b JOIN triggers AS g ON g.job_id = b.job)
	SELECT ` + dueColumns + ` FROM d JOIN trigger_clock AS t ON t.id = d.id WHERE CASE WHEN t.off = 0 AND t.due_at <= $2
		AND (t.due_at, t.id) > ($3, $4) AND t.id >= $6 AND t.id <= $7` + dueFilter

const ofJobsEnd = ` THEN d.yes ELSE d.no END`

// dueFilter leaves out other apps and other sets of labels, and entries of an app that has just been disabled
// that are still in the index; see followApp.
// $8 number of apps, $9 number of sets of labels
const dueFilter = ` AND ($8 = 0 OR t.app_id IN (SELECT app FROM b))
	AND ($9 = 0 OR t.node_labels IN (SELECT labels FROM b))` + NotSwitchedOff

// NotSwitchedOff leaves out the triggers of disabled apps with clocks that do not all follow yet.
const NotSwitchedOff = ` AND t.app_id NOT IN (SELECT id FROM apps WHERE switched_to IS NOT NULL AND NOT enabled)`

// Adding the two columns might overflow, and the statement would fail for all.
const (
	onTime  = ` AND t.misfire_after >= (SELECT now FROM n) - t.due_at`
	tooLate = ` AND t.misfire_after < (SELECT now FROM n) - t.due_at`
)

const dueOrder = ` ORDER BY t.due_at, t.id LIMIT $5`

// dueStatements are the reads of due triggers. $1 now
type dueStatements struct {
	Window, Overdue, OfJobs, overdueOfJobs db.Statement
}

func dueStatementsOf(f db.Flavor) dueStatements {
	all, ofJobs := f.Rows(1, 10, "", DueLists...)+dueTriggers, f.Rows(1, 10, "", DueOfJobs...)+dueTriggersOfJobs
	return dueStatements{
		Window: db.Reading(all + onTime + dueOrder), Overdue: db.Reading(all + tooLate + dueOrder),
		OfJobs: db.Reading(ofJobs + onTime + ofJobsEnd + dueOrder), overdueOfJobs: db.Reading(ofJobs + tooLate + ofJobsEnd + dueOrder),
	}
}

func (d *dueStatements) Of(query dispatcher.DueQuery) db.Statement {
	switch {
	case len(query.JobIDs) > 0 && query.Overdue:
		return d.overdueOfJobs
	case len(query.JobIDs) > 0:
		return d.OfJobs
	case query.Overdue:
		return d.Overdue
	}
	return d.Window
}

// Due reads one page of the triggers that are due in the window, or overdue.
func (s *Store) Due(ctx context.Context, query dispatcher.DueQuery) ([]dispatcher.DueTrigger, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	var due []dispatcher.DueTrigger
	into := newDueRow()
	_, err := s.db.Execute(ctx, s.Hot.Due.Of(query), s.DueArgs(query), func(row db.Scanner) error {
		t, err := into.scan(row)
		due = append(due, t)
		return err
	})
	return due, err
}

// DueArgs are the parameters of dueStatements.
func (s *Store) DueArgs(query dispatcher.DueQuery) []any {
	// After the triggers due before From, and after the previous page.
	after, afterID := int64(-1), int64(0)
	if !query.From.IsZero() {
		after, afterID = query.From.UnixMilli()-1, math.MaxInt64
	}
	if at := query.AfterTime.UnixMilli(); !query.AfterTime.IsZero() && at > after {
		after, afterID = at, query.AfterID
	}
	last := int64(math.MaxInt64)
	if query.IDTo != 0 {
		last = query.IDTo - 1
	}
	lists := DueListsOf(query.Apps, query.LabelSets, query.JobIDs)
	return append([]any{db.OrZero(query.Now), query.Until.UnixMilli(), after, afterID, int64(query.Limit), query.IDFrom, last,
		int64(len(query.Apps)), int64(len(query.LabelSets))}, s.db.Batch(lists...)...)
}

// DueListsOf returns the columns of DueLists, or of DueOfJobs if there are jobs. Padding repeats a list's values or
// matches no rows.
func DueListsOf(apps, labels []string, jobs []int64) []any {
	rows := max(len(apps), len(labels), len(jobs))
	ids, sets := make([]int64, rows), make([]string, rows)
	for i, app := range apps {
		ids[i] = run.AppID(app)
	}
	for i := range sets {
		if len(labels) > 0 {
			sets[i] = labels[min(i, len(labels)-1)]
		}
	}
	if len(jobs) == 0 {
		return []any{ids, sets}
	}
	jobs = slices.Compact(slices.Sorted(slices.Values(jobs)))
	return []any{ids, sets, append(jobs, make([]int64, rows-len(jobs))...)}
}

// Unclaimed is a page of the clocks c of due triggers that satisfy a condition, by due_at and id: of those that nodes poll,
// and of those that require labels that no live node has. Each half reads an index of its own.
func Unclaimed(condition, limit string) string {
	half := func(off string) string {
		return `SELECT * FROM (SELECT c.due_at, c.id, c.next_fire_time, c.misfire_after, c.off FROM trigger_clock AS c
			WHERE c.off = ` + off + ` AND c.due_at IS NOT NULL` + condition + ` ORDER BY c.due_at, c.id LIMIT ` + limit + `) AS c`
	}
	return half("0") + ` UNION ALL ` + half("8") + ` ORDER BY due_at, id LIMIT ` + limit
}

// OverdueApps finds the apps of overdue triggers that a node may settle. The index has no entries of disabled apps
// and of labels that no node has.
// $2 number of apps, $3 the least due time
const OverdueApps = ` SELECT a.name FROM apps AS a WHERE a.enabled AND a.id IN (SELECT t.app_id FROM trigger_clock AS t
	WHERE t.off = 0 AND t.due_at IS NOT NULL AND t.due_at >= $3 AND t.due_at < (SELECT now FROM n)` + tooLate + `
		AND ($2 = 0 OR t.app_id IN (SELECT app FROM b)) AND (t.node_labels = '' OR t.node_labels IN (SELECT labels FROM b)))
	ORDER BY a.name`

// OverdueApps returns the apps that have overdue triggers for a node with these labels.
func (s *Store) OverdueApps(ctx context.Context, apps []string, labels input.Labels, from, now time.Time) ([]string, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	served, err := s.servedLabels(ctx, labels)
	if err != nil {
		return nil, fmt.Errorf("look for overdue triggers: %w", err)
	}
	least := int64(0)
	if !from.IsZero() {
		least = from.UnixMilli()
	}
	args := append([]any{db.OrZero(now), int64(len(apps)), least}, s.db.Batch(DueListsOf(apps, served, nil)...)...)
	return db.Collect(ctx, s.db.Read, db.ScanText, s.db.Rows(1, 4, "", DueLists...)+OverdueApps, args...)
}

// upcomingTriggers counts the rows that the window poll would read, up to a limit, by the same index.
// $1 until, $2 limit, $3 number of apps
const upcomingTriggers = ` SELECT count(*) FROM (SELECT 1 FROM trigger_clock AS t
	WHERE t.off = 0 AND t.due_at IS NOT NULL AND t.due_at <= $1 AND ($3 = 0 OR t.app_id IN (SELECT app FROM b))` + NotSwitchedOff + `
	LIMIT $2) AS u`

// Upcoming counts the triggers that are due by until.
func (s *Store) Upcoming(ctx context.Context, apps []string, until time.Time, limit int) (int, error) {
	query := s.db.Rows(0, 4, "", DueLists...) + upcomingTriggers
	args := append([]any{until.UnixMilli(), int64(limit), int64(len(apps))}, s.db.Batch(DueListsOf(apps, nil, nil)...)...)
	n, _, err := db.First(ctx, s.db.Read, db.ScanInt, query, args...)
	if err != nil {
		return 0, fmt.Errorf("count upcoming triggers: %w", err)
	}
	return int(n), nil
}

// awaitedCallbacks counts the runs that wait for a callback, up to a limit, by an index of only such runs.
// $1 limit, $2 number of apps
const awaitedCallbacks = ` SELECT count(*) FROM (SELECT 1 FROM live_runs AS r JOIN jobs AS j ON j.id = r.job_id
	WHERE r.state = 'waiting_callback' AND ($2 = 0 OR j.app_id IN (SELECT app FROM b)) LIMIT $1) AS u`

// AwaitedCallbacks counts the runs that wait for a callback.
func (s *Store) AwaitedCallbacks(ctx context.Context, apps []string, limit int) (int, error) {
	args := append([]any{int64(limit), int64(len(apps))}, s.db.Batch(DueListsOf(apps, nil, nil)...)...)
	n, _, err := db.First(ctx, s.db.Read, db.ScanInt, s.db.Rows(0, 3, "", DueLists...)+awaitedCallbacks, args...)
	if err != nil {
		return 0, fmt.Errorf("count runs that wait for a callback: %w", err)
	}
	return int(n), nil
}

// PendingEnd is the end of a run, or a decision about missed fires, with followers still to be queued.
type PendingEnd struct {
	Key        run.Key // for missed fires: without kind, with the first instant
	JobID      int64
	AppID      int64 // of the job
	EndedAt    time.Time
	StartedAt  *time.Time
	Attempt    int
	HTTPStatus int
	State      run.State // for missed fires: empty
	Class      run.Class
	Reason     string
	// How often following failed, why, and when it is tried again; 0: at once.
	Tries   int
	Problem string
	TryAt   int64
	// Judged means that alerts have evaluated it, and Group that its job calls a group.
	Judged, Group bool
	Salt          run.Salt // of the app
	// The current names of the job and the trigger. follows is 0 if the job is deleted.
	App, Job, Trigger string
	Follows           run.FollowMask
}

// Event returns the event of the job.
func (e *PendingEnd) Event() run.FollowEvent {
	switch e.State {
	case "":
		return run.OnMisfire
	case run.Succeeded:
		return run.OnSuccess
	}
	return run.OnFailure
}

// Run returns the id of the ended run; empty: fires were missed.
func (e *PendingEnd) Run() string {
	if e.Key.Kind == "" {
		return ""
	}
	return e.Key.String()
}

// Missed returns the id that the first missed fire would have as a run; empty: a run ended.
func (e *PendingEnd) Missed() string {
	if e.Key.Kind != "" {
		return ""
	}
	return run.Key{TriggerID: e.Key.TriggerID, ScheduledAt: e.Key.ScheduledAt, Kind: run.KindSchedule}.String()
}

// PendingEnds returns the pending ends chosen by a query of pending_ends alone.
func PendingEnds(chosen string) string {
	return `SELECT e.ended_at, e.trigger_id, e.scheduled_at, e.kind, e.job_id, e.app_id, e.attempt, e.started_at, e.http_status, e.state,
			e.class, e.error, e.tries, e.problem, e.try_at, e.judged, coalesce(j.target_group, '') <> '',
			coalesce(a.name, ''), a.salt, coalesce(j.name, ''), coalesce(t.name, ''),
			CASE WHEN j.deleted_at IS NULL THEN coalesce(j.follows, 0) ELSE 0 END
		FROM (` + chosen + `) AS e
		LEFT JOIN jobs AS j ON j.id = e.job_id LEFT JOIN apps AS a ON a.id = j.app_id LEFT JOIN triggers AS t ON t.id = e.trigger_id
		ORDER BY e.ended_at, e.trigger_id, e.scheduled_at, e.kind`
}

// ScanPendingEnd reads a row of PendingEnds.
func ScanPendingEnd(row db.Scanner) (e PendingEnd, err error) {
	var kind int
	err = row.Scan(db.InstantColumn(&e.EndedAt), &e.Key.TriggerID, db.InstantColumn(&e.Key.ScheduledAt), &kind, &e.JobID, &e.AppID, &e.Attempt,
		db.OptionalColumn(&e.StartedAt), &e.HTTPStatus, &e.State, &e.Class, &e.Reason, &e.Tries,
		&e.Problem, &e.TryAt, &e.Judged, &e.Group, &e.App, (*[]byte)(&e.Salt), &e.Job, &e.Trigger, &e.Follows)
	e.Key.Kind, _ = run.KindOfCode(byte(kind))
	return e, err
}

// KeyArgs are the parameters of oneEnd.
func (e *PendingEnd) KeyArgs() []any {
	return []any{e.EndedAt.UnixMilli(), e.Key.TriggerID, e.Key.ScheduledAt.UnixMilli(), int64(e.Key.Kind.Code())}
}

// SetAside returns the public description of an end that is set aside.
func (e *PendingEnd) SetAside() dispatcher.SetAside {
	return dispatcher.SetAside{Work: dispatcher.WorkFollow, App: e.App, Job: e.Job, Run: e.Run(), Problem: e.Problem, Tries: e.Tries,
		TryAt: db.Instant(e.TryAt)}
}

// InsertMisfires records the decisions of a change of a definition, and queues the runs that follow from them.
func InsertMisfires(ctx context.Context, t *Tx, missed []dispatcher.Misfire) error {
	if len(missed) == 0 {
		return nil
	}
	var from, to, trigger, job, count, decided []int64
	var decision, reason []string
	var catchUp []*int64
	var runs []dispatcher.Misfire
	for _, m := range missed {
		if m.Run != "" {
			runs = append(runs, m)
		}
		if m.Decision == dispatcher.DecisionFireAll {
			continue // its run explains it
		}
		from, to = append(from, m.From.UnixMilli()), append(to, m.To.UnixMilli())
		trigger, job = append(trigger, m.TriggerID), append(job, m.JobID)
		count, decided = append(count, int64(m.Count)), append(decided, m.DecidedAt.UnixMilli())
		decision, reason = append(decision, string(m.Decision)), append(reason, m.Reason)
		catchUp = append(catchUp, nil)
		if m.Run != "" {
			catchUp[len(catchUp)-1] = new(m.To.UnixMilli())
		}
	}
	if err := queueSettled(ctx, t, runs); err != nil || len(from) == 0 {
		return err
	}
	batch := t.Batch(from, to, trigger, job, count, decision, reason, decided, catchUp)
	// From $1 on: db.MisfireColumns
	insert := t.Rows(0, 1, "", db.MisfireColumns...) + ` INSERT INTO misfires (from_at, to_at, trigger_id, job_id, count, decision,
		reason, catch_up, node, decided_at)
		SELECT b.from_at, b.to_at, b.trigger_id, b.job_id, b.missed, b.decision, b.reason, b.run_at, 0, b.decided_at FROM b WHERE 1 = 1
		ON CONFLICT DO NOTHING`
	if err := t.Exec(ctx, insert, batch...); err != nil {
		return fmt.Errorf("insert %d misfires: %w", len(from), err)
	}
	// From $1 on: db.MisfireColumns
	follow := t.Rows(0, 1, "", db.MisfireColumns...) + ` INSERT INTO pending_ends (ended_at, trigger_id, scheduled_at, kind, job_id, app_id,
		attempt, http_status, state, class, error)
		SELECT b.decided_at, b.trigger_id, b.from_at, 0, b.job_id, j.app_id, 0, 0, '', '', '' FROM b
		JOIN jobs AS j ON j.id = b.job_id AND j.follows <> 0 WHERE (j.follows & 12) <> 0 ON CONFLICT DO NOTHING`
	if err := t.Exec(ctx, follow, batch...); err != nil {
		return fmt.Errorf("follow %d misfires: %w", len(from), err)
	}
	return NotifyEnds(ctx, t)
}

// queueSettled queues the runs of pending fires that a change of a definition settled. They wait as retries do: until
// they are due, and while a pause or a switch holds the job or the trigger.
func queueSettled(ctx context.Context, t *Tx, settled []dispatcher.Misfire) error {
	runs, due := make([]QueuedRun, 0, len(settled)), make(map[run.Key]int64, len(settled))
	for _, m := range settled {
		key, err := run.ParseKey(m.Run)
		if err != nil {
			return fmt.Errorf("run %s: %w", m.Run, err)
		}
		runs, due[key] = append(runs, QueuedRun{Key: key, JobID: m.JobID}), m.RunDueAt.UnixMilli()
	}
	queued, err := QueueRuns(ctx, t, runs)
	if err != nil || len(queued) == 0 {
		return err
	}
	k := db.NewKeys(len(queued))
	dueAt := make([]int64, 0, len(queued))
	for _, key := range queued {
		k.Add(key, 0, 0)
		dueAt = append(dueAt, due[key])
	}
	// From $1 on: db.SettledColumns
	wait := t.Rows(0, 1, "", db.SettledColumns...) + ` UPDATE live_runs AS r SET state = 'retrying', next_attempt_at = b.due,
		revision = (SELECT j.revision FROM jobs AS j WHERE j.id = r.job_id)
		FROM b WHERE r.scheduled_at = b.scheduled_at AND r.trigger_id = b.trigger_id AND r.kind = b.kind`
	if err := t.Exec(ctx, wait, t.Batch(k.At, k.Trigger, k.Kind, dueAt)...); err != nil {
		return fmt.Errorf("queue %d runs of pending fires: %w", len(queued), err)
	}
	return nil
}
