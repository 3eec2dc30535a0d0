package main

import (
	"database/sql"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/test/need"
)

// A node is killed between every two steps of a fire and of its count. In the end the objective has
// counted each fire of the ledger exactly once.
func TestKillBetweenAnyTwoStepsOfAnObjectiveCountsEachFireOnce(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	program, err := mortal()
	if err != nil {
		t.Fatal(err)
	}
	onBothDatabases(t, func(t *testing.T, database string) {
		r := newReceiver(t, func(http.ResponseWriter, arrival) {})
		token := newToken(t, database)
		args := append(quick(), "--dead-after=2s", "--breaker-failures=0")
		n := startNode(t, database, token, args...)
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "kill", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
		names := []string{"first", "second"}
		for _, name := range names {
			job := webhookJob("kill", name, r.URL+"/"+name, map[string]string{"a": "0/2 * * * * ?"})
			a := job.Triggers["a"]
			a.MisfireAfter = input.Duration(24 * time.Hour) // so that all earlier fires run
			job.Triggers["a"] = a
			job.Retry.SetDefaults()
			job.Retry.Delays, job.Retry.MaxAttempts = []input.Duration{input.Duration(100 * time.Millisecond)}, 5
			job.Objective = &dispatcher.Objective{Within: input.Duration(14*time.Minute + 30*time.Second), Of: "99%"}
			must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
		}
		n.kill()
		const back = 15 * 60 * 1000 // milliseconds
		changeRows(t, database, fmt.Sprintf(`UPDATE trigger_clock SET next_fire_time = next_fire_time - %d, due_at = due_at - %[1]d`, back),
			fmt.Sprintf(`UPDATE objectives SET counted_from = counted_from - %d, checked_to = checked_to - %[1]d`, 4*back),
			`DELETE FROM objective_triggers`) // counts that the node may already have made
		for _, at := range []failpoint.Point{
			failpoint.AfterClaim, failpoint.BeforeSend, failpoint.AfterResponse, failpoint.AfterRecord, failpoint.InObjective,
			failpoint.AfterObjective, failpoint.BeforeUnlock,
		} {
			for _, visit := range []int{1, 2} {
				lookAgain(t, database)
				victim := launchNodeIn(t, surroundings{program: program}, database, token,
					[]string{fmt.Sprintf("CHAOS=%s:kill,nth=%d", at, visit)}, args...)
				victim.awaitDeath(t, fmt.Sprintf("its visit %d of %s", visit, at))
			}
		}
		last := startNode(t, database, token, args...)
		caughtUp := time.Now().Add(-time.Minute)
		for _, name := range names {
			until(t, "fires that are in time", func() bool {
				job := must[dispatcher.Job](t)(last.Job(t.Context(), "kill", name))
				next := job.Triggers["a"].NextFireTime
				return next != nil && next.After(caughtUp)
			})
			must[dispatcher.Job](t)(last.PauseJob(t.Context(), client.Pausable{App: "kill", Job: name}, dispatcher.PauseRequest{},
				client.Condition{}))
		}
		runs := last.settled(t, "kill", time.Now().Add(time.Hour))
		to := time.Now().Add(-objectiveLag).Truncate(5 * time.Minute)
		lookAgain(t, database)
		for _, name := range names {
			last.checkCounted(t, name, to, runs)
		}
	})
}

// objectiveLag is the least time between a fire and its count.
const objectiveLag = 30 * time.Second

// lookAgain makes nodes count objectives again, as they do every five minutes.
func lookAgain(t *testing.T, database string) {
	t.Helper()
	changeRows(t, database, `UPDATE objectives SET checked_to = checked_to - 300000`)
}

// changeRows executes statements in a database.
func changeRows(t *testing.T, database string, statements ...string) {
	t.Helper()
	driver, address := "pgx", database
	if file, is := strings.CutPrefix(database, "sqlite:"); is {
		driver, address = "sqlite", "file:"+file+"?_pragma=busy_timeout(10000)"
	}
	db := must[*sql.DB](t)(sql.Open(driver, address))
	defer db.Close()
	for _, statement := range statements {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
}

// checkCounted waits until all fires before an instant are counted, and compares the counts of a job with its runs.
func (n *process) checkCounted(t *testing.T, job string, to time.Time, runs []run.Run) {
	t.Helper()
	var got dispatcher.ObjectiveStatus
	until(t, "all fires to be counted", func() bool {
		got = must[dispatcher.ObjectiveStatus](t)(n.Objective(t.Context(), "kill", job))
		return got.Pending == 0 && !got.To.Before(to)
	})
	var want dispatcher.ObjectiveCounts
	for _, r := range runs {
		if r.Job != job || r.Kind != run.KindSchedule || !r.ScheduledAt.Before(got.To) {
			continue
		}
		started := r.StartedAt
		if r.Attempt > 1 { // a list does not say when the first attempt began
			r = must[run.Run](t)(n.Run(t.Context(), r.ID))
			started = &r.Attempts[0].StartedAt
		}
		if started != nil && started.Sub(r.ScheduledAt) <= got.Within.Std() {
			want.Good++
		} else {
			want.Late++
		}
	}
	if got.ObjectiveCounts != want || want.Good == 0 || want.Late == 0 {
		t.Errorf("job %s: counted %+v before %s, want %+v as in the ledger, some of each", job, got.ObjectiveCounts, got.To, want)
	}
}
