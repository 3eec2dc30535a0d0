package plan

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// manyTriggers is how many triggers the benchmark of the poll has, each with a job of its own. A thousandth of them is
// due each second, so no job comes twice.
const manyTriggers = 1_000_000

// A poll reads six seconds: 6,000 triggers. "unknown" ones are read for the first time; the node remembers the
// definitions of "known" ones.
func BenchmarkPoll(b *testing.B) {
	database := pgtest.New(b)
	s, err := store.Open(b.Context(), database, store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	start := time.Now().UTC().Truncate(time.Second).Add(time.Hour)
	copyJobs(b, s, database, start)
	const window = 5 * time.Second
	for name, known := range map[string]bool{"unknown": false, "known": true} {
		b.Run(name, func(b *testing.B) {
			f := NewFleet(time.Hour, 0, window)
			f.Joined(1, dispatcher.NodeActive, time.Now())
			of := Node{Log: Log{slog.New(slog.DiscardHandler), f}, Fleet: f, Clock: NewClock(s), Options: Options{Window: window}}
			p := New(s, NewDefinitions(s, of, func(string) {}), make(chan struct{}, 1))
			now := start
			poll := func() {
				p.Timeline, p.Ahead = newTimeline(), newAhead(p.wakePoll)
				// As if all earlier fires had been claimed.
				_, version := f.Shares(nil, nil)
				p.Floors.Window = floor{at: now, fullAt: now, lookedAt: now, version: version}
				n, err := p.Poll(b.Context(), now, now.Add(6*time.Second))
				if err != nil || n < 5900 || n > 6100 {
					b.Fatalf("%d fires were planned, error %v; want some 6000", n, err)
				}
			}
			poll()
			for b.Loop() {
				if !known {
					now = now.Add(6 * time.Second)
					if now.Sub(start) > manyTriggers/1000*time.Second-time.Minute {
						b.Fatal("all triggers are known")
					}
				}
				poll()
			}
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/poll")
		})
	}
}

// copyJobs declares a job, and copies it in the database: a million jobs through the API would take minutes.
func copyJobs(b *testing.B, s *store.Store, database string, start time.Time) {
	b.Helper()
	job := dispatcher.Job{App: "app", Name: "job-0", JobSpec: dispatcher.JobSpec{Enabled: true, Triggers: map[string]dispatcher.Trigger{"t": {
		TriggerSpec: dispatcher.TriggerSpec{
			Schedule: dispatcher.Schedule{Expression: fmt.Sprintf("rate(%ds)", manyTriggers/1000), StartAt: &start}, Enabled: true,
			MisfireAfter: dispatcher.DefaultMisfireAfter,
		},
	}}}}
	job.Target.Webhook = &target.Webhook{URL: "http://127.0.0.1/", Method: "POST", Timeout: target.DefaultTimeout}
	change := input.Change{Actor: "test"}
	if _, _, err := s.PutApp(b.Context(), access.App{Name: "app", AppSpec: access.AppSpec{Enabled: true}}, change); err != nil {
		b.Fatal(err)
	}
	if _, _, err := s.PutJob(b.Context(), job, change); err != nil {
		b.Fatal(err)
	}
	conn, err := pgx.Connect(b.Context(), database)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(b.Context()))
	// As run.JobID and TriggerID: 63 bits of a hash of the names.
	const id = `((('x' || encode(substring(sha256(convert_to('%s/app/job-' || n || '%s', 'UTF8')) FROM 1 FOR 8), 'hex'))::bit(64)::bigint
		>> 1) & 9223372036854775807) | 1`
	const copies = `INSERT INTO %s SELECT x.* FROM %[1]s AS t CROSS JOIN generate_series(1, %d) AS n
		CROSS JOIN LATERAL jsonb_populate_record(t, jsonb_build_object(%s)) AS x`
	due := fmt.Sprintf(`%d + n::bigint * 7919 %% %d`, start.UnixMilli(), manyTriggers)
	for table, changed := range map[string]string{
		"jobs":          `'id', ` + fmt.Sprintf(id, "job", "") + `, 'name', 'job-' || n`,
		"triggers":      `'id', ` + fmt.Sprintf(id, "trigger", "/t") + `, 'job_id', ` + fmt.Sprintf(id, "job", ""),
		"trigger_clock": `'id', ` + fmt.Sprintf(id, "trigger", "/t") + `, 'next_fire_time', ` + due + `, 'due_at', ` + due,
	} {
		for _, statement := range []string{fmt.Sprintf(copies, table, manyTriggers-1, changed), "VACUUM ANALYZE " + table} {
			if _, err := conn.Exec(b.Context(), statement); err != nil {
				b.Fatal(err)
			}
		}
	}
}
