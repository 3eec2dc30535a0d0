package definitions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Quotas are counted in app_usage. A counting change locks the row of its app until it commits, so the next one sees
// its count: two changes at a quota cannot both pass it.

// countJobs adds to the counts of jobs and triggers of an app.
func countJobs(ctx context.Context, t *dispatch.Tx, app string, jobs, triggers int) error {
	if jobs == 0 && triggers == 0 {
		return nil
	}
	// $1 app, $2 jobs, $3 triggers
	const count = `INSERT INTO app_usage (app_id, jobs, triggers) VALUES ($1, $2, $3)
		ON CONFLICT (app_id) DO UPDATE SET jobs = app_usage.jobs + excluded.jobs, triggers = app_usage.triggers + excluded.triggers`
	if err := t.Exec(ctx, count, run.AppID(app), jobs, triggers); err != nil {
		return fmt.Errorf("count the jobs of app %s: %w", app, err)
	}
	return nil
}

// usedBy returns how many jobs and triggers an app has.
func usedBy(ctx context.Context, q db.Querier, app string) (used target.Usage, err error) {
	// $1 app
	const counted = `SELECT jobs, triggers FROM app_usage WHERE app_id = $1`
	if _, err = db.ReadRow(ctx, q, []any{&used.Jobs, &used.Triggers}, counted, run.AppID(app)); err != nil {
		err = fmt.Errorf("read how many jobs app %s has: %w", app, err)
	}
	return used, err
}

const (
	// waitingKnown is how long requests for manual runs trust a count of waiting runs.
	waitingKnown = 5 * time.Second
	// waitingUsable is how long others trust it, while it is below the quota.
	waitingUsable = 15 * time.Second
)

// CountManual counts a request to run a job, with a payload or without, or to retry a run. It refuses one beyond the
// quota of the app, or one that would wait until an operator lifts the suspension of the app. It is called last, so
// that no keys of runs are locked after the row of the app.
func CountManual(ctx context.Context, t *dispatch.Tx, name string, payload []byte) error {
	app, err := FindApp(ctx, t, name, "")
	if err == nil {
		err = MayKeep(ctx, t, app, payload)
	}
	if err != nil {
		return err
	}
	if app.Importing {
		return importGoesOn(name)
	}
	if app.Bounds.Suspended {
		return &input.Problem{Code: input.CodeBoundSuspended, Message: app.SuspendedMessage() + ", so no node would claim the run"}
	}
	now, quotas := t.At.UnixMilli(), app.Bounds.Quotas
	// $1 app, $2 beginning of this minute
	const count = `INSERT INTO app_usage (app_id, minute, manual_runs) VALUES ($1, $2, 1)
		ON CONFLICT (app_id) DO UPDATE SET minute = excluded.minute, waiting_runs = app_usage.waiting_runs + 1,
			manual_runs = CASE WHEN app_usage.minute = excluded.minute THEN app_usage.manual_runs + 1 ELSE 1 END
		RETURNING manual_runs, waiting_runs, counted_at`
	var manual, waiting, counted int64
	_, err = db.ReadRow(ctx, t, []any{&manual, &waiting, &counted}, count, run.AppID(name), now-now%time.Minute.Milliseconds())
	if err != nil {
		return fmt.Errorf("count manual runs of app %s: %w", name, err)
	}
	if manual > int64(quotas.ManualRunsPerMinute) {
		return &input.Problem{Code: input.CodeBoundQuota, Message: fmt.Sprintf(
			"app %s has requested the %d manual runs that its bounds allow for each minute (quotas.manual_runs_per_minute); "+
				"try again in %d s, or ask an operator for more", name, quotas.ManualRunsPerMinute, 60-now/1000%60)}
	}
	if now-counted >= waitingKnown.Milliseconds() || now < counted {
		if waiting, err = countWaitingRuns(ctx, t, name, quotas.WaitingRuns); err != nil {
			return err
		}
		waiting++ // the requested run
	}
	if waiting > int64(quotas.WaitingRuns) {
		return target.WaitingRunsReached(name, waiting-1, quotas.WaitingRuns)
	}
	return nil
}

