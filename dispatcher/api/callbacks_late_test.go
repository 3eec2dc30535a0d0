package api_test

import (
	"database/sql"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/api/gate"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
	"github.com/carillon-dev/carillon/test/sqlitetest"
)

// awaited is a run of app crm in its first attempt, and the callbacks of its target.
type awaited struct {
	*world
	db    *sql.DB
	run   run.Run
	held  run.HeldRun
	token string
}

// calls makes a callback and requires a status.
func (a awaited) calls(status int, what string, headers ...string) {
	a.t.Helper()
	if len(headers) == 0 {
		headers = []string{a.token}
	}
	if got := a.do("POST", "/v1/runs/"+a.run.ID+"/"+what, "", headers...); got.Code != status {
		a.t.Errorf("%s: status %d, want %d: %s", what, got.Code, status, got.Body)
	}
}

// each makes callbacks of all kinds and requires the same status for them.
func (a awaited) each(status int, headers ...string) {
	a.t.Helper()
	for _, what := range []string{"complete", "fail", "heartbeat"} {
		a.calls(status, what, headers...)
	}
}

// accepted makes the run wait until a time from now.
func (a awaited) accepted(until time.Duration) {
	a.t.Helper()
	a.record(a.held, run.WaitingCallback,
		&dispatcher.NextAttempt{At: time.Now().Add(until), Callback: &run.Callback{Within: time.Hour}})
}

// adoptedRetry gives node 7 the run, which is due.
func (a awaited) adoptedRetry() run.HeldRun {
	a.t.Helper()
	query := dispatcher.AdoptQuery{Node: 7, Token: 71, Limit: 10, Retries: true}
	found, err := a.store.Adoptable(a.t.Context(), query)
	if err != nil {
		a.t.Fatal(err)
	}
	held, err := a.store.Adopt(a.t.Context(), query, found)
	if err != nil || len(held) != 1 {
		a.t.Fatalf("adopted %v, error %v, want the run", held, err)
	}
	return held[0]
}

// nextIn is an attempt that follows at a time from now.
func nextIn(d time.Duration) *dispatcher.NextAttempt {
	return &dispatcher.NextAttempt{At: time.Now().Add(d), Until: time.Now().Add(24 * time.Hour)}
}

// documentedCallbacks are the rows of the table of callbacks in docs/long-work.md.
func documentedCallbacks(t *testing.T) map[string]int {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "long-work.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n| the callback | status |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := map[string]int{}
	for _, row := range regexp.MustCompile(`(?m)^\| (.+) \| (\d+) \|$`).FindAllStringSubmatch(table, -1) {
		text := regexp.MustCompile(`\[(.+?)\]\(.+?\)`).ReplaceAllString(row[1], "$1")
		if rows[text], err = strconv.Atoi(row[2]); err != nil {
			t.Fatal(err)
		}
	}
	return rows
}

