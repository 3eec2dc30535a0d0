package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

func TestQuickstartFromTerraformToReceiver(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		r := newReceiver(t, nil)
		n := startNode(t, database, newToken(t, database))
		w := newWorkspace(t, n)
		url := "-var=receiver_url=" + r.URL
		w.apply(url)

		// A trigger every 2 s for 20 s.
		arrivals := r.await(t, "ten heartbeats", func(all []arrival) bool {
			return whole(all, "/heartbeat", 11, 2*time.Second) && whole(all, "/poll", 2, 5*time.Second)
		})
		checkExactlyOnce(t, on("/heartbeat", arrivals), 2*time.Second)
		checkExactlyOnce(t, on("/poll", arrivals), 5*time.Second)
		if out, code := w.terraform("plan", "-detailed-exitcode", "-no-color", url); code != 0 {
			t.Errorf("plan after apply: exit %d, want 0 for no changes\n%s", code, out)
		}

		// Another schedule and URL take effect with the next fire.
		moved := "-var=receiver_url=" + r.URL + "/moved"
		w.apply(moved, "-var=heartbeat_expression=* * * * * ?")
		changed := time.Now()
		arrivals = r.await(t, "fires under the new schedule", func(all []arrival) bool {
			return whole(all, "/moved/heartbeat", 5, time.Second)
		})
		checkExactlyOnce(t, on("/moved/heartbeat", arrivals), time.Second)
		for _, a := range on("/heartbeat", arrivals) {
			if a.scheduled.After(changed.Add(claimLead)) {
				t.Errorf("fire of %s still went to the old URL, which was replaced by %s", a.scheduled, changed)
			}
		}

		// After the destroy, no fire comes.
		if out, code := w.terraform("destroy", "-auto-approve", "-no-color", moved); code != 0 {
			t.Fatalf("destroy: exit %d\n%s", code, out)
		}
		destroyed := time.Now()
		n.awaitLaterFire(r)
		for _, a := range r.all() {
			if a.path != "/later" && a.scheduled.After(destroyed.Add(claimLead)) {
				t.Errorf("%s fired for %s, after its destruction at %s", a.path, a.scheduled, destroyed)
			}
		}
		n.terminate()
	})
}

// awaitLaterFire waits for fires of another app that are due later. Any earlier fire would have come by then.
func (n *process) awaitLaterFire(r *receiver) {
	n.t.Helper()
	n.tick("later", r.URL+"/later")
	r.await(n.t, "later fires", func(all []arrival) bool { return len(on("/later", all)) >= 4 })
}

// claimLead is how far ahead of its scheduled time a fire may be claimed. It may then be sent
// although its job has been changed or deleted.
const claimLead = 50 * time.Millisecond

func TestJobCreatedShortlyBeforeItsInstantFiresAtIt(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		r := newReceiver(t, nil)
		n := startNode(t, database, newToken(t, database), "--poll-window=60s")
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "soon", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
		ahead := time.Second
		until(t, "a fire that no poll brings", func() bool { // which come once a minute, so that only a notification can
			ahead += time.Second
			name, polls := fmt.Sprint("once-", ahead), n.metric(t, "carillon_poll_seconds_count")
			at := time.Now().Add(ahead).UTC().Truncate(time.Millisecond)
			if _, err := n.PutJob(t.Context(), webhookJob("soon", name, r.URL+"/"+name,
				map[string]string{"once": "at(" + at.Format(time.RFC3339Nano) + ")"}), client.Condition{}); err != nil {
				t.Logf("%s: %v", name, err) // the machine was too slow
				return false
			}
			a := r.await(t, "the one-shot", func(all []arrival) bool { return len(on("/"+name, all)) > 0 })
			if a := on("/"+name, a)[0]; !a.scheduled.Equal(at) || a.at.Before(at) {
				t.Errorf("fire scheduled for %s arrived at %s, want %s", a.scheduled, a.at, at)
			}
			return n.metric(t, "carillon_poll_seconds_count") == polls
		})
	})
}

