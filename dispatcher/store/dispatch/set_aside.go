package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/backoff"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/series"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// Work on the rows of several jobs is done in batches. One row that breaks its statement, such as a number beyond the
// column or truncated JSON, must not block the others. So each batch goes through InParts: if stored data makes it
// fail, it is halved until the bad rows are alone, and these are set aside with the reason. Such rows stay in
// set_aside, by the work that failed, until they succeed; attention, metrics and the log show them.
//
// A run that is set aside waits under a special node, -3, where no search for runs reads it. For other rows each node
// remembers which to leave out, so that a batch without bad rows costs no query. Triggers are quarantined instead.

// asideNode is the node of runs that are set aside.
const asideNode = -3

// mostProblem bounds the stored text of an error, in bytes.
const mostProblem = 1024

// AsidePauses are the pauses before a row that is set aside is tried again.
var AsidePauses = backoff.Pauses{First: 10 * time.Second, Most: time.Hour}

// asideGrace is the time after which a row that was tried again, and was not set aside again, counts as done. Within it
// each kind of work has run.
const asideGrace = 15 * time.Minute

// AsideSeen is how long after its next try a row other than a run still counts as set aside: by then some node has
// tried it.
const AsideSeen = time.Minute

// OfStored reports whether an error is caused by stored data, and not by the database or the call.
func (s *Store) OfStored(ctx context.Context, err error) bool {
	switch {
	case err == nil, ctx.Err() != nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false
	}
	return !s.db.Transient(err) && !db.Unreachable(err) && s.db.OfData(err)
}

// judgeError is Store.OfStored.
type judgeError func(context.Context, error) bool

// InParts calls do with rows. If stored data makes it fail, it calls do with each half, and so on, until the failing
// rows are alone, and passes these to alone. It ends with the first other error. A panic is an error of the rows.
func InParts[T any](ctx context.Context, ofStored judgeError, rows []T, do func([]T) error, alone func(T, error) error) error {
	if len(rows) == 0 {
		return nil
	}
	err := dispatcher.WithoutPanic(func() error { return do(rows) })
	switch half := len(rows) / 2; {
	case !ofStored(ctx, err):
		return err
	case half == 0:
		return alone(rows[0], err)
	default:
		if err := InParts(ctx, ofStored, rows[:half], do, alone); err != nil {
			return err
		}
		return InParts(ctx, ofStored, rows[half:], do, alone)
	}
}

// OrAside calls do, which works on one row, and passes stored-data errors to aside.
func (s *Store) OrAside(ctx context.Context, do func() error, aside func(why error) error) error {
	err := dispatcher.WithoutPanic(do)
	if s.OfStored(ctx, err) {
		return aside(err)
	}
	return err
}

// inPortions calls do with most, the number of rows to take from the beginning of an order. If stored data makes it
// fail, do gets fewer, until the first row fails alone; then alone takes it out of the order. It ends when do found
// fewer rows than it might take, or has had most.
func inPortions(ctx context.Context, ofStored judgeError, most int, do func(limit int) (int, error),
	alone func(why error) (bool, error),
) (int, error) {
	done := 0
	for limit := most; done < most; {
		n := 0
		err := dispatcher.WithoutPanic(func() (err error) {
			n, err = do(limit)
			return err
		})
		done += n
		switch {
		case err == nil && n < limit:
			return done, nil
		case err == nil:
			limit = min(2*limit, most)
		case !ofStored(ctx, err):
			return done, err
		case limit > 1:
			limit /= 2
		default:
			if out, wrong := alone(err); wrong != nil || !out {
				return done, cmp.Or(wrong, err)
			}
			done++
		}
	}
	return done, nil
}

// AsideRow is a row to set aside.
type AsideRow struct {
	Work dispatcher.Work
	// Item is the readable key of the row within its work. For a run it is the id.
	Item     string
	App, Job int64 // ids; 0: none
	key      run.Key
	node     int64     // of the run: its node before
	state    run.State // of the run: its state before
}

// Asides is what this process knows about rows that are set aside.
type Asides struct {
	log   *slog.Logger
	total *prometheus.CounterVec
	apps  *series.Apps[map[dispatcher.Work]prometheus.Counter]
	mu    sync.Mutex
	until map[dispatcher.Work]map[string]time.Time
}

