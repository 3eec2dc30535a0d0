package main

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

func TestLedgerIsExplainedAndVerified(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		r := newReceiver(t, nil)
		n := startNode(t, database, newToken(t, database), quick()...)
		env := []string{"CARILLON_ENDPOINT=" + n.endpoint, "CARILLON_TOKEN=" + n.token}
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "books", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
		must[dispatcher.Job](t)(n.PutJob(t.Context(),
			webhookJob("books", "ticks", r.URL, map[string]string{"tick": "* * * * * ?"}), client.Condition{}))
		at := r.await(t, "three fires", func(all []arrival) bool { return len(all) > 2 })[1].scheduled
		until(t, "the second run to be recorded", func() bool { return ended(n.allRuns("books"), at) })

		for instant, want := range map[string][]string{
			input.FormatInstant(at): {
				"run: its run ended as succeeded at attempt 1", `revision 1 came into force (put by e2e): "* * * * * ?" in UTC`,
				"scheduled; due at", "claimed by node ", "attempt 1 ended: succeeded", "next fire",
			},
			input.FormatInstant(at.Add(500 * time.Millisecond)): {`none: "* * * * * ?" in UTC does not fire at this time`},
			input.FormatInstant(at.Add(-time.Hour)):             {"none: the trigger was not declared yet", "first declared as revision 1"},
			input.FormatInstant(at.Add(time.Hour)):              {"planned: it is in the future"},
		} {
			out, errs, code := carillon(t, env, "explain", "books/ticks/tick", instant)
			if code != 0 {
				t.Errorf("explain %s: exit %d: %s", instant, code, errs)
			}
			for _, text := range want {
				if !strings.Contains(out, text) {
					t.Errorf("explain %s: got\n%swant it to say %q", instant, out, text)
				}
			}
		}
		if out, errs, code := carillon(t, env, "verify", "books"); code != 0 || !strings.Contains(out, "ticks/tick") {
			t.Errorf("verify: exit %d: %s%s", code, out, errs)
		}
		for _, args := range [][]string{
			{"explain", "books/ticks", input.FormatInstant(at)}, {"explain", "books/ticks/tick", "-1h"}, {"explain", "books/ticks", "today"},
		} {
			if out, errs, code := carillon(t, env, args...); code != 0 || !strings.Contains(out, "run: its run ended as succeeded") {
				t.Errorf("%v: exit %d: %s%s", args, code, out, errs)
			}
		}
		for _, args := range [][]string{{"explain", "books", "2026-01-01T00:00:00Z"},
			{"explain", "books/ticks/tick", "noon"}, {"verify", "books", "--since=x"}} {
			if _, _, code := carillon(t, env, args...); code != exitUsage {
				t.Errorf("%v: exit %d, want %d", args, code, exitUsage)
			}
		}
		if _, errs, code := carillon(t, env, "verify", "nosuch"); code != exitMissing || !strings.Contains(errs, "nosuch") {
			t.Errorf("verify an unknown app: exit %d: %s", code, errs)
		}
	})
}

func ended(runs []run.Run, at time.Time) bool {
	for _, run := range runs {
		if run.ScheduledAt.Equal(at) {
			return run.EndedAt != nil
		}
	}
	return false
}

func TestVerifyFailsOnMissingRun(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	database := pgtest.New(t)
	r := newReceiver(t, nil)
	n := startNode(t, database, newToken(t, database))
	env := []string{"CARILLON_ENDPOINT=" + n.endpoint, "CARILLON_TOKEN=" + n.token}
	must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "books", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
	must[dispatcher.Job](t)(n.PutJob(t.Context(),
		webhookJob("books", "ticks", r.URL, map[string]string{"tick": "* * * * * ?"}), client.Condition{}))
	at := r.await(t, "three fires", func(all []arrival) bool { return len(all) > 2 })[1].scheduled
	until(t, "the second run to be recorded", func() bool { return ended(n.allRuns("books"), at) })
	db := must[*pgx.Conn](t)(pgx.Connect(t.Context(), database))
	defer db.Close(t.Context())
	if _, err := db.Exec(t.Context(), `DELETE FROM runs WHERE scheduled_at = $1`, at.UnixMilli()); err != nil {
		t.Fatal(err)
	}
	out, errs, code := carillon(t, env, "verify", "books")
	want := "missing  " + input.FormatInstant(at) + "  books/ticks/tick"
	if code != exitNegative || !strings.Contains(out, want) || !strings.Contains(errs, "discrepancies between schedules and ledger: 1;") {
		t.Errorf("verify: exit %d: %s%s, want it to fail and to say %q", code, out, errs, want)
	}
	if out, _, code := carillon(t, env, "explain", "books/ticks/tick",
		input.FormatInstant(at)); code != exitNegative || !strings.Contains(out, "missing: ") {
		t.Errorf("explain: exit %d: %s, want it to fail", code, out)
	}
}
