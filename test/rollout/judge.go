package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-dev/carillon/dispatcher/run"
)

// uncovered is how long after its start an attempt may be unprotected: until the agent, which is on
// this machine, has responded.
const uncovered = 500 * time.Millisecond

// ledgerRun is a row of the ledger.
type ledgerRun struct {
	Trigger, Scheduled int64
	Kind               int16
	State              string
	Attempt            int
}

// judge compares the ledger with the receiver's records, and prints a verdict.
func judge(ctx context.Context, o options, w *world, s *service, to time.Time, took time.Duration) error {
	problems := s.found()
	runs, err := query(ctx, w.url, pgx.RowToStructByPos[ledgerRun],
		`SELECT trigger_id, scheduled_at, kind, coalesce(state, 'succeeded'), attempt FROM runs WHERE scheduled_at >= $1 AND scheduled_at < $2`,
		w.from.UnixMilli(), to.UnixMilli())
	if err != nil {
		return err
	}
	misfires, err := query(ctx, w.url, pgx.RowTo[int], `SELECT count(*)::int FROM misfires`)
	if err != nil {
		return err
	}
	if misfires[0] > 0 {
		problems = append(problems, fmt.Sprintf("the ledger has %d misfire decisions, want none", misfires[0]))
	}
	problems = append(problems, everySecond(o, w, runs, to)...)
	long, cut, more := w.receiver.compare(runs, s, w.from, to)
	problems = append(problems, more...)
	if err := s.verify(ctx, w, to); err != nil {
		problems = append(problems, err.Error())
	}
	requests, _ := w.receiver.count()
	fmt.Printf("%d rollouts in %s; judged %d seconds of %d triggers: %d runs, %d of them long; %d requests; the longest attempt took %s\n",
		o.rollouts, took.Round(time.Second), int(to.Sub(w.from).Seconds()), o.fires, len(runs), long, requests,
		w.receiver.most.Round(100*time.Millisecond))
	fmt.Printf("%d attempts were cut off before their protection was granted; tasks asked for protection, or dropped it, %d times\n",
		cut, w.agent.requests())
	if len(problems) == 0 {
		fmt.Println("verdict: each second of each trigger once, no protected attempt cut off, each rollout ended")
		return nil
	}
	const shown = 30
	for _, problem := range problems[:min(shown, len(problems))] {
		fmt.Println("PROBLEM:", problem)
	}
	fmt.Printf("verdict: %d problems\n", len(problems))
	return errVerdict
}

// found returns the problems seen by the service.
func (s *service) found() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.problems)
}

// everySecond requires exactly one run of each trigger of the short jobs per second, and that all runs succeeded.
func everySecond(o options, w *world, runs []ledgerRun, to time.Time) (problems []string) {
	seen := make(map[[2]int64]int, len(runs))
	for _, r := range runs {
		seen[[2]int64{r.Trigger, r.Scheduled}]++
		if r.State != string(run.Succeeded) || r.Kind != int16(run.KindSchedule.Code()) {
			problems = append(problems, fmt.Sprintf("the run of trigger %d at %s is %s after %d attempts, kind %d", r.Trigger,
				time.UnixMilli(r.Scheduled).UTC().Format(time.TimeOnly), r.State, r.Attempt, r.Kind))
		}
	}
	for i := range o.fires {
		job, trigger := fmt.Sprintf("short-%d", i%shortJobs), "t"+strconv.Itoa(i)
		id := run.TriggerID(appName, job, trigger)
		for at := w.from; at.Before(to); at = at.Add(time.Second) {
			if n := seen[[2]int64{id, at.UnixMilli()}]; n != 1 {
				problems = append(problems, fmt.Sprintf("%s/%s fired %d times at %s, want once", job, trigger, n, at.UTC().Format(time.TimeOnly)))
			}
		}
	}
	return problems
}

// compare requires that the receiver got each attempt of each run once, under one event id, and that attempts were cut
// off only before their task could be protected. It returns the number of long runs and of attempts that were cut off.
func (r *receiver) compare(runs []ledgerRun, s *service, from, to time.Time) (long, cut int, problems []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	attempts := map[[2]int64]int{}
	for _, run := range runs {
		attempts[[2]int64{run.Trigger, run.Scheduled}] = run.Attempt
	}
	for key, all := range r.arrivals {
		if key.scheduled < from.UnixMilli() || key.scheduled >= to.UnixMilli() {
			continue
		}
		what := fmt.Sprintf("%s/%s at %s", key.job, key.trigger, time.UnixMilli(key.scheduled).UTC().Format(time.TimeOnly))
		id := [2]int64{run.TriggerID(appName, key.job, key.trigger), key.scheduled}
		numbers := map[int]int{}
		for _, a := range all {
			if numbers[a.attempt]++; a.event != all[0].event {
				problems = append(problems, what+": two event ids")
			}
			if a.cut {
				if cut++; !s.excuses(a) {
					problems = append(problems, fmt.Sprintf("%s: attempt %d was cut off after %s", what, a.attempt, a.ended.Sub(a.at).Round(time.Second)))
				}
			}
		}
		if all[0].long {
			long++
		}
		for number, n := range numbers {
			if n > 1 {
				problems = append(problems, fmt.Sprintf("%s: attempt %d arrived %d times", what, number, n))
			}
		}
		if len(numbers) != attempts[id] {
			problems = append(problems, fmt.Sprintf("%s: %d attempts arrived, the ledger has %d", what, len(numbers), attempts[id]))
		}
		delete(attempts, id)
	}
	for id := range attempts {
		problems = append(problems, fmt.Sprintf("the run of trigger %d at %d is in the ledger and never arrived", id[0], id[1]))
	}
	return long, cut, problems
}

// excuses reports whether a task was told to stop just after it had begun an attempt, before ECS granted protection.
func (s *service) excuses(a *arrival) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.tasks, func(t *task) bool {
		return !t.told.IsZero() && t.told.Sub(a.at) < uncovered && a.at.Sub(t.told) < uncovered
	})
}

// verify makes the product compare ledger and schedules, too.
func (s *service) verify(ctx context.Context, w *world, to time.Time) error {
	address, err := s.api()
	if err != nil {
		return err
	}
	program := s.rollouts[len(s.rollouts)-1].version.program
	token, err := exec.CommandContext(ctx, program, "token", "create", "--database", w.url, "--name", "rollout",
		"--scope", "read,metrics").Output()
	if err != nil {
		return fmt.Errorf("carillon token create: %w", err)
	}
	verify := exec.CommandContext(ctx, program, "verify", appName, "--endpoint", address, //nolint:gosec // this program built it
		"--since", w.from.UTC().Format(time.RFC3339), "--until", to.UTC().Format(time.RFC3339))
	verify.Env = append(os.Environ(), "CARILLON_TOKEN="+strings.TrimSpace(string(token)))
	if out, err := verify.CombinedOutput(); err != nil {
		return fmt.Errorf("carillon verify: %w: %s", err, out)
	}
	return nil
}
