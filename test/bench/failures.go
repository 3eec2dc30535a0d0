package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

const (
	// failingJobs fail at once, next to steadyRate fires a second of another app.
	failingJobs = 10_000
	steadyRate  = 500
	// leastWindow is the shortest time between two fires of the failing jobs: all their notifications fit into it.
	leastWindow = 8 * time.Second
)

// failures measures how late the fires of an app are next to jobs of another app that are all due
// at once. In turns, these jobs succeed, then all fail and cause notifications, and then recover
// and cause notifications again. The ratio is that of the latter two to the first.
func (b *bench) failures(ctx context.Context) error {
	window := max(b.Time/time.Duration(3*b.Rounds), leastWindow).Truncate(time.Second)
	steady, err := listen(nil)
	if err != nil {
		return err
	}
	defer steady.close()
	var notified counter
	alerted, err := listen(notified.take)
	if err != nil {
		return err
	}
	defer alerted.close()
	begun := make(chan time.Time, 1) // due time of the first fires
	start := sync.OnceValue(func() time.Time { return <-begun })
	crowd, err := listen(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		due, err := time.Parse(time.RFC3339Nano, q.Header.Get("carillon-scheduled-at"))
		turn := int(due.Sub(start()) / window)
		// On a busy machine jobs fire for longer than the rounds take; later failures would cause notifications, too.
		if err == nil && turn < 3*b.Rounds && turn%3 == 1 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	if err != nil {
		return err
	}
	defer crowd.close()
	all := declaration{app: "crowd", triggers: b.Failing, perJob: 1, target: to(crowd.url),
		schedule: func(_ int, from time.Time) dispatcher.Schedule {
			return dispatcher.Schedule{Expression: fmt.Sprintf("rate(%s)", window), StartAt: &from}
		}}
	others := declaration{app: "steady", triggers: steadyRate, perJob: dispatcher.MaxTriggers, target: to(steady.url),
		schedule: spread(steadyRate)}
	wanted := b.Failing * b.Rounds // ends; the message of a beginning is overtaken if the condition ends before it is sent
	first, err := b.runNode(ctx, nodeOptions{database: b.database, sends: true, noBreaker: true},
		func(ctx context.Context, from time.Time) error {
			begun <- from
			if err := b.alert(ctx, alerted.url); err != nil { // the first fires succeed, and are seconds ahead
				return err
			}
			if err := pause(ctx, time.Until(from.Add(window*time.Duration(3*b.Rounds)+time.Second))); err != nil {
				return err
			}
			return notified.await(ctx, wanted, time.Minute)
		}, all, others)
	if err != nil {
		return err
	}
	told := notified.ended()
	r := Result{Bench: "failures", Database: b.kind, Unit: "notifications", Value: float64(notified.count()), Jobs: some(b.Failing),
		Missing: some(wanted - told), Doubled: some(notified.doubled())}
	var ratios rates
	var during latencies
	for round := range b.Rounds {
		at := first.Add(window * time.Duration(3*round))
		without := latenciesOf(steady.notedBetween(at, at.Add(window)))
		with := latenciesOf(steady.notedBetween(at.Add(window), at.Add(3*window)))
		ratios = append(ratios, with.at(0.99)/without.at(0.99))
		during = append(during, with...)
	}
	slices.Sort(during)
	r.lateness(during)
	r.P99Ratio = some(ratios.median())
	return b.Report(r)
}

// alert declares an alert that watches all jobs of the crowd.
func (b *bench) alert(ctx context.Context, url string) error {
	s, err := store.Open(ctx, b.database, store.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	a := alert.Alert{App: "crowd", Name: "all"}
	a.SetDefaults()
	a.Failure = &alert.Failures{After: 1}
	a.Destination.Webhook = &target.AlertWebhook{}
	a.Destination.Webhook.SetDefaults()
	a.Destination.Webhook.URL = url
	_, _, err = s.PutAlert(ctx, a, byBench)
	return err
}

// counter has the event ids of each transition in notifications. Transitions of several jobs may have one.
type counter struct {
	mu   sync.Mutex
	told map[toldTransition]map[string]bool
}

// toldTransition is a transition of an alert, which must have one event id.
type toldTransition struct {
	Job       string
	Condition target.AlertCondition
	Sequence  int64
	Ends      bool
}

// take is a handler that counts a request.
func (c *counter) take(w http.ResponseWriter, q *http.Request) {
	var n target.AlertNotification
	if err := json.NewDecoder(q.Body).Decode(&n); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.told == nil {
		c.told = map[toldTransition]map[string]bool{}
	}
	for _, one := range n.All() {
		transition := toldTransition{one.Job, one.Condition, one.Sequence, one.Transition == target.AlertResolved}
		if c.told[transition] == nil {
			c.told[transition] = map[string]bool{}
		}
		c.told[transition][q.Header.Get("webhook-id")] = true
	}
}

// count returns the number of notified transitions.
func (c *counter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.told)
}

// ended returns the number of notified ends.
func (c *counter) ended() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for transition := range c.told {
		if transition.Ends {
			n++
		}
	}
	return n
}

// doubled returns the number of further event ids for transitions that already had one.
func (c *counter) doubled() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, events := range c.told {
		n += len(events) - 1
	}
	return n
}

// await waits until that many ends are notified, at most for the given time.
func (c *counter) await(ctx context.Context, ends int, most time.Duration) error {
	for end := time.Now().Add(most); time.Now().Before(end) && c.ended() < ends; {
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}
