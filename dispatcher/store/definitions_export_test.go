package store_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/verify"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
	"github.com/carillon-dev/carillon/test/sqlitetest"
)

// moving is an app in one installation, and a second installation.
type moving struct {
	t        *testing.T
	old, new *store.Store
	now      time.Time
}

// onMoves runs a test from PostgreSQL to SQLite and back.
func onMoves(t *testing.T, test func(t *testing.T, m moving)) {
	postgres := func(t *testing.T) *store.Store { return open(t, pgtest.New(t)) }
	sqlite := func(t *testing.T) *store.Store { return open(t, sqlitetest.New(t)) }
	for name, stores := range map[string][2]func(*testing.T) *store.Store{
		"from PostgreSQL to SQLite": {postgres, sqlite}, "from SQLite to PostgreSQL": {sqlite, postgres},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := moving{t: t, old: stores[0](t), new: stores[1](t), now: time.Now().UTC().Truncate(time.Second)}
			app := access.App{Name: "app",
				AppSpec: access.AppSpec{Enabled: true, Bounds: &target.Bounds{Weight: 3}, Retention: input.Duration(days(7)),
					Defaults: &dispatcher.JobDefaults{Timezone: "Europe/Berlin"}}}
			_, _, err := m.old.PutApp(t.Context(), app, m.at(-time.Hour))
			must(t, err)
			test(t, m)
		})
	}
}

func (m moving) at(off time.Duration) input.Change {
	return input.Change{Actor: "test", Now: m.now.Add(off), Operator: true}
}

// declare stores a job with one trigger, an hour ago.
func (m moving) declare(name string, change func(*dispatcher.Job, *dispatcher.Trigger)) dispatcher.Job {
	m.t.Helper()
	trigger := dispatcher.Trigger{}
	trigger.SetDefaults()
	trigger.Expression = "rate(10m)"
	job := dispatcher.Job{App: "app", Name: name, JobSpec: dispatcher.JobSpec{Enabled: true}}
	job.SetDefaults()
	job.Target.Webhook = &target.Webhook{URL: "http://127.0.0.1/", Method: "POST", Timeout: target.DefaultTimeout}
	if change != nil {
		change(&job, &trigger)
	}
	job.Triggers = map[string]dispatcher.Trigger{"t": trigger}
	stored, _, err := m.old.PutJob(m.t.Context(), job, m.at(-time.Hour))
	must(m.t, err)
	return stored
}

func (m moving) disable() {
	m.t.Helper()
	app, err := m.old.App(m.t.Context(), "app")
	must(m.t, err)
	app.Enabled = false
	_, _, err = m.old.PutApp(m.t.Context(), app, m.at(0))
	must(m.t, err)
}

// move exports the disabled app and imports it, enabled.
func (m moving) move() access.Export {
	m.t.Helper()
	m.disable()
	export, err := m.old.ExportApp(m.t.Context(), "app")
	must(m.t, err)
	export.App.Enabled = true
	_, err = m.new.ImportApp(m.t.Context(), export, m.at(time.Second))
	must(m.t, err)
	return export
}