func newAsides(log *slog.Logger) *Asides {
	a := &Asides{log: log, until: map[dispatcher.Work]map[string]time.Time{}, total: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "carillon_set_aside_total",
		Help: "How often this node set aside a row that made its batch fail, by app and work.",
	}, []string{"app", "work"})}
	a.apps = series.New(func(app string) map[dispatcher.Work]prometheus.Counter {
		all := map[dispatcher.Work]prometheus.Counter{}
		for _, work := range dispatcher.Works {
			all[work] = a.total.WithLabelValues(app, string(work))
		}
		return all
	})
	return a
}

// remember keeps until when a row is left out.
func (a *Asides) remember(work dispatcher.Work, item string, until time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.until[work] == nil {
		a.until[work] = map[string]time.Time{}
	}
	a.until[work][item] = until
}

// Count returns how many rows of a kind of work are left out.
func (a *Asides) Count(work dispatcher.Work) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.until[work])
}

// leaves reports whether a row is left out now.
func (a *Asides) leaves(work dispatcher.Work, item string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	until, known := a.until[work][item]
	if known && !now.Before(until) {
		delete(a.until[work], item)
		return false
	}
	return known
}

// prune forgets rows that were to be tried again long ago: they were deleted or succeeded.
func (a *Asides) prune(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, rows := range a.until {
		maps.DeleteFunc(rows, func(_ string, until time.Time) bool { return until.Before(now.Add(-asideGrace)) })
	}
}

// Report logs and counts a row that was set aside.
func (a *Asides) Report(ctx context.Context, row dispatcher.SetAside) {
	a.apps.Of(row.App)[row.Work].Inc()
	a.log.ErrorContext(ctx, "row set aside; the rest of its batch goes on", "work", string(row.Work), "app", row.App, "job", row.Job,
		"run", row.Run, "item", row.Item, "tries", row.Tries, "try_at", row.TryAt, "err", row.Problem)
}

// JobItem names a job that is set aside.
func JobItem(id int64) string { return "job " + strconv.FormatInt(id, 10) }

// WithoutAsides returns the rows that are not left out.
func WithoutAsides[T any](a *Asides, work dispatcher.Work, rows []T, item func(T) string, now time.Time) []T {
	if a.Count(work) == 0 {
		return rows
	}
	var rest []T
	for _, row := range rows {
		if !a.leaves(work, item(row), now) {
			rest = append(rest, row)
		}
	}
	return rest
}

// SetAsideRows selects the rows set aside at a time, the oldest first. and is a condition on them, empty or beginning
// with AND. A row that was tried again and did not fail is left out.
func SetAsideRows(now time.Time, and string) string {
	since := strconv.FormatInt(now.Add(-AsideSeen).UnixMilli(), 10)
	return `SELECT x.work, coalesce(a.name, ''), coalesce(j.name, ''), x.item, x.kind, x.problem, x.tries, x.try_at
		FROM set_aside AS x LEFT JOIN apps AS a ON a.id = x.app_id LEFT JOIN jobs AS j ON j.id = x.job_id
		WHERE (x.kind = 0 AND x.try_at > ` + since + ` OR x.kind <> 0 AND EXISTS (SELECT 1 FROM live_runs AS r
			WHERE r.scheduled_at = x.scheduled_at AND r.trigger_id = x.trigger_id AND r.kind = x.kind AND r.node = -3))` + and + `
		ORDER BY x.since, x.work, x.item`
}

// ScanSetAside reads a row of SetAsideRows.
func ScanSetAside(row db.Scanner) (one dispatcher.SetAside, err error) {
	var kind int
	err = row.Scan(&one.Work, &one.App, &one.Job, &one.Item, &kind, &one.Problem, &one.Tries, db.InstantColumn(&one.TryAt))
	if kind != 0 {
		one.Run, one.Item = one.Item, ""
	}
	return one, err
}

// SetJobAside is SetAside for a job.
func (s *Store) SetJobAside(ctx context.Context, work dispatcher.Work, job int64, why error, now time.Time) error {
	return s.SetAside(ctx, AsideRow{Work: work, Item: JobItem(job), Job: job}, why, now)
}

// SetAppAside is SetAside for an app.
func (s *Store) SetAppAside(ctx context.Context, work dispatcher.Work, app string, why error, now time.Time) error {
	return s.SetAside(ctx, AsideRow{Work: work, Item: AppItem(app), App: run.AppID(app)}, why, now)
}

// AppItem names an app that is set aside.
func AppItem(name string) string { return "app " + name }

// ProblemOf returns the stored text of an error.
func ProblemOf(why error) string {
	text := Storable(why.Error())
	return strings.ToValidUTF8(text[:min(len(text), mostProblem)], "")
}