// callbackCases make the callbacks of the rows, and require the status of the row.
func callbackCases() map[string]func(a awaited, status int) {
	const again = time.Hour
	return map[string]func(a awaited, status int){
		"comes before the response 202 is recorded": func(a awaited, status int) {
			a.calls(status, "heartbeat")
			a.calls(status, "complete")
		},
		"is repeated": func(a awaited, status int) {
			a.accepted(again)
			for _, what := range []string{"heartbeat", "heartbeat", "complete", "complete"} {
				a.calls(status, what)
			}
		},
		"comes after the deadline, and no node has noticed that yet, which takes seconds": func(a awaited, status int) {
			a.accepted(-time.Second)
			a.calls(status, "heartbeat")
			a.calls(status, "complete")
		},
		"comes after the deadline, and the run has timed out": func(a awaited, status int) {
			a.accepted(-time.Second)
			a.record(a.adoptedRetry(), run.TimedOut, nil)
			a.each(status)
		},
		"comes after the deadline, and the run is to be attempted again": func(a awaited, status int) {
			a.accepted(-time.Second)
			a.record(a.adoptedRetry(), run.TimedOut, nextIn(again))
			a.each(status)
		},
		"is of an attempt, and the next one has begun": func(a awaited, status int) {
			a.record(a.held, run.Failed, nextIn(-time.Second))
			if next := a.adoptedRetry(); next.Attempt != 2 {
				a.t.Fatalf("adopted %+v, want the second attempt", next)
			}
			a.each(status)
		},
		"says another end than the one before": func(a awaited, status int) {
			a.accepted(again)
			a.calls(http.StatusOK, "complete")
			a.calls(status, "fail")
		},
		"is a heartbeat after the end": func(a awaited, status int) {
			a.accepted(again)
			a.calls(http.StatusOK, "complete")
			a.calls(status, "heartbeat")
		},
		"comes after the run was cancelled": func(a awaited, status int) {
			a.accepted(again)
			a.must(http.StatusOK, "POST", "/v1/runs/"+a.run.ID+"/cancel", "")
			a.each(status)
		},
		"has a token that was changed, or none": func(a awaited, status int) {
			a.accepted(again)
			a.each(status, a.token[:len(a.token)-1])
			a.each(status, "Authorization:")
		},
		"has the token of another run of the app": func(a awaited, status int) {
			a.accepted(again)
			other := into[run.Run](a.must(http.StatusAccepted, "POST", oneJob+"/run", ""))
			a.each(status, a.callbackToken(other, 1))
		},
		"has the token of a run of another app": func(a awaited, status int) {
			a.accepted(again)
			other, _ := a.longRun("shop")
			a.each(status, a.callbackToken(other, 1))
		},
		"has the token of an attempt that is still to come": func(a awaited, status int) {
			a.accepted(again)
			a.each(status, a.callbackToken(a.run, 2))
		},
		"has an API token that is bound to another app": func(a awaited, status int) {
			a.accepted(again)
			a.must(http.StatusCreated, "PUT", "/v1/apps/shop", `{}`)
			a.each(status, "Authorization: Bearer "+a.newToken("shop", writes, "shop"))
		},
		"is of a run that a rollback of the database has taken away": func(a awaited, status int) {
			a.accepted(again)
			if _, err := a.db.ExecContext(a.t.Context(), `DELETE FROM live_runs`); err != nil {
				a.t.Fatal(err)
			}
			a.each(status)
		},
		"is of a run whose job is deleted": func(a awaited, status int) {
			a.accepted(again)
			a.must(http.StatusNoContent, "DELETE", oneJob, "")
			a.calls(status, "heartbeat")
			a.calls(status, "complete")
		},
	}
}

// Each row of the table in the docs is true, on both databases.
func TestCallbacksAreAnsweredAsDocumented(t *testing.T) {
	t.Parallel()
	rows, cases := documentedCallbacks(t), callbackCases()
	for row := range cases {
		if rows[row] == 0 {
			t.Errorf("docs/long-work.md says nothing of a callback that %s", row)
		}
	}
	for kind, open := range map[string]func(t *testing.T) (dsn, driver, address string){
		"PostgreSQL": func(t *testing.T) (dsn, driver, address string) {
			t.Helper()
			dsn = pgtest.New(t)
			return dsn, "pgx", dsn
		},
		"SQLite": func(t *testing.T) (dsn, driver, address string) {
			t.Helper()
			file := filepath.Join(t.TempDir(), "carillon.db")
			return sqlitetest.At(t, file), "sqlite", "file:" + file + "?_pragma=busy_timeout(60000)"
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for row, status := range rows {
				t.Run(row, func(t *testing.T) {
					t.Parallel()
					do := cases[row]
					if do == nil {
						t.Fatal("the docs have a row that no case shows")
					}
					dsn, driver, address := open(t)
					db, err := sql.Open(driver, address)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { db.Close() })
					w := newWorldAt(t, api.Options{Limits: gate.Limits{BadTokens: 1000}}, store.Options{}, dsn)
					w.register(t.Context(), 7)
					run, held := w.longRun("crm")
					do(awaited{w, db, run, held, w.callbackToken(run, 1)}, status)
				})
			}
		})
	}
}
