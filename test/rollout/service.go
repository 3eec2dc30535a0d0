package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/test/program"
)

// service is a miniature ECS service: it keeps the desired number of tasks of the latest deployed
// version. New tasks start before old ones stop: at least 100 % of the desired number are healthy,
// and at most 200 % run. A protected task is not stopped.
type service struct {
	o     options
	w     *world
	spawn program.Spawner

	mu       sync.Mutex
	rollouts []*rollout
	tasks    []*task
	problems []string
}

// rollout is one deployment.
type rollout struct {
	number  int // 0 for the first start
	version version
	begun   time.Time
	healthy time.Time // when all its tasks were healthy
	ended   time.Time // when all older tasks had ended
	long    int       // attempts in flight when it started
}

func newService(o options, w *world) *service {
	return &service{o: o, w: w, spawn: program.NewSpawner()}
}

// run controls the tasks until ctx ends.
func (s *service) run(ctx context.Context) {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		if err := s.control(ctx, time.Now()); err != nil && ctx.Err() == nil {
			s.trouble("control: %v", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (s *service) trouble(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problems = append(s.problems, fmt.Sprintf(format, args...))
}

// control checks all tasks once, and takes the next action.
func (s *service) control(ctx context.Context, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.rollouts) == 0 {
		return nil
	}
	latest := s.rollouts[len(s.rollouts)-1]
	running, current, healthy, healthyNow := 0, 0, 0, 0
	for _, t := range s.tasks {
		s.look(ctx, t, now)
		if !t.told.IsZero() || !t.ended.IsZero() {
			continue
		}
		running++
		if !t.healthy.IsZero() {
			healthy++
		}
		if t.generation == latest.number {
			if current++; !t.healthy.IsZero() {
				healthyNow++
			}
		}
	}
	for ; current < s.o.desired && running < 2*s.o.desired; current, running = current+1, running+1 {
		t := &task{id: fmt.Sprintf("task-%d", len(s.tasks)+1), version: latest.version, generation: latest.number}
		if err := startTask(ctx, s.o, s.w, s.spawn, t); err != nil {
			return err
		}
		s.tasks = append(s.tasks, t)
	}
	for _, t := range s.tasks { // oldest first
		if healthy <= s.o.desired {
			break
		}
		if t.generation < latest.number && t.told.IsZero() && t.ended.IsZero() && s.w.agent.tryStop(t.id, now) {
			t.stop(now, s.o.stop)
			healthy--
		}
	}
	if latest.healthy.IsZero() && healthyNow == s.o.desired {
		latest.healthy = now
	}
	s.noteEnds(now)
	return nil
}

// look probes one task, kills it after its stop timeout, and records its end.
func (s *service) look(ctx context.Context, t *task, now time.Time) {
	switch {
	case !t.ended.IsZero():
	case !t.alive():
		t.ended = now
		_ = t.log.Close() // the process wrote to it
		state := t.command.ProcessState
		switch {
		case t.told.IsZero():
			s.problems = append(s.problems, fmt.Sprintf("%s (%s) ended by itself: %s", t.id, t.version.name, state))
		case t.killed:
			s.problems = append(s.problems, fmt.Sprintf("%s (%s) had to be killed %s after SIGTERM", t.id, t.version.name, s.o.stop))
		case state.ExitCode() != 0:
			s.problems = append(s.problems, fmt.Sprintf("%s (%s) ended with %s after SIGTERM", t.id, t.version.name, state))
		}
	case !t.told.IsZero():
		t.stop(now, s.o.stop)
	case now.Sub(t.probed) >= s.o.probe || t.healthy.IsZero():
		t.probe(ctx, now)
	}
}

// noteEnds records ended rollouts, and prints them.
func (s *service) noteEnds(now time.Time) {
	for _, r := range s.rollouts {
		if !r.ended.IsZero() || r.healthy.IsZero() {
			continue
		}
		older := 0
		for _, t := range s.tasks {
			if t.generation < r.number && t.ended.IsZero() {
				older++
			}
		}
		if older > 0 {
			continue
		}
		if r.ended = now; r.number > 0 {
			s.print(r)
		}
	}
}

// print prints an ended rollout.
func (s *service) print(r *rollout) {
	line := fmt.Sprintf("rollout %2d -> %s: new tasks healthy after %5.1f s, old ones gone after %6.1f s", r.number, r.version.name,
		r.healthy.Sub(r.begun).Seconds(), r.ended.Sub(r.begun).Seconds())
	requests, long := s.w.receiver.count()
	fmt.Printf("%s; long attempts in flight: %d at the start, %d now; %d requests so far\n", line, r.long, long, requests)
	if took := r.ended.Sub(r.healthy); took > s.o.bound() {
		s.problems = append(s.problems, fmt.Sprintf("rollout %d: old tasks were there %s after all new ones were healthy, want %s at most",
			r.number, took.Round(time.Second), s.o.bound()))
	}
}

// bound is how long an old task may remain once the new ones are healthy: its longest attempt, the
// 15 s for which it then keeps its protection, and some heartbeats.
func (o options) bound() time.Duration { return o.longest + 45*time.Second }

// deploy starts a rollout.
func (s *service) deploy(number int, v version) *rollout {
	_, long := s.w.receiver.count()
	r := &rollout{number: number, version: v, begun: time.Now(), long: long}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rollouts = append(s.rollouts, r)
	return r
}

// rollOver deploys one version after the other, each when the previous tasks are healthy and have had some
// time for long attempts. Protected tasks of earlier versions may still run then, as with ECS.
func (s *service) rollOver(ctx context.Context, versions []version, r *receiver) error {
	for number := range s.o.rollouts + 1 {
		latest := s.deploy(number, versions[number%2])
		if err := s.await(ctx, fmt.Sprintf("the new tasks of rollout %d", number), func() bool { return !latest.healthy.IsZero() }); err != nil {
			return err
		}
		if number == 0 { // like the others, the first is judged with long attempts
			if err := s.await(ctx, "long attempts", func() bool { _, long := r.count(); return long > 1 }); err != nil {
				return err
			}
			fmt.Printf("%s runs with %d tasks and long attempts in flight\n", versions[0].name, s.o.desired)
			continue
		}
		if err := s.await(ctx, "the next rollout", func() bool { return time.Since(latest.begun) >= s.o.every }); err != nil {
			return err
		}
	}
	return s.await(ctx, "the end of the old tasks", func() bool { return !s.rollouts[len(s.rollouts)-1].ended.IsZero() })
}

// await waits until the service reaches a state.
func (s *service) await(ctx context.Context, what string, reached func() bool) error {
	late := time.After(2*s.o.bound() + 5*s.o.longEvery)
	for {
		s.mu.Lock()
		done := reached()
		s.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-late:
			return fmt.Errorf("waited %s for %s", 2*s.o.bound()+5*s.o.longEvery, what)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// kill ends all remaining tasks after the verdict.
func (s *service) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tasks {
		if t.alive() {
			_ = t.command.Process.Kill() // it may have ended
			<-t.exited
		}
	}
}

// api returns the address of a healthy task.
func (s *service) api() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tasks {
		if t.told.IsZero() && t.ended.IsZero() && !t.healthy.IsZero() {
			return "http://" + t.listen, nil
		}
	}
	return "", errors.New("no task is healthy")
}
