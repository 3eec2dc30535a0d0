package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// The apps. Both databases have the first two; the others make the old database old and full.
const (
	healthy   = "healthy"   // fires each second; its lateness is what users notice
	probe     = "probe"     // measures costs
	neighbour = "neighbour" // works, on the host of the broken one
	broken    = "broken"    // every response is 503
	hanging   = "hanging"   // every target hangs
	churning  = "churning"  // fires during the snapshot, before the measurements
	idle      = "idle"      // fires tomorrow at the earliest, and has most of the history
	brief     = "brief"     // the same, but keeps its history for a shorter time
	disabled  = "disabled"  // overdue
	labelled  = "labelled"  // jobs that require labels
	gone      = "gone"      // its jobs were deleted
	retired   = "retired"   // deleted itself, and once kept its history for ten years
)

// Sizes that do not depend on the options.
const (
	perJob        = 10     // triggers of most jobs
	churnTriggers = 10_000 // at most
	hangingJobs   = 400
	brokenJobs    = 20
	neighbourJobs = 50
	beat          = 10 * time.Second // interval of neighbours that do not fire each second
)

// probes returns the number of triggers for the costs: so many that no batch waits for triggers.
func (o options) probes() int {
	if o.short {
		return 500
	}
	return 2_000
}

// bySoak is the actor of changes.
func bySoak() input.Change { return input.Change{Actor: "soak", Operator: true} }

// boundless are bounds that no app of the soak reaches.
func boundless() *target.Bounds {
	return &target.Bounds{Quotas: target.Quotas{
		Jobs: 1_000_000, Triggers: 10_000_000, WaitingRuns: 10_000_000, ChainRuns: 1_000_000,
		ManualRunsPerMinute: 1_000_000, BytesKept: 10 << 40,
		Retention: input.Duration(input.MaxRetention),
	}}
}

// far is the first due time of triggers until something moves them.
func far() time.Time { return time.Now().Add(24 * time.Hour).UTC().Truncate(time.Second) }

// declareBoth declares the apps of both databases.
func (w *world) declareBoth(ctx context.Context) error {
	for _, d := range w.both() {
		if err := d.declare(ctx, access.App{Name: healthy}, jobsOf(healthy, w.rate, w.targets.working, time.Second)); err != nil {
			return err
		}
		if err := d.declare(ctx, access.App{Name: probe}, jobsOf(probe, w.probes(), w.targets.working, time.Second)); err != nil {
			return err
		}
	}
	return nil
}

// declare puts an app and its jobs, like users.
func (d *database) declare(ctx context.Context, app access.App, jobs []dispatcher.Job) (err error) {
	s, err := store.Open(ctx, d.url, store.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	app.Enabled = true
	app.Bounds = boundless()
	if _, _, err := s.PutApp(ctx, app, bySoak()); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for _, job := range jobs {
		group.Go(func() error {
			_, _, err := s.PutJob(ctx, job, bySoak())
			return err
		})
	}
	return group.Wait()
}

// jobsOf returns jobs with so many triggers, which fire at an interval one after the other.
func jobsOf(app string, triggers int, url string, every time.Duration) (jobs []dispatcher.Job) {
	first := far()
	for i := range triggers {
		if i%perJob == 0 {
			jobs = append(jobs, newJob(app, len(jobs), url))
		}
		start := first.Add(every * time.Duration(i) / time.Duration(triggers))
		jobs[len(jobs)-1].Triggers[fmt.Sprintf("t%d", i)] = newTrigger(every, start)
	}
	return jobs
}

// singles returns jobs with one trigger each.
func singles(app string, jobs int, url string, every time.Duration, change func(*dispatcher.Job)) []dispatcher.Job {
	first := far()
	all := make([]dispatcher.Job, jobs)
	for i := range all {
		all[i] = newJob(app, i, url)
		all[i].Triggers["t0"] = newTrigger(every, first.Add(every*time.Duration(i)/time.Duration(jobs)))
		change(&all[i])
	}
	return all
}

func newJob(app string, number int, url string) dispatcher.Job {
	job := dispatcher.Job{App: app, Name: fmt.Sprintf("job-%d", number),
		JobSpec: dispatcher.JobSpec{Triggers: map[string]dispatcher.Trigger{}}}
	job.SetDefaults()
	hook := &target.Webhook{}
	hook.SetDefaults()
	hook.URL = url
	job.Target.Webhook = hook
	return job
}

// newTrigger fires at an interval, starting at an instant. Fires run however late they are:
// misfires would hide the lateness.
func newTrigger(every time.Duration, start time.Time) dispatcher.Trigger {
	var t dispatcher.Trigger
	t.SetDefaults()
	t.Expression, t.StartAt = fmt.Sprintf("rate(%ds)", int(every/time.Second)), &start
	t.MisfireAfter = input.Duration(input.MaxDuration)
	return t
}

// begin makes all triggers of a turn start long ago, so that only their next fires must be set.
func (d *database) begin(ctx context.Context) error {
	// $1 apps, $2 what every interval divides, milliseconds
	const begin = `UPDATE triggers SET start_at = start_at - $2, anchor_at = anchor_at - $2 WHERE app_id = ANY($1)`
	everySecond, everyBeat := firing()
	return d.execute(ctx, begin, append(everySecond, everyBeat...), (7 * dayLength).Milliseconds())
}

// firing returns the ids of the apps that fire in a turn, by the interval of their triggers.
func firing() (everySecond, everyBeat []int64) {
	return []int64{run.AppID(healthy), run.AppID(broken)}, []int64{run.AppID(neighbour), run.AppID(hanging)}
}

// setDue moves the next fires of all apps of a turn, so that none is left over from the previous turn.
func (w *world) setDue(ctx context.Context, d *database) error {
	// $1 apps, $2 when the first is due at the earliest, $3 the interval, milliseconds
	const move = `UPDATE trigger_clock SET
			next_fire_time = next_fire_time + moved, due_at = due_at + moved
		FROM (SELECT id AS of, CAST(ceil(($2 - next_fire_time) / CAST($3 AS float8)) AS bigint) * $3 AS moved FROM trigger_clock
			WHERE app_id = ANY($1) AND next_fire_time IS NOT NULL) AS m
		WHERE id = of`
	soon := time.Now().Add(2 * time.Second).UnixMilli()
	everySecond, everyBeat := firing()
	return errors.Join(d.execute(ctx, move, everySecond, soon, time.Second.Milliseconds()),
		d.execute(ctx, move, everyBeat, soon, beat.Milliseconds()))
}

// setDueOnly moves the next fires of the healthy app to a time, and those of its neighbours out of the way,
// so that a poll finds the same number in both databases. It returns the earliest due time.
func (w *world) setDueOnly(ctx context.Context, d *database) (floor time.Time, err error) {
	floor = time.Now().Truncate(time.Second)
	// $1 app, $2 when
	const set = `UPDATE trigger_clock SET next_fire_time = $2, due_at = $2 WHERE app_id = $1 AND next_fire_time IS NOT NULL`
	for _, app := range []string{healthy, neighbour, broken, hanging} {
		due := floor
		if app != healthy {
			due = floor.Add(dayLength)
		}
		if err := d.execute(ctx, set, run.AppID(app), due.UnixMilli()); err != nil {
			return floor, err
		}
	}
	return floor, nil
}

// servedLabels are the labels of one node of a fleet.
func servedLabels() input.Labels { return input.Labels{"disk": "ssd"} }
