package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// attemptOnce is for jobs with a receiver that fails for a while: more failures in a row would pause their host.
var attemptOnce = history.Retry{MaxAttempts: 1}

// callbackTimeout is how long after its acceptance an attempt may be completed.
const callbackTimeout = 2 * time.Second

// followers declares the jobs that follow others, and the alert that watches all jobs of their app.
func (d *declarer) followers(ctx context.Context) error {
	last := job{app: history.After, name: "last", path: "/ok"}
	if err := d.put(ctx, last, true); err != nil {
		return err
	}
	for _, name := range []string{"succeeded", "failed", "missed"} {
		one := job{app: history.After, name: name, path: "/ok"}
		if name == "failed" {
			one.follows = map[string][]string{history.OnSuccess: {last.name}}
		}
		if err := d.put(ctx, one, true); err != nil {
			return err
		}
	}
	alert := map[string]any{"failure": map[string]any{"after": 1}, "missed": true,
		"destination": map[string]any{"webhook": map[string]any{"url": d.receiver.url + "/ok", "timeout": requestTimeout.String()}}}
	_, err := d.send(ctx, http.MethodPut, "/v1/apps/"+history.After+"/alerts/watch", "*", alert, nil)
	return err
}

// followed returns the jobs with followers, with receivers that call back, and for replays and backfills.
func followed() []job {
	after := func(name, path, expression string, follows map[string][]string) job {
		return job{app: history.After, name: name, path: path, expression: expression, follows: follows}
	}
	moody := after("moody", "/moody", "rate(2s)", map[string][]string{history.OnSuccess: {"succeeded"}, history.OnFailure: {"failed"}})
	moody.retry, moody.delivers = &attemptOnce, true
	once := after("once", "/slow", "1/2 * * * * ?", map[string][]string{history.OnFailure: {"failed"}, history.OnMisfire: {"missed"}})
	once.once, once.misfireAfter, once.policy = true, "1s", "skip"
	brief := after("brief", "/ok", "rate(1s)", map[string][]string{history.OnMisfire: {"missed"}})
	brief.misfireAfter, brief.policy = "1s", "fire_once"
	accepting := after("accepting", "/accept", "rate(2s)", map[string][]string{history.OnSuccess: {"succeeded"}})
	accepting.accepts = true
	dead := after("dead", "/dead", "rate(2s)", map[string][]string{history.OnSuccess: {"succeeded"}, history.OnFailure: {"failed"}})
	dead.retry, dead.replayed = &attemptOnce, true
	return []job{moody, once, brief, accepting, dead, after("oldest_first", "/ok", "0/15 * * * * ?", nil),
		after("latest_first", "/ok", "0/30 * * * * ?", nil)}
}

// addFollows adds a job's followers to the body of its declaration.
func (d *declarer) addFollows(job map[string]any, of history.Declaration) {
	for event, names := range of.Follows {
		follow := map[string]any{"jobs": names, "payload": "result"}
		if of.Delivers && event == history.OnFailure {
			follow["webhook"] = map[string]any{"url": d.receiver.url + "/ok"}
		}
		job[event] = follow
	}
}

// replay replays the dead letters of a job from time to time. A failed replay may have replayed some.
func (d *declarer) replay(ctx context.Context) {
	for ; ctx.Err() == nil; pause(ctx, d.between(time.Second, 2*time.Second)) {
		n := d.nodes[d.intN(len(d.nodes))]
		response, err := d.ask(ctx, n, http.MethodPost, "/v1/apps/"+history.After+"/dead-letters/replay", "*", []byte(`{"job": "dead"}`))
		if err == nil && response.status >= 400 && response.status < 500 && response.status != http.StatusTooManyRequests && ctx.Err() == nil {
			d.trouble(fmt.Errorf("replay dead letters: %d: %s", response.status, response.body))
		}
	}
}

// backfill requests backfills of some hours of the previous day, in both orders.
func (d *declarer) backfill(ctx context.Context) error {
	log, err := history.Create(d.dir, history.Backfills, false)
	if err != nil {
		return err
	}
	defer log.Close()
	to := time.Now().Add(-24 * time.Hour).UTC().Truncate(time.Minute)
	for _, order := range []string{"oldest_first", "latest_first"} {
		of := history.Backfill{Job: order, From: to.Add(-time.Hour), To: to}
		if err := log.Append(of); err != nil {
			return err
		}
		body := map[string]any{"from": of.From, "to": of.To, "order": order, "concurrency": 4, "pace": "50ms"}
		path := "/v1/apps/" + history.After + "/jobs/" + order + "/backfill"
		if _, err := d.send(ctx, http.MethodPost, path, "*", body, nil); err != nil && !errors.Is(err, errConflict) {
			return err
		}
	}
	return nil
}

// backfilled waits until all backfills have ended, because they use the current schedules.
func (d *declarer) backfilled(ctx context.Context) {
	d.awaitNone(ctx, "SELECT count(*) FROM backfills WHERE ended_at IS NULL")
}

// errConflict means that the request is already under way: an earlier try began it, and its response was lost.
var errConflict = errors.New("it is under way")
