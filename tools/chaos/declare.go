package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/tools/chaos/history"
)

// declarer declares jobs through the API of whichever node answers, and writes down what it
// declared.
type declarer struct {
	*chaos
	token string
	log   *history.Log

	mu       sync.Mutex
	puts     int
	declared map[string]history.Declaration // the latest of each job, by app and name
	tags     map[string]string              // its ETag, empty when it does not exist
}

func newDeclarer(c *chaos, token string) (*declarer, error) {
	log, err := history.Create(c.dir, history.Declarations, false)
	return &declarer{chaos: c, token: token, log: log, declared: map[string]history.Declaration{}, tags: map[string]string{}}, err
}

// job is a job that a run declares.
type job struct {
	app, name, path string
	once            bool // at most once
	misfireAfter    string
	policy          string // of misfires
	expression      string
	timezone        string
}

// standing declares the jobs that stay as they are during the run.
func (d *declarer) standing(ctx context.Context) error {
	for _, app := range []string{"north", "south"} {
		if _, err := d.send(ctx, http.MethodPut, "/v1/apps/"+app, "*", map[string]any{"enabled": true}, nil); err != nil {
			return err
		}
	}
	var jobs []job
	several := func(n int, j job) {
		for i := range n {
			one := j
			one.name = fmt.Sprintf("%s-%d", j.name, i)
			jobs = append(jobs, one)
		}
	}
	several(5, job{app: "north", name: "dense", path: "/ok", expression: "rate(1s)"})
	several(2, job{app: "south", name: "dense", path: "/ok", expression: "rate(1s)"})
	for _, policy := range []string{"fire_once", "fire_all", "skip"} {
		several(1, job{app: "north", name: "brief_" + policy, path: "/ok", expression: "rate(1s)", misfireAfter: "1s", policy: policy})
	}
	several(3, job{app: "north", name: "payout", path: "/slow", expression: "*/2 * * * * ?", once: true})
	several(2, job{app: "south", name: "payout", path: "/ok", expression: "1/3 * * * * ?", once: true, misfireAfter: "2s"})
	several(2, job{app: "north", name: "slow", path: "/slow", expression: "rate(2s)"})
	several(2, job{app: "north", name: "flaky", path: "/flaky", expression: "rate(2s)"})
	several(1, job{app: "north", name: "delay", path: "/ok", expression: "delay(1s)"})
	several(1, job{app: "south", name: "delay", path: "/slow", expression: "delay(1s)", once: true})
	several(1, job{app: "north", name: "sparse", path: "/ok", expression: "0/15 * * * * ?", timezone: "Europe/Berlin"})
	several(1, job{app: "south", name: "sparse", path: "/ok", expression: "7,22,40 * * * * ?", timezone: "America/New_York"})
	for _, j := range jobs {
		if err := d.put(ctx, j, true); err != nil {
			return err
		}
	}
	return nil
}

// change changes definitions while the run goes on, and declares one-shots.
func (d *declarer) change(ctx context.Context) {
	schedules := []string{"rate(1s)", "*/2 * * * * ?", "rate(3s)", "1/4 * * * * ?"}
	for i := 0; ctx.Err() == nil; i++ {
		j := job{app: "north", name: fmt.Sprintf("changing-%d", d.intN(4)), path: "/ok", expression: schedules[d.intN(len(schedules))], misfireAfter: "3s"}
		enabled := d.intN(5) > 0
		if i%3 == 2 {
			at := time.Now().Add(d.between(time.Second, 6*time.Second)).UTC().Truncate(time.Millisecond)
			j = job{app: "south", name: fmt.Sprintf("once-%d", i), path: "/ok", expression: "at(" + at.Format("2006-01-02T15:04:05.000Z") + ")"}
			enabled = true
		}
		var err error
		if i%11 == 10 {
			err = d.remove(ctx, j.app, j.name)
		} else {
			err = d.put(ctx, j, enabled)
		}
		if err != nil && ctx.Err() == nil {
			d.trouble(err)
		}
		pause(ctx, d.between(100*time.Millisecond, 600*time.Millisecond))
	}
}

// end puts off all fires to a day that the run does not see. Jobs stay enabled, so that runs which
// wait for their next attempt go on.
func (d *declarer) end(ctx context.Context) error {
	for _, was := range maps.Clone(d.declared) {
		if was.Deleted {
			continue
		}
		was.Enabled, was.Triggers = true, map[string]history.Trigger{"t": {Expression: "at(2099-01-01T00:00:00Z)"}}
		if err := d.write(ctx, was, http.MethodPut, d.bodies(was)); err != nil {
			return err
		}
	}
	return nil
}

