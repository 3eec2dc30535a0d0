package pool

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
)

// BenchmarkPool measures the cost of the pool itself for a run, from its admission to its end, for runs of some jobs
// that are spread over some apps and hosts.
func BenchmarkPool(b *testing.B) {
	for _, of := range []struct{ apps, hosts, jobs int }{{1, 1, 1}, {1, 1, 1000}, {10, 10, 1000}, {1000, 1000, 10_000}} {
		b.Run(fmt.Sprintf("apps=%d/hosts=%d/jobs=%d", of.apps, of.hosts, of.jobs), func(b *testing.B) {
			var done sync.WaitGroup
			p := newPool(Options{}, func(context.Context, testRun) { done.Done() })
			p.Start(b.Context())
			keys := make([]QueueKey, of.jobs)
			for i := range keys {
				keys[i] = QueueKey{App: fmt.Sprintf("app%d", i%of.apps), Host: fmt.Sprintf("host%d.example.com", i%of.hosts), Job: int64(i)}
			}
			const batch = 250
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				submitted := make([]*testRun, 0, batch)
				for range batch {
					n++
					r := &testRun{Node: 1, Queue: keys[n%of.jobs], Weight: 1}
					r.HeldRun = run.HeldRun{
						Key: run.Key{TriggerID: int64(n), Kind: run.KindSchedule}, JobID: int64(n % of.jobs), Attempt: 1,
					}
					if p.Admit(r.Queue) != Admitted {
						b.Fatal("a run of an empty pool found no place")
					}
					submitted = append(submitted, r)
				}
				done.Add(batch)
				p.Submit(submitted)
				done.Wait()
				for p.Held() > 0 {
					<-p.Freed()
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/run")
			p.TakeNotAttempted()
			p.Drain(time.Second)
		})
	}
}
