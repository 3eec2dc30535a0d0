package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// sizeCommand measures how much one node carries within the processor and memory limits of a small
// task. The node is the real program in a cgroup; PostgreSQL and the receiver run outside it.
type sizeCommand struct {
	databaseFlag
	Node     string   `default:"bin/carillon" placeholder:"FILE" help:"The carillon program."`
	Task     []string `default:"0.25:512,1:2048" placeholder:"CPUS:MIB,..." help:"Processors and memory of the node."`
	Triggers []int    `default:"10000,100000" help:"Triggers of the installation; a thousandth of them fires each second."`
	Rates    []int    `default:"50,100,200,300,400,500,600,800,1000,1250,1500,2000,2500,3000,3500,4000,5000,6000,8000" help:"Fires per second to try, in ascending order, until a second of lateness is exceeded."`
	Seconds  int      `default:"15" help:"How long each rate is kept up."`
	Herd     int      `default:"2000" help:"Fires that are due in the same second, at the end."`
}

// Validate checks what the types of flags cannot, and reports all problems.
func (s *sizeCommand) Validate() error {
	var problems []error
	for _, task := range s.Task {
		_, err := parseLimit(task)
		problems = append(problems, err)
	}
	for _, n := range append([]int{s.Seconds, s.Herd}, append(s.Triggers, s.Rates...)...) {
		if n < 1 {
			problems = append(problems, fmt.Errorf("--triggers, --rates, --seconds, --herd: %d is not positive", n))
		}
	}
	return errors.Join(problems...)
}

// progress receives the progress of a long measurement.
type progress struct{ io.Writer }