// A move preserves the definition of an app and its progress, including fires that were due before.
func TestImportedAppKeepsItsProgress(t *testing.T) {
	t.Parallel()
	onMoves(t, func(t *testing.T, m moving) {
		freeze := dispatcher.Calendar{App: "app", Name: "freeze", CalendarSpec: dispatcher.CalendarSpec{Timezone: "Europe/Berlin"}}
		_, _, err := m.old.PutCalendar(t.Context(), freeze, m.at(-2*time.Hour))
		must(t, err)
		m.declare("due", nil) // its fire of 50 minutes ago has not run
		m.declare("calendar", func(_ *dispatcher.Job, t *dispatcher.Trigger) { t.Calendar = "freeze" })
		m.declare("once", func(_ *dispatcher.Job, t *dispatcher.Trigger) { t.Expression = "at(2099-05-01T10:00:00Z)" })
		m.declare("jitter", func(_ *dispatcher.Job, t *dispatcher.Trigger) { t.Jitter = input.Duration(time.Minute) })
		m.declare("paused", nil)
		_, err = m.old.PauseJob(t.Context(), "app", "paused", "", true, m.at(-time.Minute))
		must(t, err)
		m.declare("held", nil)
		why := m.at(-time.Minute)
		why.Reason = "a migration"
		_, err = m.old.PauseJob(t.Context(), "app", "held", "t", true, why)
		must(t, err)
		export := m.move()
		if given, err := m.new.JobDefaults(t.Context(), "app"); err != nil || !cmp.Equal(given, export.App.Defaults) || given == nil {
			t.Errorf("defaults of the app are %+v, %v, want %+v", given, err, export.App.Defaults)
		}
		for _, name := range []string{"due", "calendar", "once", "jitter", "paused", "held"} {
			was, err := m.old.Job(t.Context(), "app", name)
			must(t, err)
			is, err := m.new.Job(t.Context(), "app", name)
			must(t, err)
			others := cmpopts.IgnoreFields(dispatcher.Job{}, "CreatedAt", "UpdatedAt")
			if diff := cmp.Diff(was, is, others, cmpopts.IgnoreFields(dispatcher.Pause{}, "PausedAt"), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("job %s (-before +after):\n%s", name, diff)
			}
		}
		due, err := m.new.Due(t.Context(), dispatcher.DueQuery{Until: m.now, Now: m.now.Add(-time.Hour), Limit: 10})
		must(t, err)
		if len(due) == 0 || !due[0].NextFireTime.Equal(m.now.Add(-50*time.Minute)) {
			t.Errorf("due are %+v, want first what was owed 50 minutes ago", due)
		}
		query := dispatcher.DueQuery{Until: m.now, Now: m.now.Add(-time.Hour), Limit: 10}
		if old, err := m.old.Due(t.Context(), query); err != nil || len(old) > 0 {
			t.Errorf("where it was, %+v, %v are due; want nothing", old, err)
		}
	})
}

// Pauses of an app move with it and hold the same jobs from the start; the import counts as their author. An expired
// pause is left behind.
func TestPausesMoveWithTheirApp(t *testing.T) {
	t.Parallel()
	onMoves(t, func(t *testing.T, m moving) {
		m.declare("held", func(j *dispatcher.Job, _ *dispatcher.Trigger) { j.Labels = input.Labels{"team": "payments"} })
		m.declare("free", nil)
		over, later := m.now.Add(time.Millisecond), m.now.Add(time.Hour)
		for _, asked := range []dispatcher.AppPauseRequest{
			{Labels: input.Labels{"team": "payments"}, Reason: "a migration", Until: &later},
			{Until: &over},
		} {
			_, err := m.old.PauseApp(t.Context(), "app", asked, m.at(-time.Minute))
			must(t, err)
		}
		m.move()
		pauses, err := m.new.AppPauses(t.Context(), "app")
		must(t, err)
		if len(pauses) != 1 || pauses[0].Reason != "a migration" || !pauses[0].Until.Equal(later) || !pauses[0].PausedAt.After(m.now) {
			t.Errorf("the app has the pauses %+v, want the one whose time is not over, of the import", pauses)
		}
		states := map[string]dispatcher.JobState{}
		for _, name := range []string{"held", "free"} {
			job, err := m.new.Job(t.Context(), "app", name)
			must(t, err)
			states[name] = job.State
		}
		want := map[string]dispatcher.JobState{"held": dispatcher.JobPaused, "free": dispatcher.JobExecuting}
		if diff := cmp.Diff(want, states); diff != "" {
			t.Errorf("states of the jobs (-want +got):\n%s", diff)
		}
		due, err := m.new.Due(t.Context(), dispatcher.DueQuery{Until: later, Now: m.now.Add(-time.Hour), Limit: 10})
		must(t, err)
		if len(due) != 1 || due[0].ID != run.TriggerID("app", "free", "t") {
			t.Errorf("due are %+v, want only the trigger of the job that is not held", due)
		}
	})
}

