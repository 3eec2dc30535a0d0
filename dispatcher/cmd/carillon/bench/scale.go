package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// scalePeriod is after how many seconds each trigger of the benchmark of scale fires again.
const scalePeriod = 1000

// scale measures one node, a process of its own, beside ever more triggers, each of a job of its
// own: while none is due, and then at a thousandth of them a second, each time others.
func (b *bench) scale(ctx context.Context) error {
	if b.pool == nil {
		return errors.New("this benchmark needs PostgreSQL")
	}
	for _, triggers := range []int{1_000, 100_000, 1_000_000} {
		if err := b.scaleOf(ctx, triggers); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) scaleOf(ctx context.Context, triggers int) (err error) {
	app := fmt.Sprintf("scale-%d", triggers)
	if err := b.multiply(ctx, app, triggers); err != nil {
		return err
	}
	p, err := b.startProcess(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.end()) }()
	const idle, window = 10 * time.Second, 10 * time.Second // the poll reads what is due that soon
	due := time.Now().Add(5*time.Second + idle + window)
	if err := b.bring(ctx, app, due); err != nil {
		return err
	}
	for _, phase := range []struct {
		name  string
		until time.Time
	}{{"", due.Add(-window - idle)}, {"scale, idle", due.Add(-window)}, {"", due.Add(time.Second)}, {"scale", due.Add(time.Second + b.Time/3)}} {
		began := time.Now()
		if err := pause(ctx, time.Until(phase.until)); err != nil {
			return err
		}
		took := time.Since(began)
		one, err := p.report()
		if err != nil {
			return err
		}
		if phase.name == "" {
			continue
		}
		r := summary([]report{one})
		r.Bench, r.Database, r.Triggers, r.Unit = phase.name, b.kind, some(triggers), "fires/s"
		r.Value /= took.Seconds()
		r.CPU = some(one.CPU / took.Seconds())
		if err := b.Report(r); err != nil {
			return err
		}
	}
	return b.drop(ctx, app)
}
