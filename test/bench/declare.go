package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// declaration describes jobs with triggers, as users would declare them.
type declaration struct {
	app      string
	triggers int
	perJob   int // triggers per job
	start    time.Time
	unsigned bool // requests carry no signatures
	// target and schedule return those of a job and a trigger by number; the first fires are after start.
	target   func(job int) target.Target
	schedule func(trigger int, start time.Time) dispatcher.Schedule
}

var byBench = input.Change{Actor: "bench", Operator: true}

// boundless are bounds that no benchmark reaches.
var boundless = target.Bounds{Secrets: []string{"file:" + secretFile}, Quotas: target.Quotas{
	Jobs: 1_000_000, Triggers: 10_000_000, WaitingRuns: 10_000_000, ChainRuns: 1_000_000,
	ManualRunsPerMinute: 1_000_000, BytesKept: 10 << 40,
}}

// declare creates the app and its jobs.
func declare(ctx context.Context, database string, d declaration) (err error) {
	s, err := store.Open(ctx, database, store.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	if _, _, err := s.PutApp(ctx, access.App{Name: d.app, AppSpec: access.AppSpec{Enabled: true, Bounds: &boundless}}, byBench); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for first := 0; first < d.triggers; first += d.perJob {
		group.Go(func() error {
			_, _, err := s.PutJob(ctx, d.job(first), byBench)
			return err
		})
	}
	return group.Wait()
}

// job returns the job whose first trigger has that number.
func (d declaration) job(first int) dispatcher.Job {
	job := dispatcher.Job{
		App: d.app, Name: fmt.Sprintf("job-%d", first/d.perJob),
		JobSpec: dispatcher.JobSpec{Enabled: true, Payload: payload, Target: d.target(first / d.perJob),
			Triggers: make(map[string]dispatcher.Trigger, d.perJob)},
	}
	if d.unsigned {
		job.Target.Webhook.Signing = nil
	}
	for i := first; i < min(first+d.perJob, d.triggers); i++ {
		t := dispatcher.Trigger{TriggerSpec: dispatcher.TriggerSpec{Schedule: d.schedule(i, d.start)}}
		t.SetDefaults()
		t.MisfireAfter = input.Duration(input.MaxDuration) // late fires still run
		job.Triggers[fmt.Sprintf("t%d", i)] = t
	}
	return job
}

// everySecond fires each second, starting at from.
func everySecond(_ int, from time.Time) dispatcher.Schedule {
	return dispatcher.Schedule{Expression: "rate(1s)", StartAt: &from}
}

// to returns one target for all jobs.
func to(url string) func(int) target.Target {
	return func(int) target.Target { return webhookTo(url) }
}

// nextSecond returns the next whole second at least that far ahead.
func nextSecond(ahead time.Duration) time.Time {
	return time.Now().Add(ahead + time.Second).UTC().Truncate(time.Second)
}