// A waiting run moves with its app. Another trigger may have an older due fire, so that the history of the app begins
// before that of the run's trigger: verify still knows the origin of the run.
func TestVerifyExpectsRunsThatMoved(t *testing.T) {
	t.Parallel()
	onMoves(t, func(t *testing.T, m moving) {
		m.declare("owes", nil)
		m.declare("waits", nil)
		must(t, m.old.Register(t.Context(), dispatcher.Node{ID: 1}, m.now))
		due, err := m.old.Due(t.Context(), dispatcher.DueQuery{Until: m.now, Now: m.now.Add(-time.Hour), Limit: 10,
			JobIDs: []int64{run.JobID("app", "waits")}})
		must(t, err)
		held, err := m.old.Claim(t.Context(), dispatcher.ClaimBatch{Node: 1, Token: 5, Now: m.now, Advances: []dispatcher.Advance{{
			TriggerID: due[0].ID, JobID: run.JobID("app", "waits"), Revision: due[0].Revision, Next: due[0].NextFireTime,
			Then: m.now.Add(10 * time.Minute),
		}}})
		must(t, err)
		m.disable()
		must(t, m.old.Record(t.Context(), []dispatcher.Record{{
			Key: held[0].Key, JobID: held[0].JobID, Revision: held[0].Revision, Node: 1, Token: 5, Attempt: 1, ClaimedAt: m.now,
			Outcome: run.Outcome{State: run.Failed, StartedAt: m.now, EndedAt: m.now},
			Next:    &dispatcher.NextAttempt{At: m.now.Add(time.Minute), Until: m.now.Add(time.Hour), CountsAsFailure: true},
		}}))
		m.move()
		query := verify.Query{App: "app", Now: m.now.Add(2 * time.Second), Page: input.Page{Limit: 10}}
		page, err := verify.Ledger(t.Context(), m.new, query)
		must(t, err)
		if len(page.Items) != 2 {
			t.Fatalf("verify tells of %d triggers, want 2", len(page.Items))
		}
		for _, trigger := range page.Items {
			if len(trigger.Discrepancies) > 0 {
				t.Errorf("%s/%s has discrepancies %+v, want none", trigger.Job, trigger.Trigger, trigger.Discrepancies)
			}
		}
	})
}

// An attempt accepted by its target must end here, on any node: elsewhere the target would be called again.
func TestExportRefusesAcceptedAttempts(t *testing.T) {
	t.Parallel()
	onMoves(t, func(t *testing.T, m moving) {
		m.declare("job", nil)
		must(t, m.old.Register(t.Context(), dispatcher.Node{ID: 1}, m.now))
		r, err := m.old.RequestRun(t.Context(), "app", "job", nil, m.at(0))
		must(t, err)
		query := dispatcher.AdoptQuery{Node: 1, Token: 5, Limit: 1, Now: m.now}
		adopt := func() run.HeldRun {
			t.Helper()
			found, err := m.old.Adoptable(t.Context(), query)
			must(t, err)
			held, err := m.old.Adopt(t.Context(), query, found)
			if must(t, err); len(held) != 1 {
				t.Fatalf("adopted %d runs, want 1", len(held))
			}
			return held[0]
		}
		held := adopt()
		must(t, m.old.Record(t.Context(), []dispatcher.Record{{
			Key: held.Key, JobID: held.JobID, Revision: held.Revision, Node: 1, Token: 5, Attempt: 1, ClaimedAt: m.now,
			Outcome: run.Outcome{State: run.WaitingCallback, StartedAt: m.now, EndedAt: m.now},
			Next:    &dispatcher.NextAttempt{At: m.now.Add(time.Hour), Callback: &run.Callback{Within: time.Hour}},
		}}))
		by := input.Change{Actor: run.ActorCallback, Now: m.now}
		_, err = m.old.FailRun(t.Context(), r.ID, 1, run.CallbackResult{}, by)
		must(t, err)
		query.Retries, query.Token = true, 6
		must(t, m.old.Release(t.Context(), []run.HeldRun{adopt()}))
		m.disable()
		if _, err := m.old.ExportApp(t.Context(), "app"); !errors.Is(err, dispatcher.ErrConflict) {
			t.Errorf("got error %v, want ErrConflict", err)
		}
	})
}

