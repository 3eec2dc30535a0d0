package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// lateRate is how many fires a second the benchmark of lateness asks for.
const lateRate = 2000

// lateness measures how late requests reach a receiver on this machine at a steady rate.
func (b *bench) lateness(ctx context.Context) error {
	receiver, err := listen(nil)
	if err != nil {
		return err
	}
	defer receiver.close()
	d := declaration{app: "steady", triggers: lateRate, perJob: dispatcher.MaxTriggers, target: to(receiver.url),
		schedule: spread(lateRate), unsigned: b.Unsigned}
	start, err := b.run(ctx, b.measured, d)
	if err != nil {
		return err
	}
	l := latenciesOf(receiver.notedBefore(start.Add(b.Time)))
	all := lateRate * int(b.Time/time.Second)
	r := Result{Bench: "lateness", Database: b.kind, Unit: "fires/s", Value: float64(len(l)) / b.Time.Seconds(),
		Triggers: some(lateRate), Missing: some(all - len(l))}
	r.lateness(l)
	return b.Report(r)
}

// spread fires each second, the triggers one after the other, starting at the time that run chooses.
func spread(rate int) func(int, time.Time) dispatcher.Schedule {
	return func(i int, start time.Time) dispatcher.Schedule {
		return everySecond(i, start.Add(time.Duration(i)*time.Second/time.Duration(rate)))
	}
}

// run is runNode with a node that only sends requests.
func (b *bench) run(ctx context.Context, wait func(ctx context.Context, start time.Time) error,
	declarations ...declaration) (start time.Time, err error) {
	return b.runNode(ctx, nodeOptions{database: b.database, sends: true}, wait, declarations...)
}

// runNode declares jobs, and runs a node for as long as wait waits. The jobs are declared for an hour later and
// then moved, so that the first fire is due after the start of the node, however long the declarations take.
func (b *bench) runNode(ctx context.Context, o nodeOptions, wait func(ctx context.Context, start time.Time) error,
	declarations ...declaration) (start time.Time, err error) {
	declared := nextSecond(time.Hour)
	for _, d := range declarations {
		d.start = declared
		if err := declare(ctx, b.database, d); err != nil {
			return start, err
		}
	}
	start = nextSecond(4 * time.Second)
	if err := b.shift(ctx, start.Sub(declared)); err != nil {
		return start, err
	}
	n, err := startNode(ctx, o)
	if err != nil {
		return start, err
	}
	defer func() { _ = n.stop() }() // a second call returns the same
	if err := wait(ctx, start); err != nil {
		return start, err
	}
	return start, n.stop()
}

// measured waits for the time of the benchmark, and a second for late requests.
func (b *bench) measured(ctx context.Context, start time.Time) error {
	return pause(ctx, time.Until(start.Add(b.Time+time.Second)))
}

// burstSize is how many fires are due at once.
const burstSize = 10_000

// burst measures how long the fires of one app take that are all due at the same time, and how long
// the only fire of another app waits among them. A hundred of the triggers fire twice more, a
// second apart, to check that each stays in order.
func (b *bench) burst(ctx context.Context) error {
	receiver, err := listen(nil)
	if err != nil {
		return err
	}
	defer receiver.close()
	once := func(i int, start time.Time) dispatcher.Schedule {
		s := everySecond(i, start)
		if s.RepeatCount = 1; i%100 == 0 {
			s.RepeatCount = 3
		}
		return s
	}
	crowd := declaration{app: "crowd", triggers: burstSize, perJob: dispatcher.MaxTriggers, target: to(receiver.url), schedule: once}
	alone := declaration{app: "alone", triggers: 1, perJob: 1, target: to(receiver.url),
		schedule: func(_ int, start time.Time) dispatcher.Schedule { return once(1, start) }}
	const all = burstSize + 1 + 2*burstSize/100
	due, err := b.run(ctx, func(ctx context.Context, _ time.Time) error { return receiver.await(ctx, all, time.Minute) }, crowd, alone)
	if err != nil {
		return err
	}
	notes := receiver.notedBefore(due.Add(time.Hour))
	first := make([]note, 0, burstSize)
	r := Result{Bench: "burst", Database: b.kind, Unit: "fires/s", Triggers: some(burstSize), OutOfOrder: some(disorder(notes))}
	for _, n := range notes {
		switch {
		case n.app == "alone":
			r.Alone = some(milliseconds(n.arrived.Sub(due)))
		case n.due.Equal(due):
			first = append(first, n)
		}
	}
	if len(first) != burstSize || r.Alone == nil || len(notes) != all {
		return fmt.Errorf("%d requests of %d came within a minute, %d in all", len(first), burstSize, len(notes))
	}
	l := latenciesOf(first)
	r.lateness(l)
	r.Last = some(l.at(1))
	r.Value = burstSize / l[len(l)-1].Seconds()
	return b.Report(r)
}

// disorder counts requests that arrived before a request of an earlier scheduled time of the same trigger.
func disorder(notes []note) int {
	latest, count := map[string]time.Time{}, 0
	for _, n := range notes {
		key := n.app + "/" + n.trigger
		if n.due.Before(latest[key]) {
			count++
		}
		latest[key] = n.due
	}
	return count
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// The targets of the benchmark hang: nine of ten do not respond within their timeout.
const (
	hangTriggers = 300
	hangHosts    = 10
	hangTimeout  = input.Duration(30 * time.Second)
)

// hang measures how late the requests to healthy targets are, while nine of ten targets hang.
func (b *bench) hang(ctx context.Context) error {
	receiver, err := listen(nil)
	if err != nil {
		return err
	}
	defer receiver.close()
	urls := []string{receiver.url}
	for range hangHosts - 1 {
		hanging, err := listen(func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() })
		if err != nil {
			return err
		}
		defer hanging.close()
		urls = append(urls, hanging.url)
	}
	d := declaration{
		app: "hanging", triggers: hangTriggers, perJob: 1, schedule: spread(hangTriggers),
		target: func(job int) target.Target {
			t := webhookTo(urls[job%hangHosts])
			t.Webhook.Timeout = hangTimeout
			return t
		},
	}
	start, err := b.run(ctx, b.measured, d)
	if err != nil {
		return err
	}
	l := latenciesOf(receiver.notedBefore(start.Add(b.Time)))
	healthy := hangTriggers / hangHosts * int(b.Time/time.Second)
	r := Result{Bench: "hang", Database: b.kind, Unit: "healthy fires/s", Value: float64(len(l)) / b.Time.Seconds(),
		Triggers: some(hangTriggers), Missing: some(healthy - len(l))}
	r.lateness(l)
	return b.Report(r)
}