// A payout that is killed in the middle of a request is not repeated, and a fixed delay continues.
func TestKilledNodeRepeatsNoPayoutAndEndsNoFixedDelay(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		block, sent := make(chan struct{}), make(chan arrival, 2)
		defer close(block)
		r := newReceiver(t, func(w http.ResponseWriter, a arrival) {
			if a.attempt == 1 && len(sent) < 2 {
				sent <- a
				<-block
			}
			w.WriteHeader(http.StatusNoContent)
		})
		token := newToken(t, database)
		n := startNode(t, database, token, quick()...)
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "bank", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
		payout := webhookJob("bank", "payout", r.URL+"/payout", nil)
		payout.Delivery = dispatcher.AtMostOnce
		must[dispatcher.Job](t)(n.PutJob(t.Context(), payout, client.Condition{}))
		must[run.Run](t)(n.RunJob(t.Context(), "bank", "payout"))
		must[dispatcher.Job](t)(n.PutJob(t.Context(),
			webhookJob("bank", "sweep", r.URL+"/sweep", map[string]string{"after": "delay(1s)"}), client.Condition{}))
		r.await(t, "both requests", func(all []arrival) bool { return len(on("/payout", all)) == 1 && len(on("/sweep", all)) == 1 })
		n.kill()
		n = startNode(t, database, token, quick()...)

		one := on("/payout", r.all())[0].run
		until(t, "the payout to be given up", func() bool {
			return must[run.Run](t)(n.Run(t.Context(), one)).State == run.Lost
		})
		arrivals := r.await(t, "the delay to go on", func(all []arrival) bool { return len(on("/sweep", all)) >= 4 })
		if got := len(on("/payout", arrivals)); got != 1 {
			t.Errorf("the payout was requested %d times, want once", got)
		}
		n.terminate()
	})
}

func TestLastFireOfATriggerRunsBeforeItCompletes(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		r := newReceiver(t, nil)
		n := startNode(t, database, newToken(t, database))
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "last", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
		var name string
		start := inTime(t, 3*time.Second, func(start time.Time) (first *time.Time, err error) {
			name = fmt.Sprint("job-", start.Unix())
			job, err := n.PutJob(t.Context(), shortJob("last", name, r.URL+"/"+name, start), client.Condition{})
			return job.Triggers["until_end"].NextFireTime, err
		})
		end := start.Add(2 * time.Second)

		until(t, "the job to be complete", func() bool {
			return must[dispatcher.Job](t)(n.Job(t.Context(), "last", name)).State == dispatcher.JobComplete
		})
		want := map[string]bool{"one_shot " + end.String(): true}
		for at := start; !at.After(end); at = at.Add(time.Second) {
			want["until_end "+at.String()], want["three_times "+at.String()] = true, true
		}
		arrivals := r.await(t, "all seven fires", func(all []arrival) bool { return len(on("/"+name, all)) >= len(want) })
		for _, a := range on("/"+name, arrivals) {
			key := a.trigger + " " + a.scheduled.String()
			if !want[key] {
				t.Errorf("%s arrived twice, or is none of the instants", key)
			}
			delete(want, key)
		}
	})
}

// inTime declares a job with its first fire at start, a whole second that is a while ahead, and
// returns start. declare returns the actual first fire. A busy machine may declare it too late;
// then inTime tries again with twice the time.
func inTime(t *testing.T, ahead time.Duration, declare func(start time.Time) (first *time.Time, err error)) time.Time {
	t.Helper()
	for {
		start := time.Now().UTC().Truncate(time.Second).Add(ahead)
		first, err := declare(start)
		if err == nil && first != nil && first.Equal(start) {
			return start
		}
		if ahead *= 2; ahead > patience {
			t.Fatalf("declare something that first fires at %s: got %v, %v", start, first, err)
		}
	}
}

// shortJob returns a job whose three triggers have their last fires two seconds after start.
func shortJob(app, name, url string, start time.Time) dispatcher.Job {
	end := start.Add(2 * time.Second)
	job := webhookJob(app, name, url, map[string]string{
		"one_shot": "at(" + end.Format(time.RFC3339) + ")", "until_end": "* * * * * ?", "three_times": "rate(1s)",
	})
	bounded := job.Triggers["until_end"]
	bounded.StartAt, bounded.EndAt = &start, &end
	job.Triggers["until_end"] = bounded
	counted := job.Triggers["three_times"]
	counted.StartAt, counted.RepeatCount = &start, 3
	job.Triggers["three_times"] = counted
	return job
}