// An app can be exported only when its state no longer changes.
func TestExportRefusesAppsThatMayStillChange(t *testing.T) {
	t.Parallel()
	onMoves(t, func(t *testing.T, m moving) {
		m.declare("job", nil)
		refused := func(why string) {
			t.Helper()
			if _, err := m.old.ExportApp(t.Context(), "app"); !errors.Is(err, dispatcher.ErrConflict) || !strings.Contains(err.Error(), why) {
				t.Errorf("got error %v, want ErrConflict that says %s", err, why)
			}
		}
		refused("is enabled")
		must(t, m.old.Register(t.Context(), dispatcher.Node{ID: 1}, m.now))
		due, err := m.old.Due(t.Context(), dispatcher.DueQuery{Until: m.now, Now: m.now.Add(-time.Hour), Limit: 10})
		must(t, err)
		held, err := m.old.Claim(t.Context(), dispatcher.ClaimBatch{Node: 1, Token: 5, Now: m.now, Advances: []dispatcher.Advance{{
			TriggerID: due[0].ID, JobID: run.JobID("app", "job"), Revision: due[0].Revision, Next: due[0].NextFireTime,
			Then: due[0].NextFireTime.Add(10 * time.Minute),
		}}})
		must(t, err)
		m.disable()
		refused("1 of its runs are in flight")
		must(t, m.old.Record(t.Context(), []dispatcher.Record{{
			Key: held[0].Key, JobID: held[0].JobID, Revision: held[0].Revision, Node: 1, Token: 5, Attempt: 1, ClaimedAt: m.now,
			Outcome: run.Outcome{State: run.Failed, StartedAt: m.now, EndedAt: m.now},
			Next:    &dispatcher.NextAttempt{At: m.now.Add(time.Minute), Until: m.now.Add(time.Hour), CountsAsFailure: true},
		}}))
		export, err := m.old.ExportApp(t.Context(), "app")
		if err != nil || len(export.Waiting) != 1 {
			t.Fatalf("got %+v, %v, want the run that is retried", export.Waiting, err)
		}
		export.App.Enabled = true
		_, err = m.new.ImportApp(t.Context(), export, m.at(0))
		must(t, err)
		was, err := m.old.Run(t.Context(), held[0].Key.String())
		must(t, err)
		is, err := m.new.Run(t.Context(), held[0].Key.String())
		must(t, err)
		if is.State != run.Retrying || is.Attempt != was.Attempt ||
			!is.NextAttemptAt.Equal(*was.NextAttemptAt) || is.EventID != was.EventID {
			t.Errorf("the run came as %+v, was %+v", is, was)
		}
		must(t, m.new.Register(t.Context(), dispatcher.Node{ID: 2}, m.now))
		query := dispatcher.AdoptQuery{Node: 2, Token: 6, Limit: 10, Retries: true, Now: m.now.Add(time.Minute)}
		found, err := m.new.Adoptable(t.Context(), query)
		must(t, err)
		again, err := m.new.Adopt(t.Context(), query, found)
		if err != nil || len(again) != 1 || again[0].Attempt != 2 || again[0].Failures != 1 {
			t.Errorf("retried are %+v, %v, want the second attempt", again, err)
		}
	})
}

// claim registers a node that claims the due fire.
func (m moving) claim(node run.NodeID) run.HeldRun {
	m.t.Helper()
	ctx := m.t.Context()
	must(m.t, m.old.Register(ctx, dispatcher.Node{ID: node}, m.now))
	due, err := m.old.Due(ctx, dispatcher.DueQuery{Until: m.now, Now: m.now.Add(-time.Hour), Limit: 10})
	must(m.t, err)
	if len(due) != 1 {
		m.t.Fatalf("%d triggers are due, want 1", len(due))
	}
	job, err := m.old.TriggersByID(ctx, []int64{due[0].ID})
	must(m.t, err)
	held, err := m.old.Claim(ctx, dispatcher.ClaimBatch{Node: node, Token: 5, Now: m.now, Advances: []dispatcher.Advance{{
		TriggerID: due[0].ID, JobID: job[0].JobID, Revision: due[0].Revision, Next: due[0].NextFireTime, Then: m.now.Add(10 * time.Minute),
	}}})
	must(m.t, err)
	if len(held) != 1 {
		m.t.Fatalf("%d fires were claimed, want 1", len(held))
	}
	return held[0]
}

// fail records that the first attempt of a run failed.
func (m moving) fail(r run.HeldRun, next dispatcher.NextAttempt) {
	m.t.Helper()
	must(m.t, m.old.Record(m.t.Context(), []dispatcher.Record{{
		Key: r.Key, JobID: r.JobID, Revision: r.Revision, Node: 1, Token: r.Token, Attempt: 1, ClaimedAt: m.now,
		Outcome: run.Outcome{State: run.Failed, StartedAt: m.now, EndedAt: m.now}, Next: &next,
	}}))
}