// SetAside sets aside a row that failed alone. Even if that fails, this process leaves the row out.
func (s *Store) SetAside(ctx context.Context, row AsideRow, why error, now time.Time) error {
	shown := dispatcher.SetAside{Work: row.Work, Item: row.Item, Problem: ProblemOf(why)}
	if row.key.Kind != "" {
		shown.Run, shown.Item = row.Item, ""
	}
	fresh := true
	err := s.Change(ctx, input.Change{Now: now}, func(ctx context.Context, t *Tx) (err error) {
		fresh, err = setAside(ctx, t, row, &shown)
		return err
	})
	switch {
	case err == nil && !fresh:
	case err == nil, s.OfStored(ctx, err):
		if err != nil {
			notKept(&shown, now, err)
		}
		s.Asides.Report(ctx, shown)
	default:
		return fmt.Errorf("set %s aside: %w", row.Item, err)
	}
	if row.key.Kind == "" || err != nil {
		s.Asides.remember(row.Work, row.Item, shown.TryAt)
	}
	return nil
}

// notKept completes the description of a row that cannot even be set aside, and that this process leaves out.
func notKept(shown *dispatcher.SetAside, now time.Time, why error) {
	shown.Tries, shown.TryAt = 1, cmp.Or(now, db.WallClock()).Add(AsidePauses.Most)
	shown.Problem += "; and it cannot be set aside: " + ProblemOf(why)
}

// setAside writes a row to set_aside, and completes its description. fresh is false if another node just did so.
func setAside(ctx context.Context, t *Tx, row AsideRow, shown *dispatcher.SetAside) (fresh bool, err error) {
	// $1 work, $2 item
	const known = `SELECT tries, try_at FROM set_aside WHERE work = $1 AND item = $2`
	var tries int
	var tryAt int64
	found, err := db.ReadRow(ctx, t, []any{&tries, &tryAt}, known+t.ForUpdate(), row.Work, row.Item)
	if err != nil {
		return false, err
	}
	if found && tryAt > t.At.UnixMilli() && row.key.Kind == "" {
		shown.Tries, shown.TryAt = tries, db.Instant(tryAt)
		return false, nil
	}
	shown.Tries = tries + 1
	shown.TryAt = t.At.Add(AsidePauses.After(shown.Tries))
	// $1 job, $2 app
	const names = `SELECT a.name, COALESCE(j.name, ''), a.id FROM apps AS a LEFT JOIN jobs AS j ON j.app_id = a.id AND j.id = $1
		WHERE a.id = $2 OR j.id = $1`
	if _, err = db.ReadRow(ctx, t, []any{&shown.App, &shown.Job, &row.App}, names, row.Job, row.App); err != nil {
		return false, err
	}
	// $1 work, $2 item, $3 app, $4 job, $5 to $7 key of the run, $8 and $9 where and what it was, $10 tries, $11 since, $12 when it is
	// tried again, $13 problem
	const note = `INSERT INTO set_aside (work, item, app_id, job_id, scheduled_at, trigger_id, kind, node, state, tries, since, try_at,
			problem)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
		ON CONFLICT (work, item) DO UPDATE SET node = excluded.node, state = excluded.state, tries = excluded.tries,
			try_at = excluded.try_at, problem = excluded.problem`
	err = t.Exec(ctx, note, row.Work, row.Item, row.App, row.Job, db.OrZero(row.key.ScheduledAt), row.key.TriggerID,
		row.key.Code(), row.node, row.state, shown.Tries, t.At.UnixMilli(), shown.TryAt.UnixMilli(), shown.Problem)
	return true, err
}

// Quarantine puts a trigger that cannot be evaluated into state error.
func (s *Store) Quarantine(ctx context.Context, triggerID, revision int64, reason string) error {
	return s.Change(ctx, input.Change{}, func(ctx context.Context, t *Tx) error {
		_, _, err := putInError(ctx, t, triggerID, revision, reason)
		return err
	})
}