// Run measures each task with each number of triggers, and prints a row of a Markdown table for each.
func (s *sizeCommand) Run(ctx context.Context, out io.Writer, p *progress) error {
	fmt.Fprintln(out, "| task | triggers | p99 below 100 ms | p99 below 1 s | herd | processor | throttled | memory |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|")
	for _, task := range s.Task {
		l, err := parseLimit(task)
		if err != nil {
			return err
		}
		for _, triggers := range s.Triggers {
			o := Options{Database: s.Database, Time: time.Hour}
			err := runIn(ctx, o, func(b *bench, ctx context.Context) error { return s.measure(ctx, b, l, triggers, out, p) })
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// sized is the result for one task.
type sized struct {
	prompt, tolerable int     // highest rates with a 99th percentile below 100 ms and below 1 s
	cpu               float64 // cores at the latter
	throttled         float64 // share of throttled periods at the latter
	herd              time.Duration
	memory            float64 // peak resident MiB
}

func (s *sizeCommand) measure(ctx context.Context, b *bench, l limit, triggers int, out io.Writer, p *progress) error {
	if b.pool == nil {
		return errors.New("this benchmark needs PostgreSQL")
	}
	receiver, err := listen(nil)
	if err != nil {
		return err
	}
	defer receiver.close()
	if err := b.multiply(ctx, "crowd", triggers, to(receiver.url)); err != nil {
		return err
	}
	n, err := s.start(ctx, b, l)
	if err != nil {
		return err
	}
	defer n.end()
	if err := b.makeDue(ctx, "crowd", nextSecond(2*time.Second)); err != nil {
		return err
	}
	var r sized
	for i, rate := range s.Rates {
		if rate <= triggers/scalePeriod { // the crowd alone fires as often
			continue
		}
		ok, err := s.step(ctx, b, n, receiver, fmt.Sprintf("load-%d", i), rate, rate-triggers/scalePeriod, &r, p)
		if err == nil && !ok { // again, because the machine may have been busy
			ok, err = s.step(ctx, b, n, receiver, fmt.Sprintf("again-%d", i), rate, rate-triggers/scalePeriod, &r, p)
		}
		if err != nil {
			return err
		}
		if !ok {
			break
		}
	}
	if r.herd, err = s.stampede(ctx, b, receiver); err != nil {
		return err
	}
	r.memory = peakMiB(n.pid())
	_, err = fmt.Fprintf(out, "| %s | %s | %s/s | %s/s | %s in %.1f s | %.2f of a core | %.0f %% | %.0f MiB |\n", l, readable(triggers),
		readable(r.prompt), readable(r.tolerable), readable(s.Herd), r.herd.Seconds(), r.cpu, 100*r.throttled, r.memory)
	return err
}

// step keeps up one rate, and reports whether the 99th percentile of lateness stayed below a second.
func (s *sizeCommand) step(ctx context.Context, b *bench, n *limited, receiver *receiver, app string, rate, triggers int,
	r *sized, p *progress) (bool, error) {
	const starting, settling = 4 * time.Second, 2 * time.Second
	start := nextSecond(starting + time.Duration(triggers)*time.Millisecond) // many declarations take a while
	from, until := start.Add(settling), start.Add(settling+time.Duration(s.Seconds)*time.Second)
	d := declaration{app: app, triggers: triggers, perJob: dispatcher.MaxTriggers, target: to(receiver.url), start: start,
		schedule: func(i int, start time.Time) dispatcher.Schedule {
			schedule := spread(triggers)(i, start)
			schedule.EndAt = &until
			return schedule
		}}
	if err := declare(ctx, b.database, d); err != nil {
		return false, err
	}
	if late := time.Until(start); late < 0 {
		return false, fmt.Errorf("declaring %d triggers took %s too long", triggers, -late)
	}
	if err := pause(ctx, time.Until(from)); err != nil {
		return false, err
	}
	cpu := cpuOf(n.pid())
	times, periods := n.group.throttled()
	if err := pause(ctx, time.Until(until)); err != nil {
		return false, err
	}
	cpu = (cpuOf(n.pid()) - cpu) / float64(s.Seconds)
	times2, periods2 := n.group.throttled()
	if err := pause(ctx, 2*time.Second); err != nil { // for late requests
		return false, err
	}
	notes := receiver.notedBetween(from, until)
	latencies, wanted := latenciesOf(notes), triggers*s.Seconds
	missing := wanted - count(notes, app)
	p99 := latencies.at(0.99)
	fmt.Fprintf(p, "%d a second: p50 %.0f ms, p99 %.0f ms, missing %d, %.2f of a core, %.0f MiB\n",
		rate, latencies.at(0.5), p99, missing, cpu, peakMiB(n.pid()))
	if missing > 0 || p99 >= 1000 {
		return false, ctx.Err()
	}
	if r.tolerable, r.cpu = rate, cpu; periods2 > periods {
		r.throttled = float64(times2-times) / float64(periods2-periods)
	}
	if p99 < 100 {
		r.prompt = rate
	}
	return true, nil
}

// stampede measures how long a node takes for many fires of the same second.
func (s *sizeCommand) stampede(ctx context.Context, b *bench, receiver *receiver) (time.Duration, error) {
	if err := pause(ctx, 15*time.Second); err != nil { // let the rest of the last rate finish
		return 0, err
	}
	due := nextSecond(6 * time.Second)
	d := declaration{app: "herd", triggers: s.Herd, perJob: dispatcher.MaxTriggers, target: to(receiver.url), start: due,
		schedule: func(_ int, start time.Time) dispatcher.Schedule {
			return dispatcher.Schedule{Expression: "rate(1s)", StartAt: &start, RepeatCount: 1}
		}}
	if err := declare(ctx, b.database, d); err != nil {
		return 0, err
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return 0, err
		}
		var last time.Time
		notes := receiver.notedBetween(due, due.Add(time.Second))
		if count(notes, "herd") < s.Herd {
			continue
		}
		for _, note := range notes {
			if note.app == "herd" {
				last = note.arrived
			}
		}
		return last.Sub(due), nil
	}
	return 0, fmt.Errorf("%d fires of the same second had not arrived after a minute", s.Herd)
}

// readable formats a number like the pages: 100,000.
func readable(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return readable(n/1000) + fmt.Sprintf(",%03d", n%1000)
}

// count counts the requests of an app.
func count(notes []note, app string) (n int) {
	for _, note := range notes {
		if note.app == app {
			n++
		}
	}
	return n
}

// limited is a node in a cgroup.
type limited struct {
	*program
	group *cgroup
}

func (l *limited) pid() int { return l.command.Process.Pid }

// start starts the node and waits until it is ready.
func (s *sizeCommand) start(ctx context.Context, b *bench, l limit) (*limited, error) {
	group, err := newCgroup(l)
	if err != nil {
		return nil, err
	}
	p, err := b.serve(ctx, group.command(s.Node, "serve"))
	if err != nil {
		return nil, errors.Join(err, group.remove())
	}
	return &limited{p, group}, nil
}

// end stops the node and removes its files.
func (l *limited) end() {
	l.program.end()
	_ = l.group.remove()
}
