package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// scalePeriod is the number of seconds between two fires of a trigger in the benchmark of scale.
const scalePeriod = 1000

// scale measures one node in a separate process, with ever more triggers, each of a different job.
// A thousandth of them is due each second, always different ones. With the largest number it also
// measures a time without due triggers.
func (b *bench) scale(ctx context.Context) error {
	if b.pool == nil {
		return errors.New("this benchmark needs PostgreSQL")
	}
	const most = 1_000_000
	for _, triggers := range []int{1_000, 100_000, most} {
		if err := b.scaleOf(ctx, triggers, triggers == most); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) scaleOf(ctx context.Context, triggers int, idle bool) (err error) {
	app := fmt.Sprintf("scale-%d", triggers)
	if err := b.multiply(ctx, app, triggers, to("http://127.0.0.1")); err != nil {
		return err
	}
	const starting, window = 3 * time.Second, 6 * time.Second // the poll reads fires that are due that soon
	due := time.Now().Add(starting)
	if idle {
		due = due.Add(2 * window)
	}
	if err := b.makeDue(ctx, app, due); err != nil {
		return err
	}
	p, err := b.startProcess(ctx, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.end()) }()
	measured := func(name string, from, until time.Time) error {
		return b.scaleDuring(ctx, p, name, triggers, from, until)
	}
	if idle {
		if err := measured("scale, idle", due.Add(-2*window), due.Add(-window)); err != nil {
			return err
		}
	}
	begun := due.Add(time.Second)
	if err := measured("scale", begun, begun.Add(b.Time/6)); err != nil {
		return err
	}
	return b.silence(ctx, app)
}

// scaleDuring reports the work of a node between two instants.
func (b *bench) scaleDuring(ctx context.Context, p *process, name string, triggers int, from, until time.Time) error {
	if err := pause(ctx, time.Until(from)); err != nil {
		return err
	}
	if _, err := p.report(); err != nil {
		return err
	}
	began := time.Now()
	if err := pause(ctx, time.Until(until)); err != nil {
		return err
	}
	one, err := p.report()
	if err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	r := summary([]report{one})
	r.Bench, r.Database, r.Triggers, r.Unit = name, b.kind, some(triggers), "fires/s"
	r.Value /= took
	r.CPU = some(one.CPU / took)
	return b.Report(r)
}