// QuarantineAlone quarantines a trigger that failed alone in the work of a batch.
func (s *Store) QuarantineAlone(ctx context.Context, work dispatcher.Work, triggerID, revision int64, why error, now time.Time) error {
	item := "trigger " + strconv.FormatInt(triggerID, 10)
	shown := dispatcher.SetAside{Work: work, Item: item, Problem: ProblemOf(why)}
	done := false
	err := s.Change(ctx, input.Change{Now: now}, func(ctx context.Context, t *Tx) (err error) {
		if _, done, err = putInError(ctx, t, triggerID, revision, shown.Problem); err != nil || !done {
			return err
		}
		// $1 trigger
		const names = `SELECT a.name, j.name, t.name FROM triggers AS t JOIN jobs AS j ON j.id = t.job_id JOIN apps AS a ON a.id = t.app_id
			WHERE t.id = $1`
		_, err = db.ReadRow(ctx, t, []any{&shown.App, &shown.Job, &shown.Item}, names, triggerID)
		return err
	})
	switch {
	case s.OfStored(ctx, err):
		return s.SetAside(ctx, AsideRow{Work: work, Item: item}, errors.Join(why, err), now)
	case err != nil:
		return fmt.Errorf("quarantine trigger %d: %w", triggerID, errors.Join(why, err))
	case done:
		s.Asides.apps.Of(shown.App)[shown.Work].Inc()
		s.Asides.log.ErrorContext(ctx, "trigger quarantined; the rest of its batch goes on", "work", string(shown.Work), "app", shown.App,
			"job", shown.Job, "trigger", shown.Item, "err", shown.Problem)
	}
	return nil
}

// endedSo finds a run that ended with its latest attempt.
// $1 scheduled instant, $2 trigger, $3 kind, $4 job, $5 node, $6 attempt, $7 status
const endedSo = `SELECT 1 FROM runs WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3 AND job_id = $4 AND node = $5
	AND attempt = $6 AND http_status = $7 AND state IS NOT NULL`

// Disable puts the trigger of a run that ended this way into state error, and adds that to the audit log.
func (s *Store) Disable(ctx context.Context, ended dispatcher.Record, reason string, now time.Time) (done bool, err error) {
	err = s.Change(ctx, input.Change{Actor: "system", Now: now}, func(ctx context.Context, t *Tx) error {
		run := ended.Key
		_, done, err = db.First(ctx, t, db.ScanInt, endedSo, run.ScheduledAt.UnixMilli(), run.TriggerID, int64(run.Code()), ended.JobID,
			int64(ended.Node), ended.Attempt, ended.Outcome.HTTPStatus)
		if err != nil || !done {
			return err
		}
		var revision int64
		revision, done, err = putInError(ctx, t, run.TriggerID, ended.Revision, reason)
		if err != nil || !done {
			return err
		}
		var app, job, trigger string
		// $1 trigger
		const names = `SELECT a.name, j.name, t.name FROM triggers AS t JOIN jobs AS j ON j.id = t.job_id
			JOIN apps AS a ON a.id = t.app_id WHERE t.id = $1`
		if _, err = db.ReadRow(ctx, t, []any{&app, &job, &trigger}, names, run.TriggerID); err != nil {
			return err
		}
		return t.AuditChange(ctx, AuditEntry{Action: "disable", App: app, Subject: "job " + job + " trigger " + trigger, Revision: revision,
			After: map[string]string{"state": string(dispatcher.TriggerError), "error": reason}})
	})
	if err != nil {
		return false, fmt.Errorf("disable the trigger of run %s: %w", ended.Key, err)
	}
	return done, nil
}

// putInError puts a waiting trigger of a revision, and with it its job, into state error. The next fire time stays: a
// later change of the definition, or a resume, settles the fires due since. The job is locked first, as in all changes
// of it.
func putInError(ctx context.Context, t *Tx, triggerID, revision int64, reason string) (of int64, done bool, err error) {
	// $1 trigger
	job := `SELECT j.id FROM triggers AS t JOIN jobs AS j ON j.id = t.job_id WHERE t.id = $1` + db.LockOf(t.ForUpdate(), "j")
	jobID, found, err := db.First(ctx, t, db.ScanInt, job, triggerID)
	if err != nil || !found {
		return 0, false, err
	}
	// $1 trigger, $2 revision; 16 is offError
	const stop = `UPDATE trigger_clock SET state = 'error', off = off | 16
		WHERE id = $1 AND revision = $2 AND state = 'waiting' RETURNING revision`
	if of, done, err = db.First(ctx, t, db.ScanInt, stop, triggerID, revision); err != nil || !done {
		return 0, false, err
	}
	// $1 trigger, $2 reason
	const explain = `UPDATE triggers SET error = $2 WHERE id = $1`
	if err = t.Exec(ctx, explain, triggerID, Storable(reason)); err != nil {
		return 0, false, err
	}
	// $1 job
	const ofJob = `UPDATE jobs SET state = 'error', completed_at = NULL WHERE id = $1`
	err = t.Exec(ctx, ofJob, jobID)
	return of, err == nil, err
}
