package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// job is a job that a run declares.
type job struct {
	app, name, path string
	once            bool // delivery at most once
	misfireAfter    string
	policy          string // for misfires
	concurrency     string
	expression      string
	timezone        string
	phase           time.Duration // of a rate
	twice           bool          // a second trigger fires between the fires of the first
	far             bool          // nodes may lose the connection to its receiver
	grouped         bool          // its target is the endpoint group of its app: the receiver at both of its addresses
	retry           *history.Retry
	follows         map[string][]string // following jobs, by event
	delivers        bool                // its failures are delivered to a target, too
	accepts         bool                // its target calls back
	replayed        bool                // its dead letters are replayed
}

// The retries of jobs: with random waits, and with fixed ones.
var (
	backoff = history.Retry{MaxAttempts: 3, Base: "200ms", Cap: "1s"}
	steps   = history.Retry{MaxAttempts: 4, Delays: []string{"300ms", "900ms"}}
	patient = history.Retry{MaxAttempts: 4, Delays: []string{"2s"}} // so that runs sometimes wait
)

// standing declares the jobs that do not change during the run.
func (d *declarer) standing(ctx context.Context) error {
	if err := d.create(ctx, "north", "south", history.Noisy, history.After); err != nil {
		return err
	}
	jobs := plain()
	if err := d.followers(ctx); err != nil {
		return err
	}
	return all(ctx, append(append(jobs, d.bounded()...), followed()...), func(ctx context.Context, j job) error { return d.put(ctx, j, true) })
}

// create creates apps, each with its endpoint group.
func (d *declarer) create(ctx context.Context, apps ...string) error {
	for _, app := range apps {
		if _, err := d.send(ctx, http.MethodPut, "/v1/apps/"+app, "*", map[string]any{"enabled": true}, nil); err != nil {
			return err
		}
		endpoints := map[string]any{"near": map[string]any{"url": d.receiver.url}, "far": map[string]any{"url": d.receiver.far}}
		group := "/v1/apps/" + app + "/groups/" + groupName
		if _, err := d.send(ctx, http.MethodPut, group, "*", map[string]any{"endpoints": endpoints}, nil); err != nil {
			return err
		}
	}
	d.apps = append(d.apps, apps...)
	return nil
}

// declareMoving declares the jobs of the app that moves.
func (c *chaos) declareMoving(ctx context.Context) error {
	if err := c.declared.create(ctx, history.Moved); err != nil {
		return err
	}
	return all(ctx, moving(), func(ctx context.Context, j job) error { return c.declared.put(ctx, j, true) })
}

// plain returns the jobs with runs that neither wait for each other nor have followers.
func plain() (jobs []job) {
	several := func(n int, j job) {
		for i := range n {
			one := j
			one.name = fmt.Sprintf("%s-%d", j.name, i)
			jobs = append(jobs, one)
		}
	}
	several(3, job{app: "north", name: "dense", path: "/ok", expression: "rate(1s)"})
	several(2, job{app: "north", name: "grouped", path: "/ok", expression: "rate(1s)", grouped: true})
	several(2, job{app: "south", name: "dense", path: "/ok", expression: "rate(1s)"})
	for _, policy := range []string{"fire_once", "fire_all", "skip"} {
		several(1, job{app: "north", name: "brief_" + policy, path: "/ok", expression: "rate(1s)", misfireAfter: "1s", policy: policy})
	}
	several(3, job{app: "north", name: "payout", path: "/slow", expression: "*/2 * * * * ?", once: true})
	several(2, job{app: "south", name: "payout", path: "/ok", expression: "1/3 * * * * ?", once: true, misfireAfter: "2s"})
	several(1, job{app: "north", name: "slow", path: "/slow", expression: "rate(2s)"})
	several(1, job{app: "north", name: "slow-grouped", path: "/slow", expression: "rate(2s)", grouped: true})
	several(2, job{app: "north", name: "flaky", path: "/flaky", expression: "rate(2s)"})
	several(2, job{app: "south", name: "flaky", path: "/flaky", expression: "rate(1s)", retry: &steps})
	several(4, job{app: "north", name: "far", path: "/ok", expression: "rate(1s)", far: true})
	several(2, job{app: "south", name: "far", path: "/ok", expression: "rate(2s)", far: true, once: true})
	several(1, job{app: "north", name: "delay", path: "/ok", expression: "delay(1s)"})
	several(1, job{app: "south", name: "delay", path: "/slow", expression: "delay(1s)", once: true})
	several(1, job{app: "north", name: "sparse", path: "/ok", expression: "0/15 * * * * ?", timezone: "Europe/Berlin"})
	several(1, job{app: "south", name: "sparse", path: "/ok", expression: "7,22,40 * * * * ?", timezone: "America/New_York"})
	// A neighbour on the host of all others, with targets that hang or fail half of the time.
	several(8, job{app: history.Noisy, name: "hanging", path: "/hang", expression: "rate(1s)"})
	several(8, job{app: history.Noisy, name: "unavailable", path: "/unavailable", expression: "rate(1s)"})
	return jobs
}

// groupName is the name of each app's endpoint group.
const groupName = "receivers"

