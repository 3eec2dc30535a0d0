package engine_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"log/slog"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/pgtest"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Both benchmarks run the whole path: a declared trigger, claim, HTTP request to a receiver
// on this machine, record. PostgreSQL runs with fsync on.

// BenchmarkWebhook reports fires/s of a burst: every trigger is due at the same instant, and
// the clock runs from that instant until the last request arrives. Claims and records go on
// beside the requests.
func BenchmarkWebhook(b *testing.B) {
	onBothDatabases(b, func(b *testing.B, database string) {
		const burst = 10_000
		var fires int
		var spent time.Duration
		for b.Loop() {
			b.StopTimer()
			w := newWalk(b, database)
			at := time.Now().Add(5 * time.Second).UTC().Truncate(time.Second)
			w.declare(burst, func(int) dispatcher.Trigger {
				return dispatcher.Trigger{Schedule: dispatcher.Schedule{Expression: "at(" + at.Format(time.RFC3339) + ")"}}
			})
			b.StartTimer()
			lateness := w.run(burst)
			spent += slices.Max(lateness)
			fires += len(lateness)
			b.StopTimer()
			w.close()
			b.StartTimer()
		}
		b.ReportMetric(float64(fires)/spent.Seconds(), "fires/s")
		b.ReportMetric(0, "ns/op") // would count the wait for the instant
	})
}

// BenchmarkLateness reports how long after their instant requests arrive at 500 fires/s.
func BenchmarkLateness(b *testing.B) {
	onBothDatabases(b, func(b *testing.B, database string) {
		const rate, seconds = 500, 10
		var all []time.Duration
		for b.Loop() {
			b.StopTimer()
			w := newWalk(b, database)
			start := time.Now().Add(5 * time.Second).UTC().Truncate(time.Second)
			w.declare(rate, func(i int) dispatcher.Trigger {
				from := start.Add(time.Duration(i) * time.Second / rate)
				return dispatcher.Trigger{Schedule: dispatcher.Schedule{Expression: "rate(1s)", StartAt: &from, RepeatCount: seconds}}
			})
			b.StartTimer()
			all = append(all, w.run(rate*seconds)...)
			b.StopTimer()
			w.close()
			b.StartTimer()
		}
		slices.Sort(all)
		if all[0] < 0 {
			b.Errorf("a fire was %s early", -all[0])
		}
		ms := func(share float64) float64 {
			return float64(all[int(share*float64(len(all)-1))].Microseconds()) / 1000
		}
		b.ReportMetric(ms(0.5), "p50-ms")
		b.ReportMetric(ms(0.99), "p99-ms")
		b.ReportMetric(ms(1), "max-ms")
		b.ReportMetric(0, "ns/op")
	})
}

func onBothDatabases(b *testing.B, bench func(b *testing.B, database string)) {
	b.Run("PostgreSQL", func(b *testing.B) { bench(b, pgtest.New(b, pgtest.Fsync)) })
	b.Run("SQLite", func(b *testing.B) { bench(b, "sqlite:"+filepath.Join(b.TempDir(), "carillon.db")) })
}

// walk is a node with a receiver.
type walk struct {
	b        *testing.B
	store    dispatcher.Store
	receiver *httptest.Server

	mu       sync.Mutex
	lateness []time.Duration // at the receiver
	recorded int
	done     chan struct{}
	want     int
}

func newWalk(b *testing.B, database string) *walk {
	b.Helper()
	if err := store.Migrate(b.Context(), database); err != nil {
		b.Fatal(err)
	}
	s, err := store.Open(b.Context(), database, store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	w := &walk{b: b, store: s, done: make(chan struct{})}
	w.receiver = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived := time.Now()
		_, _ = io.Copy(io.Discard, r.Body)
		scheduled, err := time.Parse(time.RFC3339Nano, r.Header.Get("carillon-scheduled-at"))
		if err != nil {
			b.Error(err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.lateness = append(w.lateness, arrived.Sub(scheduled))
	}))
	return w
}

func (w *walk) close() {
	w.receiver.Close()
	if err := w.store.Close(); err != nil {
		w.b.Error(err)
	}
}

// declare puts count triggers into jobs of a hundred.
func (w *walk) declare(count int, trigger func(i int) dispatcher.Trigger) {
	w.b.Helper()
	change := dispatcher.Change{Actor: "bench"}
	app := fmt.Sprintf("bench-%d", time.Now().UnixNano())
	if _, err := w.store.PutApp(w.b.Context(), dispatcher.App{Name: app, Enabled: true}, change); err != nil {
		w.b.Fatal(err)
	}
	for first := 0; first < count; first += dispatcher.MaxTriggers {
		job := dispatcher.Job{App: app, Name: fmt.Sprintf("job-%d", first), Enabled: true, Triggers: map[string]dispatcher.Trigger{}}
		job.Target.Webhook = &dispatcher.Webhook{}
		job.Target.Webhook.SetDefaults()
		job.Target.Webhook.URL = w.receiver.URL
		for i := first; i < min(first+dispatcher.MaxTriggers, count); i++ {
			t := trigger(i)
			t.SetDefaults()
			job.Triggers[fmt.Sprintf("t%d", i)] = t
		}
		if _, err := w.store.PutJob(w.b.Context(), job, change); err != nil {
			w.b.Fatal(err)
		}
	}
}

// run dispatches until so many outcomes came, drains, and returns how late the requests
// were at the receiver.
func (w *walk) run(fires int) []time.Duration {
	w.b.Helper()
	w.want = fires
	invoker := target.New(target.Options{ConnsPerHost: 512})
	defer invoker.Close()
	node := engine.New(w.store, invoker, engine.Options{
		Name: "bench", Logger: slog.New(slog.DiscardHandler),
		OnOutcome: func(_ dispatcher.Call, o dispatcher.Outcome) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if o.State != dispatcher.RunSucceeded {
				w.b.Errorf("outcome %+v", o)
			}
			if w.recorded++; w.recorded == w.want {
				close(w.done)
			}
		},
	})
	ctx, stop := context.WithCancel(w.b.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- node.Run(ctx) }()
	select {
	case <-w.done:
	case <-time.After(2 * time.Minute):
		w.b.Errorf("%d of %d fires in two minutes", w.recorded, w.want)
	}
	stop()
	if err := <-ended; err != nil {
		w.b.Error(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lateness
}
