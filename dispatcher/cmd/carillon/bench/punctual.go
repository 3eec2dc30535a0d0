package bench

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
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
	start := nextSecond(8 * time.Second)
	d := declaration{app: "steady", triggers: lateRate, perJob: dispatcher.MaxTriggers, target: to(receiver.url), schedule: spread(start, lateRate)}
	end := start.Add(b.Time)
	if err := b.run(ctx, until(end.Add(time.Second)), d); err != nil {
		return err
	}
	l := latenciesOf(receiver.notedBefore(end))
	all := lateRate * int(b.Time/time.Second)
	r := Result{Bench: "lateness", Database: b.kind, Unit: "fires/s", Value: float64(len(l)) / b.Time.Seconds(), Triggers: some(lateRate), Missing: some(all - len(l))}
	r.lateness(l)
	return b.Report(r)
}

// spread fires each second, the triggers one after the other.
func spread(start time.Time, rate int) func(int) dispatcher.Schedule {
	return func(i int) dispatcher.Schedule {
		return everySecond(start.Add(time.Duration(i) * time.Second / time.Duration(rate)))(i)
	}
}

// until waits for an instant.
func until(end time.Time) func(context.Context) error {
	return func(ctx context.Context) error { return pause(ctx, time.Until(end)) }
}

// run declares jobs, and runs a node for as long as wait waits.
func (b *bench) run(ctx context.Context, wait func(context.Context) error, declarations ...declaration) error {
	for _, d := range declarations {
		if err := declare(ctx, b.database, d); err != nil {
			return err
		}
	}
	n, err := startNode(ctx, nodeOptions{database: b.database, sends: true})
	if err != nil {
		return err
	}
	defer func() { _ = n.stop() }() // a second call says the same
	if err := wait(ctx); err != nil {
		return err
	}
	return n.stop()
}

// burstSize is how many fires are due at once.
const burstSize = 10_000

// burst measures how long the fires of one app take that are all due in the same instant, and
// how long the only fire of another app waits among them. A hundred of the triggers fire twice
// more, a second apart, to see that each stays in order.
func (b *bench) burst(ctx context.Context) error {
	receiver, err := listen(nil)
	if err != nil {
		return err
	}
	defer receiver.close()
	due := nextSecond(10 * time.Second)
	once := func(i int) dispatcher.Schedule {
		s := everySecond(due)(i)
		if s.RepeatCount = 1; i%100 == 0 {
			s.RepeatCount = 3
		}
		return s
	}
	crowd := declaration{app: "crowd", triggers: burstSize, perJob: dispatcher.MaxTriggers, target: to(receiver.url), schedule: once}
	alone := declaration{app: "alone", triggers: 1, perJob: 1, target: to(receiver.url), schedule: func(int) dispatcher.Schedule { s := everySecond(due)(0); s.RepeatCount = 1; return s }}
	const all = burstSize + 1 + 2*burstSize/100
	if err := b.run(ctx, func(ctx context.Context) error { return receiver.await(ctx, all, time.Minute) }, crowd, alone); err != nil {
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

// disorder counts requests that came before one of an earlier instant of the same trigger.
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

// The targets of the benchmark that hangs: nine of ten never answer within their timeout.
const (
	hangTriggers = 300
	hangHosts    = 10
	hangTimeout  = dispatcher.Duration(30 * time.Second)
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
	start := nextSecond(5 * time.Second)
	d := declaration{
		app: "hanging", triggers: hangTriggers, perJob: 1, schedule: spread(start, hangTriggers),
		target: func(job int) dispatcher.Target {
			t := webhookTo(urls[job%hangHosts])
			t.Webhook.Timeout = hangTimeout
			return t
		},
	}
	end := start.Add(b.Time)
	if err := b.run(ctx, until(end.Add(time.Second)), d); err != nil {
		return err
	}
	l := latenciesOf(receiver.notedBefore(end))
	healthy := hangTriggers / hangHosts * int(b.Time/time.Second)
	r := Result{Bench: "hang", Database: b.kind, Unit: "healthy fires/s", Value: float64(len(l)) / b.Time.Seconds(), Triggers: some(hangTriggers), Missing: some(healthy - len(l))}
	r.lateness(l)
	return b.Report(r)
}
