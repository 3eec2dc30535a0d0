package store_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// A failover may lose the record of a fire and keep its claim. The record of the claim's other fire, by the process that
// knows both to be recorded, does not end the claim: the first fire is attempted again.
func TestFireWhoseRecordWasLostStaysInItsClaim(t *testing.T) {
	t.Parallel()
	ctx, database := t.Context(), pgtest.New(t)
	s := open(t, database)
	now := time.Now().UTC().Truncate(time.Second)
	change := input.Change{Actor: "test", Now: now.Add(-time.Hour)}
	_, _, err := s.PutApp(ctx, access.App{Name: "app", AppSpec: access.AppSpec{Enabled: true}}, change)
	must(t, err)
	trigger := dispatcher.Trigger{TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: "rate(1m)"}, Enabled: true,
		MisfireAfter: input.Duration(24 * time.Hour)}}
	_, _, err = s.PutJob(ctx, dispatcher.Job{App: "app", Name: "job", JobSpec: dispatcher.JobSpec{Enabled: true,
		Triggers: map[string]dispatcher.Trigger{"a": trigger, "b": trigger},
		Target:   target.Target{Webhook: &target.Webhook{URL: "http://127.0.0.1", Method: "POST", Timeout: target.DefaultTimeout}}},
	}, change)
	must(t, err)
	must(t, s.Register(ctx, dispatcher.Node{ID: firstNode}, time.Time{}))
	due, err := s.Due(ctx, dispatcher.DueQuery{Until: now, Now: now, Limit: 10})
	must(t, err)
	batch := dispatcher.ClaimBatch{Node: firstNode, Token: 5}
	for _, d := range due {
		batch.Advances = append(batch.Advances, dispatcher.Advance{TriggerID: d.ID, JobID: run.JobID("app", "job"),
			Revision: d.Revision, Next: d.NextFireTime, Then: d.NextFireTime.Add(time.Minute)})
	}
	held, err := s.Claim(ctx, batch)
	must(t, err)
	if len(held) != 2 {
		t.Fatalf("%d fires were claimed, want 2", len(held))
	}
	record := func(r run.HeldRun) {
		response(t, func() error {
			return s.Record(ctx, []dispatcher.Record{{
				Key: r.Key, JobID: r.JobID, Revision: r.Revision, ClaimedAt: r.ClaimedAt, Node: firstNode,
				Token: r.Token, Attempt: 1, Outcome: run.Outcome{State: run.Succeeded, StartedAt: now, EndedAt: now},
			}})
		})
	}
	record(held[0])
	conn, err := pgx.Connect(ctx, database)
	must(t, err)
	defer conn.Close(ctx)
	for _, lose := range []string{`DELETE FROM runs`,
		`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`} {
		_, err = conn.Exec(ctx, lose)
		must(t, err)
	}
	for range 20 { // another statement than the record finds that the connections are cut
		_, _ = s.Rollback(ctx)
	}
	record(held[1])
	open, err := s.Held(ctx, firstNode, 0)
	must(t, err)
	if len(open) != 1 || open[0].Key != held[0].Key {
		t.Errorf("the node holds %+v, want the fire whose record was lost", open)
	}
}