// goOn returns the runs that a node of the other installation adopts at now.
func (m moving) goOn(now time.Time) []run.HeldRun {
	m.t.Helper()
	must(m.t, m.new.Register(m.t.Context(), dispatcher.Node{ID: 2}, now))
	runs, err := adopt(m.t.Context(), m.new, dispatcher.AdoptQuery{Node: 2, Token: 6, Limit: 10, Now: now})
	must(m.t, err)
	return runs
}

// No node adopts runs of a disabled app, so runs of a dead node would block the move of the app permanently. Instead
// they move, and are attempted as after an adoption.
func TestRunsOfADeadNodeMoveWithTheirApp(t *testing.T) {
	t.Parallel()
	for delivery, attempt := range map[run.Delivery]int{dispatcher.AtLeastOnce: 2, dispatcher.AtMostOnce: 1} {
		t.Run(string(delivery), func(t *testing.T) {
			t.Parallel()
			onMoves(t, func(t *testing.T, m moving) {
				m.declare("job", func(j *dispatcher.Job, _ *dispatcher.Trigger) { j.Delivery = delivery })
				held := m.claim(1)
				must(t, m.old.Deregister(t.Context(), 1))
				m.disable()
				must(t, m.old.Register(t.Context(), dispatcher.Node{ID: 3}, m.now))
				query := dispatcher.AdoptQuery{Node: 3, Token: 7, Limit: 10, Now: m.now}
				if found, err := m.old.Adoptable(t.Context(), query); err != nil || len(found) > 0 {
					t.Errorf("adoptable are %+v, %v; want nothing of a disabled app", found, err)
				}
				m.move()
				if runs := m.goOn(m.now); len(runs) != 1 || runs[0].Key != held.Key || runs[0].Attempt != attempt {
					t.Errorf("%+v goes on, want run %s with attempt %d", runs, held.Key, attempt)
				}
			})
		})
	}
}

// A run of a deleted job or a removed trigger ends at its next attempt. It does not block the move of its app.
func TestRunsOfDeletedJobsAndTriggersStay(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(m moving, job dispatcher.Job) error{
		"deleted job": func(m moving, job dispatcher.Job) error {
			return m.old.DeleteJob(m.t.Context(), "app", job.Name, m.at(0))
		},
		"removed trigger": func(m moving, job dispatcher.Job) error {
			job.Triggers = map[string]dispatcher.Trigger{"other": job.Triggers["t"]}
			_, _, err := m.old.PutJob(m.t.Context(), job, m.at(0))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onMoves(t, func(t *testing.T, m moving) {
				job := m.declare("job", nil)
				m.fail(m.claim(1), dispatcher.NextAttempt{At: m.now.Add(time.Second), Until: m.now.Add(time.Hour), CountsAsFailure: true})
				must(t, remove(m, job))
				if export := m.move(); len(export.Waiting) != 0 {
					t.Errorf("%+v moved, want no run", export.Waiting)
				}
			})
		})
	}
}

// A refused import leaves no trace and reports all problems.
func TestImportIsAllOrNothing(t *testing.T) {
	t.Parallel()
	onMoves(t, func(t *testing.T, m moving) {
		m.declare("good", nil)
		m.disable()
		export, err := m.old.ExportApp(t.Context(), "app")
		must(t, err)
		if _, err := m.old.ImportApp(t.Context(), export, m.at(0)); !errors.Is(err, dispatcher.ErrPrecondition) {
			t.Errorf("where the app is: got error %v, want ErrPrecondition", err)
		}
		bad := export
		bad.Jobs = append(bad.Jobs[:1:1], bad.Jobs[0])
		bad.Jobs[1].Job.Name = "secret"
		bad.Jobs[1].Job.Target.Webhook = new(*bad.Jobs[1].Job.Target.Webhook)
		bad.Jobs[1].Job.Target.Webhook.Auth = &target.Auth{Bearer: &target.BearerAuth{Token: target.Secret{Stored: true}}}
		_, err = m.new.ImportApp(t.Context(), bad, m.at(0))
		var problems input.Problems
		if !errors.As(err, &problems) || len(problems) != 1 || problems[0].Code != input.CodeSecretMissing ||
			!strings.HasPrefix(problems[0].Path, "/jobs/1/job/target/") {
			t.Errorf("a secret without its value: got error %v, want a problem of job 1", err)
		}
		if _, err := m.new.App(t.Context(), "app"); !errors.Is(err, dispatcher.ErrNotFound) {
			t.Errorf("after an import that was refused the app is there: %v", err)
		}
		_, err = m.new.ImportApp(t.Context(), export, m.at(0))
		must(t, err)
	})
}

