package store_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// What an attempt was answered is there before its run has ended, and if it cannot be kept, the run
// ends all the same.
func TestResponsesAreStoredBeforeTheirRunsEnd(t *testing.T) {
	need.Step(t, "databases")
	t.Parallel()
	for name, test := range map[string]struct {
		lock      string // a table that somebody holds meanwhile
		ended     bool   // while it is held
		responses int
		recordErr bool
	}{
		"the run cannot end":          {lock: "runs", responses: 1},
		"the response cannot be kept": {lock: "responses", ended: true, recordErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, database := t.Context(), pgtest.New(t)
			s, r := registered(t, database)
			conn, err := pgx.Connect(ctx, database)
			must(t, err)
			defer conn.Close(ctx)
			held, err := conn.Begin(ctx)
			must(t, err)
			_, err = held.Exec(ctx, `LOCK TABLE `+test.lock+` IN EXCLUSIVE MODE`)
			must(t, err)
			record := func() error {
				return s.Record(ctx, []dispatcher.Record{{
					Key: r.Key, JobID: r.JobID, Revision: r.Revision, ClaimedAt: r.ClaimedAt, Node: firstNode,
					Token: r.Token, Attempt: 1,
					Outcome: run.Outcome{
						State: run.Succeeded, StartedAt: may1, EndedAt: may1, Response: &run.Response{Body: "yes"},
					},
				}})
			}
			recorded := make(chan error, 1)
			go func() { recorded <- record() }()
			var responses int
			var ended bool
			for deadline := time.Now().Add(waitLimit); responses != test.responses || ended != test.ended; {
				if time.Now().After(deadline) {
					t.Fatalf("%d responses, ended: %v; want %d, %v", responses, ended, test.responses, test.ended)
				}
				must(t, held.QueryRow(ctx, `SELECT (SELECT count(*) FROM responses), (SELECT count(*) > 0 FROM runs)`).Scan(&responses, &ended))
			}
			if test.recordErr {
				if err := <-recorded; err == nil {
					t.Error("no error says that the response was not kept")
				}
			}
			must(t, held.Rollback(ctx))
			if !test.recordErr {
				<-recorded // perhaps that it has waited too long
			}
			must(t, record())
			got, err := s.Run(ctx, r.String())
			must(t, err)
			if got.EndedAt == nil || len(got.Attempts) != 1 || got.Attempts[0].Response == nil || got.Attempts[0].Response.Body != "yes" {
				t.Errorf("in the end: got %+v, want an end with its response", got)
			}
		})
	}
}
