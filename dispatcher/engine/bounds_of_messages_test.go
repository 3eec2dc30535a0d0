package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// messages are destinations of follows and of alerts, by the part that bounds can refuse.
var messages = map[string]string{
	"host":  `{"webhook":{"url":"http://out.example.com/"}}`,
	"port":  `{"webhook":{"url":"http://in.example.com:9/"}}`,
	"key":   `{"webhook":{"url":"http://in.example.com/","signing":{"secrets":{"v1":{"reference":"env:SECRET_OTHER_KEY"}}}}}`,
	"topic": `{"sns":{"topic_arn":"arn:aws:sns:eu-central-1:123456789012:told"}}`,
}

var followsOnly = map[string]string{
	"function": `{"lambda":{"function":"arn:aws:lambda:eu-central-1:123456789012:function:told"}}`,
	"queue":    `{"sqs":{"queue_arn":"arn:aws:sqs:eu-central-1:123456789012:dead"}}`,
}

var alertsOnly = map[string]string{
	"secret":    `{"webhook":{"url":"http://in.example.com/","auth":{"bearer":{"token":{"reference":"env:SECRET_OTHER_KEY"}}}}}`,
	"signature": `{"webhook":{"url":"http://in.example.com/","auth":{"sigv4":{"service":"execute-api","region":"us-east-1"}}}}`,
	"topic-role": `{"sns":{"topic_arn":"arn:aws:sns:eu-central-1:123456789012:own",` +
		`"assume_role":{"role_arn":"arn:aws:iam::123456789012:role/x"}}}`,
	"secret-url":  `{"webhook":{"url":"http://in.example.com/","secret_url":{"reference":"env:SECRET_OTHER_URL"}}}`,
	"routing-key": `{"webhook":{"url":"http://in.example.com/","format":"pagerduty","routing_key":{"reference":"file:other/key"}}}`,
}

// putMessages declares, for each kind, a job with an alert or a delivery of its failure, and returns how many.
func (r *rig) putMessages() int {
	r.t.Helper()
	decode := func(text string, into any) {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			r.t.Fatal(err)
		}
	}
	count := 0
	for _, kinds := range []map[string]string{messages, followsOnly} {
		for kind, text := range kinds {
			r.chain("follow-"+kind, func(j *dispatcher.Job) {
				j.Target.Webhook.URL = "http://in.example.com/"
				j.OnFailure = &dispatcher.Follow{}
				decode(text, j.OnFailure)
			})
			count++
		}
	}
	for _, kinds := range []map[string]string{messages, alertsOnly} {
		for kind, text := range kinds {
			name := "alert-" + kind
			r.chain(name, func(j *dispatcher.Job) { j.Target.Webhook.URL = "http://in.example.com/" })
			a := alert.Alert{App: "app", Name: name, Spec: alert.Spec{Jobs: []string{name}}}
			a.Failure = &alert.Failures{}
			decode(text, &a.Destination)
			if to := a.Destination; to.SNS != nil {
				to.SNS.SetDefaults()
			} else {
				to.Webhook.SetDefaults()
			}
			decode(text, &a.Destination)
			if _, _, err := r.store.PutAlert(r.t.Context(), a, input.Change{Actor: "test"}); err != nil {
				r.t.Fatal(err)
			}
			count++
		}
	}
	return count
}

// Deliveries that wait when an operator narrows the bounds are not sent, whichever part of their target is outside.
func TestNarrowedBoundsStopDeliveriesAboutRuns(t *testing.T) {
	t.Parallel()
	all := []string{"*"}
	wide := target.Bounds{
		Secrets: []string{"env:SECRET_*", "file:*"}, Lambda: target.LambdaBounds{Functions: all},
		SQS: target.SQSBounds{Queues: all, Roles: all}, SNS: target.SNSBounds{Topics: all, Roles: all},
		SignAsNode: []target.SignatureBound{{Service: "execute-api", Hosts: []string{"in.example.com"}}},
	}
	narrow := target.Bounds{
		Egress: target.EgressBounds{Hosts: []string{"in.example.com"}, Ports: []int{80}},
		SQS:    target.SQSBounds{Queues: []string{"arn:aws:sqs:*:own"}}, SNS: target.SNSBounds{Topics: []string{"arn:aws:sns:*:own"}},
	}
	for name, then := range map[string]target.Bounds{"kept": wide, "narrowed": narrow} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			r.invoke = func(_ context.Context, call target.Call) run.Outcome {
				if strings.Contains(call.Job, ".") {
					return run.Outcome{State: run.Succeeded, HTTPStatus: 200}
				}
				return broken()
			}
			r.setBounds(wide)
			count := r.putMessages()
			jobs, err := r.store.Jobs(t.Context(), "app", input.Page{Limit: 100})
			if err != nil {
				t.Fatal(err)
			}
			for _, job := range jobs {
				if one := r.requestRun(job.Name); one.Class != run.ClassHTTP5xx {
					t.Fatalf("%s: %s %s, want it to fail", job.Name, one.Class, one.Error)
				}
			}
			for queued := 0; queued < count; { // while the bounds are wide
				done, err := r.store.FollowEnds(t.Context(), dispatcher.FollowQuery{Limit: followPage})
				if err != nil || done.Queued == 0 {
					t.Fatalf("queued %d of %d: %v", queued, count, err)
				}
				queued += done.Queued
			}
			r.setBounds(then)
			r.follow()
			if err := r.adopt(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.quiet()
			r.checkTold(count, name == "kept")
		})
	}
}

// checkTold checks that all deliveries of putMessages were sent, or that all were refused for the bounds.
func (r *rig) checkTold(count int, sent bool) {
	r.t.Helper()
	calls := 0
	for _, job := range r.called() {
		if strings.Contains(job, ".") {
			calls++
		}
	}
	if want := map[bool]int{true: count, false: 0}[sent]; calls != want {
		r.t.Errorf("%d deliveries are sent, want %d: %q", calls, want, r.called())
	}
	runs, err := r.store.Runs(r.t.Context(), dispatcher.RunQuery{App: "app", Page: input.Page{Limit: 200}})
	if err != nil {
		r.t.Fatal(err)
	}
	ends := map[string]int{}
	for _, run := range runs {
		if strings.Contains(run.Job, ".") {
			ends[fmt.Sprint(run.State, " ", run.Class)]++
		}
	}
	want := map[string]int{"failed bounds": count}
	if sent {
		want = map[string]int{"succeeded ": count}
	}
	if !maps.Equal(ends, want) {
		r.t.Errorf("deliveries ended as %v, want %v", ends, want)
	}
}