// A run that waited for its host continues after the move, where the state of the host is unknown.
func TestRunWaitingForItsHostContinuesAfterAMove(t *testing.T) {
	t.Parallel()
	onMoves(t, func(t *testing.T, m moving) {
		m.declare("calls", nil)
		wait := m.wait("calls")
		export := m.move()
		if len(export.Waiting) != 1 || !export.Waiting[0].NextAttemptAt.Equal(wait.ProbeAt) {
			t.Errorf("waiting runs = %+v, want one that is attempted at %s", export.Waiting, wait.ProbeAt)
		}
		must(t, m.new.Register(t.Context(), dispatcher.Node{ID: secondNode}, time.Time{}))
		found, err := m.new.Adoptable(t.Context(), dispatcher.AdoptQuery{Node: secondNode, Limit: 10, Retries: true, Now: wait.ProbeAt})
		must(t, err)
		if len(found) != 1 {
			t.Errorf("%d runs may be adopted when the probe of the host was due, want 1", len(found))
		}
	})
}

// wait claims a fire of a job, and makes its run wait a day for its host.
func (m moving) wait(name string) dispatcher.HostWait {
	m.t.Helper()
	ctx := m.t.Context()
	must(m.t, m.old.Register(ctx, dispatcher.Node{ID: firstNode}, time.Time{}))
	due, err := m.old.Due(ctx, dispatcher.DueQuery{Until: m.now, Now: m.now.Add(-50 * time.Minute), Limit: 1})
	must(m.t, err)
	if len(due) != 1 {
		m.t.Fatalf("%d triggers are due, want 1", len(due))
	}
	held, err := m.old.Claim(ctx, dispatcher.ClaimBatch{Node: firstNode, Token: 5, Now: m.now, Advances: []dispatcher.Advance{{
		TriggerID: due[0].ID, JobID: run.JobID("app", name), Revision: due[0].Revision, Next: due[0].NextFireTime,
		Then: m.now.Add(time.Hour), ThenDue: m.now.Add(time.Hour),
	}}})
	must(m.t, err)
	if len(held) != 1 {
		m.t.Fatalf("%d fires were claimed, want 1", len(held))
	}
	wait := dispatcher.HostWait{
		ID: dispatcher.HostWaitID(held[0].JobID, "down"), AppID: run.AppID("app"), JobID: held[0].JobID, Host: "down",
		Pause: 5 * time.Second, ProbeAt: m.now.Add(time.Minute),
	}
	must(m.t, m.old.Record(ctx, []dispatcher.Record{{
		Key: held[0].Key, JobID: held[0].JobID, Revision: held[0].Revision, ClaimedAt: held[0].ClaimedAt,
		Node: firstNode, Token: held[0].Token, Attempt: 1,
		Outcome: run.Outcome{State: run.Failed, StartedAt: m.now, EndedAt: m.now, Class: run.ClassCircuitOpen},
		Next:    &dispatcher.NextAttempt{At: m.now, Until: m.now.Add(24 * time.Hour), NotAttempted: true, Wait: &wait},
	}}))
	return wait
}

// An app that moved away and was deleted at its source may come back.
func TestAppMovesAwayAndBack(t *testing.T) {
	t.Parallel()
	onMoves(t, func(t *testing.T, m moving) {
		m.declare("calls", nil)
		m.wait("calls")
		m.move()
		must(t, m.old.DeleteJob(t.Context(), "app", "calls", m.at(2*time.Second)))
		must(t, m.old.DeleteApp(t.Context(), "app", m.at(2*time.Second)))
		back := moving{t: t, old: m.new, new: m.old, now: m.now.Add(3 * time.Second)}
		back.move()
		r, err := m.old.Runs(t.Context(), dispatcher.RunQuery{App: "app", Page: input.Page{Limit: 10}})
		must(t, err)
		if len(r) != 1 || r[0].State != run.Retrying || r[0].WaitsFor != "" {
			t.Errorf("runs = %+v, want the one that was moved, which waits for no host", r)
		}
	})
}