func TestGapOfAKilledNodeIsExplained(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		// The node is killed during this request.
		block, sent := make(chan struct{}), make(chan arrival, 1)
		defer close(block)
		r := newReceiver(t, func(w http.ResponseWriter, a arrival) {
			if a.path == "/slow" && a.attempt == 1 {
				sent <- a
				<-block
			}
			w.WriteHeader(http.StatusNoContent)
		})
		token := newToken(t, database)
		n := startNode(t, database, token, quick()...)
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "gap", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
		job := webhookJob("gap", "ticks", r.URL+"/tick", map[string]string{"tick": "* * * * * ?"})
		tick := job.Triggers["tick"]
		tick.MisfireAfter = input.Duration(2 * time.Second)
		job.Triggers["tick"] = tick
		must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
		must[dispatcher.Job](t)(n.PutJob(t.Context(), webhookJob("gap", "slow", r.URL+"/slow", nil), client.Condition{}))
		r.await(t, "ticks", func(all []arrival) bool { return len(all) >= 2 })
		must[run.Run](t)(n.RunJob(t.Context(), "gap", "slow"))

		first := receive(t, sent)
		n.kill()
		killed := time.Now()
		elapse(5 * time.Second)
		n = startNode(t, database, token, quick()...)
		after := len(r.all()) + 5
		r.await(t, "ticks after the restart", func(all []arrival) bool { return len(all) >= after })

		// The run in flight continues with its next attempt, under the same event id.
		arrivals := r.await(t, "the second attempt", func(all []arrival) bool { return len(on("/slow", all)) >= 2 })
		second := on("/slow", arrivals)[1]
		if second.attempt != 2 || second.event != first.event || second.run != first.run {
			t.Errorf("after the kill came attempt %d of run %s (event %s), want attempt 2 of %s (%s)", second.attempt,
				second.run, second.event, first.run, first.event)
		}
		until(t, "the second attempt to be recorded", func() bool {
			return must[run.Run](t)(n.Run(t.Context(), first.run)).State == run.Succeeded
		})
		one := must[run.Run](t)(n.Run(t.Context(), first.run))
		if len(one.Attempts) != 2 || one.Attempts[0].State != run.Lost {
			t.Errorf("attempts of the interrupted run = %+v, want a lost one and a second", one.Attempts)
		}

		n.terminate()
		n = startNode(t, database, token, quick()...)
		checkLedger(t, n, "gap", "ticks", time.Second, killed)
	})
}

// checkLedger requires that every scheduled time from the first run on has exactly one scheduled
// run or one misfire, and that at least one misfire covers the time of a crash.
func checkLedger(t *testing.T, n *process, app, job string, step time.Duration, crash time.Time) {
	t.Helper()
	account := map[time.Time]int{}
	var first, last time.Time
	for _, r := range n.allRuns(app) {
		if r.Job != job || r.Kind != run.KindSchedule {
			continue
		}
		account[r.ScheduledAt]++
		if first.IsZero() || r.ScheduledAt.Before(first) {
			first = r.ScheduledAt
		}
		if r.ScheduledAt.After(last) {
			last = r.ScheduledAt
		}
	}
	misfires := must[client.List[dispatcher.Misfire]](t)(n.Misfires(t.Context(),
		dispatcher.RunQuery{App: app, Job: job, Page: input.Page{Limit: 1000}}))
	covered := false
	for _, m := range misfires.Items {
		for at := m.From; !at.After(m.To); at = at.Add(step) {
			account[at]++
		}
		covered = covered || m.To.After(crash) && m.Decision == dispatcher.DecisionFireOnce && m.Run != ""
	}
	if !covered {
		t.Errorf("no misfire with a catch-up run covers the crash at %s: %+v", crash, misfires.Items)
	}
	for at := first; !at.After(last); at = at.Add(step) {
		if account[at] != 1 {
			t.Errorf("instant %s is accounted for %d times, want once", at, account[at])
		}
	}
}

func TestFiresAreOnTimeAgainAfterAPauseThatMissedSome(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		r := newReceiver(t, nil)
		n := startNode(t, database, newToken(t, database), append(quick(), "--poll-window=60s")...)
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "pause", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
		job := webhookJob("pause", "ticks", r.URL, map[string]string{"tick": "* * * * * ?"})
		tick := job.Triggers["tick"]
		tick.MisfireAfter = input.Duration(10 * time.Second) // shorter than the poll window
		job.Triggers["tick"] = tick
		must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
		of := func(kind run.Kind) (count int) {
			for _, a := range r.all() {
				if a.kind == string(kind) {
					count++
				}
			}
			return count
		}
		until(t, "a first fire", func() bool { return of(run.KindSchedule) > 0 })
		must[dispatcher.Job](t)(n.PauseJob(t.Context(), client.Pausable{App: "pause", Job: "ticks"}, dispatcher.PauseRequest{},
			client.Condition{}))
		paused := time.Now()
		elapse(14 * time.Second) // so that fires of the first seconds are missed
		resumed := time.Now()
		must[dispatcher.Job](t)(n.ResumeJob(t.Context(), client.Pausable{App: "pause", Job: "ticks"}, client.Condition{}))
		until(t, "fires on time", func() bool {
			return slices.ContainsFunc(r.all(), func(a arrival) bool {
				return a.kind == string(run.KindSchedule) && a.scheduled.After(resumed.Add(4*time.Second))
			})
		})
		until(t, "the catch-up run for the pause", func() bool { return of(run.KindCatchUp) >= 1 })
		caughtUp := 0 // a busy machine may miss other fires
		query := dispatcher.RunQuery{App: "pause", Job: "ticks"}
		for _, m := range must[client.List[dispatcher.Misfire]](t)(n.Misfires(t.Context(), query)).Items {
			if m.From.Before(resumed) && m.To.After(paused) && m.Run != "" {
				caughtUp++
			}
		}
		if caughtUp != 1 {
			t.Errorf("%d catch-up runs stand for fires of the pause, want one", caughtUp)
		}
		for _, a := range r.all() {
			if a.kind == string(run.KindSchedule) && a.scheduled.After(paused.Add(time.Second)) &&
				a.scheduled.Before(paused.Add(2*time.Second)) {
				t.Errorf("%s fired, though the job was paused", a.scheduled)
			}
		}
	})
}