// WaitingRunsOf returns the number of waiting runs of an app: the last count plus the runs queued since, without
// subtracting runs that began since. So it counts again before it reports most or more, but not within some 10 us for
// each counted run: an app at a large quota must not cost the database more than a tenth of a connection.
func WaitingRunsOf(ctx context.Context, t *dispatch.Tx, app string, most int) (waiting int64, err error) {
	var counted int64
	// $1 app
	const known = `SELECT waiting_runs, counted_at FROM app_usage WHERE app_id = $1`
	found, err := db.ReadRow(ctx, t, []any{&waiting, &counted}, known, run.AppID(app))
	if err != nil {
		return 0, fmt.Errorf("read how many runs of app %s wait: %w", app, err)
	}
	again := min(waitingKnown, time.Duration(most)*10*time.Microsecond)
	age := t.At.UnixMilli() - counted
	if found && age >= 0 && age < waitingUsable.Milliseconds() && (waiting < int64(most) || age < again.Milliseconds()) {
		return waiting, nil
	}
	return countWaitingRuns(ctx, t, app, most)
}

// countWaitingRuns counts the waiting runs of an app, up to one above most, and stores the count.
func countWaitingRuns(ctx context.Context, t *dispatch.Tx, app string, most int) (waiting int64, err error) {
	// $1 app, $2 limit
	const count = `SELECT COUNT(*) FROM (SELECT 1 FROM jobs AS j JOIN live_runs AS r ON r.job_id = j.id
		WHERE j.app_id = $1 AND r.state IN ('queued', 'retrying', 'waiting_callback') LIMIT $2) AS waiting`
	waiting, _, err = db.First(ctx, t, db.ScanInt, count, run.AppID(app), most+1)
	if err == nil {
		// $1 app, $2 count, $3 now
		err = t.Exec(ctx, `INSERT INTO app_usage (app_id, waiting_runs, counted_at) VALUES ($1, $2, $3)
			ON CONFLICT (app_id) DO UPDATE SET waiting_runs = excluded.waiting_runs, counted_at = excluded.counted_at`,
			run.AppID(app), waiting, t.At.UnixMilli())
	}
	if err != nil {
		return 0, fmt.Errorf("count the waiting runs of app %s: %w", app, err)
	}
	return waiting, nil
}