// put declares a job.
func (d *declarer) put(ctx context.Context, j job, enabled bool) error {
	declaration := history.Declaration{App: j.app, Job: j.name, Enabled: enabled, Delivery: "at_least_once", MisfireAfter: j.misfireAfter, MisfirePolicy: j.policy, Path: j.path}
	if j.once {
		declaration.Delivery = "at_most_once"
	}
	trigger := history.Trigger{Expression: j.expression, Timezone: j.timezone}
	if j.expression[0] == 'r' {
		trigger.StartAt = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	declaration.Triggers = map[string]history.Trigger{"t": trigger}
	return d.write(ctx, declaration, http.MethodPut, d.bodies(declaration))
}

// remove deletes a job, if it was declared.
func (d *declarer) remove(ctx context.Context, app, name string) error {
	d.mu.Lock()
	was, known := d.declared[app+"/"+name]
	d.mu.Unlock()
	if !known || was.Deleted {
		return nil
	}
	was.Deleted, was.Triggers = true, nil
	return d.write(ctx, was, http.MethodDelete, func(int) any { return nil })
}

// bodies returns what is sent for a declaration, by the number of the put.
func (d *declarer) bodies(of history.Declaration) func(int) any {
	return func(put int) any {
		triggers := map[string]any{}
		for name, t := range of.Triggers {
			trigger := map[string]any{"expression": t.Expression}
			if t.Timezone != "" {
				trigger["timezone"] = t.Timezone
			}
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
		job := map[string]any{
			"enabled": of.Enabled, "delivery": of.Delivery, "payload": map[string]any{"put": put}, "triggers": triggers,
			"target": map[string]any{"webhook": map[string]any{"url": d.receiver.url + of.Path, "timeout": "5s"}},
		}
		if of.Delivery == "at_least_once" {
			job["retry"] = map[string]any{"max_attempts": 3, "base": "200ms", "cap": "1s"}
		}
		return job
	}
}

// write declares until it is known to be done, and writes that down before and after.
func (d *declarer) write(ctx context.Context, of history.Declaration, method string, body func(put int) any) error {
	d.mu.Lock()
	d.puts++
	of.Put = d.puts
	d.declared[of.App+"/"+of.Job] = of
	d.mu.Unlock()
	of.Begun, of.Answered = time.Now(), time.Time{}
	if err := d.log.Append(of); err != nil {
		return err
	}
	path := "/v1/apps/" + of.App + "/jobs/" + of.Job
	tag, err := d.send(ctx, method, path, d.tags[path], body(of.Put), func(ctx context.Context, n *node) (string, bool, error) {
		return d.applied(ctx, n, path, of)
	})
	if err != nil {
		return err
	}
	d.tags[path] = tag
	of.Answered = time.Now()
	return d.log.Append(of)
}

// applied tells whether a declaration is what a node now has of a job, and under which ETag.
func (d *declarer) applied(ctx context.Context, n *node, path string, of history.Declaration) (string, bool, error) {
	answer, err := d.ask(ctx, n, http.MethodGet, path, "", nil)
	if err != nil {
		return "", false, err
	}
	var job struct{ Payload struct{ Put int } }
	_ = json.Unmarshal(answer.body, &job) // of an error there is none, which is not what was put
	gone := answer.status == http.StatusNotFound
	return answer.tag, gone && of.Deleted || !gone && job.Payload.Put == of.Put, nil
}

// send makes a request of one node after the other until one has done it, and returns the ETag of
// what came of it. A request of which nobody knows whether it was done may still be done later, by
// a node that was frozen with it; so each is made on the condition that nothing was changed since.
// applied then tells, of a node that says it was, whether that was this very request.
func (d *declarer) send(ctx context.Context, method, path, tag string, body any, applied func(context.Context, *node) (string, bool, error)) (string, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return "", err
	}
	// What was begun is finished, also when the time for faults is over.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	var last error
	for first := d.intN(len(d.nodes)); ctx.Err() == nil; first++ {
		n := d.nodes[first%len(d.nodes)]
		answer, err := d.ask(ctx, n, method, path, tag, text)
		switch {
		case err != nil:
			last = err
		case answer.status < 300:
			return answer.tag, nil
		case answer.status == http.StatusPreconditionFailed || answer.status == http.StatusNotFound && method == http.MethodDelete:
			if tag, done, err := applied(ctx, n); err != nil || done {
				if done {
					return tag, nil
				}
				last = err
				break
			}
			return "", fmt.Errorf("%s %s: somebody else has changed it", method, path)
		case answer.status < 500 && bytes.Contains(answer.body, []byte("at_past")):
			return tag, nil // an earlier try was too late
		default:
			last = fmt.Errorf("%s %s: %d: %s", method, path, answer.status, answer.body)
			if answer.status < 500 && answer.status != http.StatusTooManyRequests {
				return "", last
			}
		}
		pause(ctx, 50*time.Millisecond)
	}
	return "", fmt.Errorf("no node would do it: %w", last)
}

// answer is what a node answered.
type answer struct {
	status int
	tag    string
	body   []byte
}

// ask makes one request, on the condition that the thing has an ETag, or, if that is empty, that
// it does not exist; "*" is for no condition.
func (d *declarer) ask(ctx context.Context, n *node, method, path, tag string, body []byte) (a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "http://"+n.listen+path, bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	request.Header.Set("Authorization", "Bearer "+d.token)
	request.Header.Set("Content-Type", "application/json")
	switch {
	case method == http.MethodGet || tag == "*":
	case tag == "":
		request.Header.Set("If-None-Match", "*")
	default:
		request.Header.Set("If-Match", tag)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	a.status, a.tag = response.StatusCode, response.Header.Get("ETag")
	a.body, err = io.ReadAll(response.Body)
	return a, err
}