func TestTwoNodesShareWithoutDoubleOrMissingFires(t *testing.T) {
	need.Step(t, "fleets")
	t.Parallel()
	database := pgtest.New(t)
	r := newReceiver(t, nil)
	token := newToken(t, database)
	a := startNode(t, database, token, "--node-name=a", "--heartbeat=500ms")
	b := startNode(t, database, token, "--node-name=b", "--heartbeat=500ms")
	must[access.App](t)(a.PutApp(t.Context(), access.App{Name: "two", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
	const jobs, perJob = 4, 50
	start := inTime(t, 6*time.Second, func(start time.Time) (*time.Time, error) { return declareShared(a, r.URL, start, jobs, perJob) })
	path := fmt.Sprint("/", start.Unix())
	const fires = jobs * perJob * 20
	arrivals := on(path, r.await(t, "all fires", func(all []arrival) bool { return len(on(path, all)) >= fires }))
	byTrigger := map[string][]arrival{}
	for _, arrived := range arrivals {
		byTrigger[arrived.trigger] = append(byTrigger[arrived.trigger], arrived)
	}
	for _, some := range byTrigger {
		checkExactlyOnce(t, some, time.Second)
	}
	if len(arrivals) != fires || len(byTrigger) != jobs*perJob {
		t.Errorf("%d fires of %d triggers arrived, want %d of %d", len(arrivals), len(byTrigger), fires, jobs*perJob)
	}
	work := map[string]int{}
	until(t, "all runs to be recorded", func() bool {
		work = map[string]int{}
		done := 0
		for _, one := range a.allRuns("two") {
			if !strings.HasPrefix(one.Job, path[1:]) {
				continue
			}
			if one.State == run.Succeeded {
				done++
			}
			work[one.Node.String()]++
		}
		return done == fires
	})
	if len(work) != 2 {
		t.Errorf("fires by node = %v, want both nodes at work", work)
	}
	a.terminate()
	b.terminate()
}

// declareShared declares jobs with triggers that fire twenty times from start on, and returns the
// first fire of the last declared job. Names and paths of the jobs begin with start.
func declareShared(n *process, url string, start time.Time, jobs, perJob int) (first *time.Time, err error) {
	n.t.Helper()
	end := start.Add(19 * time.Second)
	for j := range jobs {
		job := webhookJob("two", fmt.Sprintf("%d-job-%d", start.Unix(), j), fmt.Sprint(url, "/", start.Unix()), map[string]string{})
		for i := range perJob {
			trigger := dispatcher.Trigger{}
			trigger.SetDefaults()
			trigger.Expression, trigger.Timezone, trigger.StartAt, trigger.EndAt = "* * * * * ?", "UTC", &start, &end
			job.Triggers[fmt.Sprintf("t%d-%d", j, i)] = trigger
		}
		stored, err := n.PutJob(n.t.Context(), job, client.Condition{})
		if err != nil {
			return nil, err
		}
		first = stored.Triggers[fmt.Sprintf("t%d-%d", j, perJob-1)].NextFireTime
	}
	return first, nil
}

func TestDrainFinishesRunsInFlight(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		sent, release := make(chan struct{}, 1), make(chan struct{})
		r := newReceiver(t, func(w http.ResponseWriter, _ arrival) {
			sent <- struct{}{}
			<-release
			w.WriteHeader(http.StatusNoContent)
		})
		token := newToken(t, database)
		n := startNode(t, database, token, "--drain-timeout="+patience.String())
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "drain", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
		job := must[dispatcher.Job](t)(n.PutJob(t.Context(), webhookJob("drain", "slow", r.URL, nil), client.Condition{}))
		one := must[run.Run](t)(n.RunJob(t.Context(), job.App, job.Name))
		receive(t, sent)
		n.beginDrain()
		close(release)
		n.awaitEnd()
		if log := n.logs.String(); !strings.Contains(log, `"msg":"drained"`) {
			t.Error("the log does not say that the node drained")
		}
		n = startNode(t, database, token)
		if got := must[run.Run](t)(n.Run(t.Context(), one.ID)); got.State != run.Succeeded || got.Attempt != 1 {
			t.Errorf("run = %+v, want it succeeded at the first attempt", got)
		}
	})
}
