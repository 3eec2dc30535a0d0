package store_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/store/pgtest"
)

// BenchmarkClaimRecord measures what a fire costs the store: its claim with the insert of
// its run, and its record, in batches, over two connections, written through to the disk.
func BenchmarkClaimRecord(b *testing.B) {
	b.Run("PostgreSQL", func(b *testing.B) { benchClaimRecord(b, open(b, pgtest.New(b, pgtest.Fsync))) })
	b.Run("SQLite", func(b *testing.B) { benchClaimRecord(b, open(b, newFile(b))) })
}

func benchClaimRecord(b *testing.B, s dispatcher.Store) {
	const workers, jobs, batch = 2, 200, 500 // a hundred triggers per job: 20,000
	start := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	for n := range workers {
		must(b, s.Register(b.Context(), dispatcher.Node{ID: dispatcher.NodeID(n + 1)}, start))
	}
	for n := range 31 { // a month of history, which is empty but for its partitions
		tidy(b, s, start.Add(days(n-30)))
	}
	declareMany(b, s, jobs, func(t *dispatcher.Trigger) { t.Expression, t.StartAt = "rate(1s)", &start }, start)
	due := dueAll(b, s, start)
	each := len(due) / workers
	b.ResetTimer()
	done := make(chan error, workers)
	for n := range workers {
		w := &claimer{store: s, node: dispatcher.NodeID(workers), due: due[n*each : (n+1)*each]}
		rounds := b.N/workers + n*(b.N%workers)
		go func() {
			for range rounds {
				if err := w.step(b, batch); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range workers {
		must(b, <-done)
	}
	b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "fires/s")
	b.ReportMetric(0, "ns/op")
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// declareMany puts jobs with a hundred triggers each, as define makes them, just before start.
func declareMany(b *testing.B, s dispatcher.Store, jobs int, define func(*dispatcher.Trigger), start time.Time) {
	b.Helper()
	change := dispatcher.Change{Actor: "bench", Now: start.Add(-time.Second)}
	_, err := s.PutApp(b.Context(), dispatcher.App{Name: "bench", Enabled: true}, change)
	must(b, err)
	for i := range jobs {
		job := dispatcher.Job{
			App: "bench", Name: fmt.Sprintf("job%d", i), Enabled: true, Triggers: map[string]dispatcher.Trigger{},
			Target: dispatcher.Target{Webhook: &dispatcher.Webhook{URL: "http://127.0.0.1", Method: "POST", Timeout: dispatcher.DefaultTimeout}},
		}
		for n := range dispatcher.MaxTriggers {
			trigger := dispatcher.Trigger{MisfireAfter: dispatcher.DefaultMisfireAfter, Enabled: true}
			define(&trigger)
			job.Triggers[fmt.Sprintf("t%d", n)] = trigger
		}
		_, err := s.PutJob(b.Context(), job, change)
		must(b, err)
	}
}

// dueAll reads all that is due, page by page.
func dueAll(b *testing.B, s dispatcher.Store, at time.Time) []dispatcher.DueTrigger {
	b.Helper()
	var all []dispatcher.DueTrigger
	q := dispatcher.DueQuery{Until: at, Now: at, Limit: 1000}
	for {
		page, err := s.Due(b.Context(), q)
		must(b, err)
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
		last := page[len(page)-1]
		q.AfterTime, q.AfterID = last.DueAt, last.ID
	}
}

// claimer claims and records its own triggers, round after round.
type claimer struct {
	store dispatcher.Store
	node  dispatcher.NodeID
	due   []dispatcher.DueTrigger
	at    int
}

func (c *claimer) step(b *testing.B, batch int) error {
	if c.at+batch > len(c.due) {
		c.at = 0
	}
	due := c.due[c.at : c.at+batch]
	c.at += batch
	claim := dispatcher.ClaimBatch{Node: c.node, Token: dispatcher.Token(rand.Int64() | 1), Now: due[0].NextFireTime}
	for _, d := range due {
		claim.Advances = append(claim.Advances, dispatcher.Advance{
			TriggerID: d.ID, Revision: d.Revision, Prev: d.PrevFireTime, Next: d.NextFireTime, Then: d.NextFireTime.Add(time.Second),
		})
	}
	held, err := c.store.Claim(b.Context(), claim)
	if err != nil {
		return err
	}
	if len(held) != batch {
		return fmt.Errorf("%d fires won, want %d", len(held), batch)
	}
	records := make([]dispatcher.Record, len(held))
	for i, run := range held {
		records[i] = dispatcher.Record{RunKey: run.RunKey, Node: c.node, Token: run.Token, Attempt: run.Attempt, Outcome: dispatcher.Outcome{
			State: dispatcher.RunSucceeded, StartedAt: run.ScheduledAt, EndedAt: run.ScheduledAt.Add(time.Millisecond), HTTPStatus: 200,
		}}
	}
	for i := range due {
		due[i].PrevFireTime, due[i].NextFireTime = due[i].NextFireTime, due[i].NextFireTime.Add(time.Second)
	}
	return c.store.Record(b.Context(), records)
}