// WaitingRuns adds the places given by a node, and returns the number of waiting runs of each of these apps.
func (s *Store) WaitingRuns(ctx context.Context, given map[string]dispatcher.GivenPlaces, now time.Time) (map[string]int64, error) {
	waiting := map[string]int64{}
	err := dispatch.InParts(ctx, s.dispatch.OfStored, db.SortedKeys(given), func(apps []string) error {
		return s.dispatch.Change(ctx, input.Change{Now: now}, func(ctx context.Context, t *dispatch.Tx) (err error) {
			for _, app := range apps {
				if err = AddWaiting(ctx, t, app, given[app].Given); err == nil {
					waiting[app], err = WaitingRunsOf(ctx, t, app, given[app].Most)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}, func(app string, why error) error {
		return s.dispatch.SetAppAside(ctx, dispatcher.WorkUsage, app, why, now)
	})
	return waiting, err
}

// AddWaiting adds to the count of waiting runs of an app.
func AddWaiting(ctx context.Context, t *dispatch.Tx, app string, runs int64) error {
	if runs == 0 {
		return nil
	}
	// $1 app, $2 runs
	const add = `INSERT INTO app_usage (app_id, waiting_runs) VALUES ($1, $2)
		ON CONFLICT (app_id) DO UPDATE SET waiting_runs = app_usage.waiting_runs + excluded.waiting_runs`
	if err := t.Exec(ctx, add, run.AppID(app), runs); err != nil {
		return fmt.Errorf("count the waiting runs of app %s: %w", app, err)
	}
	return nil
}

// MayKeep refuses the payload of a run if its app has no room for it.
func MayKeep(ctx context.Context, t *dispatch.Tx, app access.App, payload []byte) error {
	if len(payload) == 0 {
		return nil
	}
	kept, err := BytesKept(ctx, t, app.Name, db.Day(t.At.UnixMilli()))
	if err == nil && kept+int64(len(payload)) > app.Bounds.Quotas.BytesKept {
		return &input.Problem{Code: input.CodeBoundQuota,
			Message: target.BytesKeptReached(app.Name, app.Bounds.Quotas.BytesKept)}
	}
	return err
}

// KeepBytes adds bytes of responses, by app, to the bytes kept, and returns the bytes that each app keeps. It also
// deletes counts older than the longest retention.
func (s *Store) KeepBytes(ctx context.Context, added map[string]int64, now time.Time) (kept map[string]int64, err error) {
	kept = map[string]int64{}
	err = dispatch.InParts(ctx, s.dispatch.OfStored, db.SortedKeys(added),
		func(apps []string) error { return s.keepBytes(ctx, added, apps, kept, now) },
		func(app string, why error) error {
			return s.dispatch.SetAppAside(ctx, dispatcher.WorkUsage, app, why, now)
		})
	return kept, err
}

// keepBytes is KeepBytes for some apps, in one transaction.
func (s *Store) keepBytes(ctx context.Context, added map[string]int64, apps []string, kept map[string]int64, now time.Time) error {
	return s.dispatch.Change(ctx, input.Change{Now: now}, func(ctx context.Context, t *dispatch.Tx) (err error) {
		today := db.Day(t.At.UnixMilli())
		for _, app := range apps {
			// $1 app, $2 day, $3 bytes
			const add = `INSERT INTO app_bytes (app_id, day, bytes) VALUES ($1, $2, $3)
				ON CONFLICT (app_id, day) DO UPDATE SET bytes = app_bytes.bytes + excluded.bytes`
			if added[app] > 0 {
				if err := t.Exec(ctx, add, run.AppID(app), today, added[app]); err != nil {
					return fmt.Errorf("count the bytes of app %s: %w", app, err)
				}
			}
			// $1 app, $2 day
			const forget = `DELETE FROM app_bytes WHERE app_id = $1 AND day < $2`
			if err := t.Exec(ctx, forget, run.AppID(app), today-input.MaxRetention.Milliseconds()); err != nil {
				return fmt.Errorf("forget old bytes of app %s: %w", app, err)
			}
			if kept[app], err = BytesKept(ctx, t, app, today); err != nil {
				return err
			}
		}
		return nil
	})
}

// BytesKept returns the bytes of responses and inputs that an app keeps, by its retention.
func BytesKept(ctx context.Context, q db.Querier, app string, today int64) (int64, error) {
	// $1 app, $2 today
	const sum = `SELECT CAST(COALESCE(SUM(b.bytes), 0) AS BIGINT) FROM app_bytes AS b JOIN apps AS a ON a.id = b.app_id
		WHERE b.app_id = $1 AND b.day >= $2 - a.retention`
	kept, _, err := db.First(ctx, q, db.ScanInt, sum, run.AppID(app), today)
	if err != nil {
		err = fmt.Errorf("sum the bytes of app %s: %w", app, err)
	}
	return kept, err
}

func (s *Store) usage(ctx context.Context, q db.Querier, app string) (target.Usage, error) {
	used, err := usedBy(ctx, q, app)
	if err != nil {
		return used, err
	}
	now, err := s.db.Now(ctx, q)
	if err == nil {
		used.BytesKept, err = BytesKept(ctx, q, app, db.Day(now.UnixMilli()))
	}
	return used, err
}

// broken returns the jobs and alerts of an app that violate its new bounds; nil: none do, or the bounds are unchanged.
func (s *Store) broken(ctx context.Context, t *dispatch.Tx, app string, before, next target.Bounds) (*access.Breaks, error) {
	next = next.WithDefaults(app)
	if reflect.DeepEqual(before.WithDefaults(app), next) {
		return nil, nil
	}
	// $1 id
	longer, _, err := db.First(ctx, t, db.ScanText, `SELECT longer_names FROM apps WHERE id = $1`, run.AppID(app))
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(next.WithoutDefaults(app))
	if err != nil {
		return nil, err
	}
	bounds, err := ReadBounds(app, string(encoded), longer)
	if err != nil {
		return nil, err
	}
	// $1 app, $2 last name of the page before, $3 limit
	list := `SELECT ` + JobColumns + ` FROM jobs AS j JOIN apps AS a ON a.id = j.app_id
		WHERE j.app_id = $1 AND j.name > $2 AND j.deleted_at IS NULL AND j.part_of = 0 ORDER BY j.name LIMIT $3`
	const page = 500
	var breaks access.Breaks
	groups := groupsOfJobs{}
	for after, more := "", true; more; {
		rows, err := db.Collect(ctx, t, ScanJob, list, run.AppID(app), after, page)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			after = row.Name
			if row.Err != nil {
				continue
			}
			var problems input.Problems
			problems.AddError("", row.Job.CheckBounds(bounds))
			group, err := groups.of(ctx, t, row.Job)
			if err != nil {
				return nil, err
			}
			problems.AddError("", bounds.CheckGroupOfJob(group))
			breaks.Add(row.Name, problems)
		}
		more = len(rows) == page
	}
	alerts, err := allAlerts(ctx, t, app, db.EvenUnreadable(ScanAlert(app), func(*alert.Alert, error) {}))
	if err != nil {
		return nil, err
	}
	for _, one := range alerts { // an unreadable alert has no destination
		breaks.AddAlert(one, *bounds)
	}
	if breaks.None() {
		return nil, nil
	}
	return &breaks, nil
}

// groupsOfJobs are the endpoint groups of an app read so far, by name.
type groupsOfJobs map[string]target.EndpointGroup

// of returns the group that a job calls; an empty one if it calls none.
func (g groupsOfJobs) of(ctx context.Context, q db.Querier, job dispatcher.Job) (group target.EndpointGroup, err error) {
	name := job.Target.GroupName()
	if name == "" {
		return group, nil
	}
	group, known := g[name]
	if !known {
		if group, _, err = readGroup(ctx, q, job.App, name, ""); errors.Is(err, dispatcher.ErrNotFound) {
			err = nil // its attempts fail for that reason, as at an unreadable group
		}
		g[name] = group
	}
	return group, err
}

// reserveNames updates the longer names of an app that was created or deleted, and of the apps whose names begin its
// name: the variables of secrets belong to the longest name. Nodes read those apps again. apps are all current apps.
func reserveNames(ctx context.Context, t *dispatch.Tx, name string, apps []string) error {
	for _, app := range apps {
		if app != name && !longerName(app, name) {
			continue
		}
		var longer []string
		for _, other := range apps {
			if longerName(app, other) {
				longer = append(longer, input.FoldName(other))
			}
		}
		slices.Sort(longer)
		// $1 id, $2 names
		const write = `UPDATE apps SET longer_names = $2 WHERE id = $1`
		if err := t.Exec(ctx, write, run.AppID(app), strings.Join(longer, ",")); err != nil {
			return err
		}
		t.Notify(dispatcher.Notification{App: app})
	}
	return nil
}

// longerName reports whether variables for app other begin like those for app.
func longerName(app, other string) bool {
	return strings.HasPrefix(input.FoldName(other), input.FoldName(app)+"_")
}

// appNames returns the names of all apps. In a transaction it locks the row of the installation, so that changes that
// create or delete apps wait for each other.
func appNames(ctx context.Context, from Source) ([]string, error) {
	if from.tx != nil {
		if _, err := db.Collect(ctx, from, db.ScanText, `SELECT id FROM installation`+from.Lock); err != nil {
			return nil, err
		}
	}
	return db.Collect(ctx, from, db.ScanText, `SELECT name FROM apps WHERE deleted_at IS NULL`)
}