// queueLimit bounds the queues of jobs with runs that wait for each other.
const queueLimit = 2

// bounded returns the jobs that may have one run at a time. Their receiver often takes longer than the time
// between two fires. Some have two alternating triggers, and some have delivery at most once.
func (d *declarer) bounded() (jobs []job) {
	for _, policy := range []string{"forbid", "queue", "replace"} {
		for i := range d.options.bounded {
			j := job{
				app: "north", name: fmt.Sprintf("%s-%d", policy, i), path: "/long", concurrency: policy,
				expression: "rate(4s)", phase: time.Duration(i%4) * time.Second, once: i%5 == 4,
			}
			if i%2 == 1 {
				j.app, j.expression, j.twice = "south", "rate(8s)", true
			}
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// all calls do for each of many values, several at once.
func all[T any](ctx context.Context, of []T, do func(context.Context, T) error) error {
	several, ctx := errgroup.WithContext(ctx)
	several.SetLimit(6)
	for _, one := range of {
		several.Go(func() error { return do(ctx, one) })
	}
	return several.Wait()
}

// put declares a job.
func (d *declarer) put(ctx context.Context, j job, enabled bool) error {
	declaration := history.Declaration{
		App: j.app, Job: j.name, Enabled: enabled, Delivery: "at_least_once", MisfireAfter: j.misfireAfter, MisfirePolicy: j.policy,
		Path: j.path, Concurrency: j.concurrency, Retry: j.retry, Far: j.far, Grouped: j.grouped,
		Follows: j.follows, Delivers: j.delivers, Accepts: j.accepts, Replayed: j.replayed,
	}
	switch {
	case j.once:
		declaration.Delivery = "at_most_once"
	case j.retry == nil:
		declaration.Retry = &backoff
	}
	if j.concurrency != "" {
		declaration.QueueLimit = queueLimit
	}
	if j.expression == "" { // only other jobs cause its runs
		return d.write(ctx, declaration, http.MethodPut, d.bodies(declaration))
	}
	trigger := history.Trigger{Expression: j.expression, Timezone: j.timezone}
	if j.expression[0] == 'r' {
		trigger.StartAt = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(j.phase)
	}
	declaration.Triggers = map[string]history.Trigger{"t": trigger}
	if j.twice {
		trigger.StartAt = trigger.StartAt.Add(4 * time.Second)
		declaration.Triggers["u"] = trigger
	}
	return d.write(ctx, declaration, http.MethodPut, d.bodies(declaration))
}

// end moves all fires to a day after the run. Jobs stay enabled, so that waiting runs still make
// their next attempt.
func (d *declarer) end(ctx context.Context) error {
	var left []history.Declaration
	for _, was := range d.declared {
		if !was.Deleted {
			left = append(left, was)
		}
	}
	return all(ctx, left, func(ctx context.Context, was history.Declaration) error {
		was.Enabled, was.Triggers = true, maps.Clone(was.Triggers)
		for name := range was.Triggers {
			was.Triggers[name] = history.Trigger{Expression: "at(2099-01-01T00:00:00Z)"}
		}
		return d.write(ctx, was, http.MethodPut, d.bodies(was))
	})
}

// bodies returns the body for a declaration, by the number of the put.
func (d *declarer) bodies(of history.Declaration) func(int) any {
	url, timeout := d.receiver.url+of.Path, requestTimeout
	switch {
	case of.Far:
		url, timeout = d.receiver.far+of.Path, farTimeout
	case of.App == history.Noisy:
		timeout = noisyTimeout
	}
	return func(put int) any {
		triggers := map[string]any{}
		for name, t := range of.Triggers {
			trigger := map[string]any{"expression": t.Expression, "timezone": cmp.Or(t.Timezone, "UTC")}
			if !t.StartAt.IsZero() {
				trigger["start_at"] = t.StartAt
			}
			if of.MisfireAfter != "" {
				trigger["misfire_after"] = of.MisfireAfter
			}
			if of.MisfirePolicy != "" {
				trigger["misfire_policy"] = of.MisfirePolicy
			}
			triggers[name] = trigger
		}
		webhook := map[string]any{"url": url, "timeout": timeout.String()}
		if of.Accepts {
			webhook["callback"] = map[string]any{"timeout": callbackTimeout.String()}
		}
		target := map[string]any{"webhook": webhook}
		if of.Grouped {
			target = map[string]any{"group": map[string]any{"name": groupName, "path": of.Path, "timeout": timeout.String()}}
		}
		job := map[string]any{
			"enabled": of.Enabled, "delivery": of.Delivery, "payload": map[string]any{"put": put}, "triggers": triggers,
			"target": target,
		}
		d.addFollows(job, of)
		if of.Retry != nil {
			job["retry"] = of.Retry
		}
		if of.Concurrency != "" {
			job["concurrency_policy"], job["queue_limit"] = of.Concurrency, of.QueueLimit
		}
		return job
	}
}

// The timeouts of jobs: the longest responses take a little less than the first, and a node is cut
// off from a receiver for longer than the second.
const (
	requestTimeout = 6 * time.Second
	farTimeout     = 2 * time.Second
	noisyTimeout   = 1500 * time.Millisecond
)
