package engine

import (
	"context"
	"sync"
	"time"
)

// usage is how busy the node was in the last minute. A look at one moment would miss herds: jobs like to
// fire on the minute, and metrics are read at any second.
type usage struct {
	mu     sync.Mutex
	shares []float64 // of the pool in use, about one a second, the latest last
}

// usageSamples make a minute.
const usageSamples = 60

// usageLoop samples the pool about once a second. The seconds drift, because fires are due on whole ones.
func (e *Engine) usageLoop(ctx context.Context) {
	for ctx.Err() == nil {
		e.metrics.usage.add(e.pool.Use())
		sleep(ctx, spread(time.Second))
	}
}

func (u *usage) add(share float64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.shares) == usageSamples {
		copy(u.shares, u.shares[1:])
		u.shares = u.shares[:usageSamples-1]
	}
	u.shares = append(u.shares, share)
}

// mean returns the mean of the last minute.
func (u *usage) mean() float64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.shares) == 0 {
		return 0
	}
	sum := 0.0
	for _, share := range u.shares {
		sum += share
	}
	return sum / float64(len(u.shares))
}

// largest is the largest of the durations of the last minute, by seconds.
type largest struct {
	seconds [64]struct {
		at   int64
		most time.Duration
	}
}

func (l *largest) add(d time.Duration, now time.Time) {
	at := now.Unix()
	second := &l.seconds[at%int64(len(l.seconds))]
	if second.at != at {
		second.at, second.most = at, 0
	}
	second.most = max(second.most, d)
}

func (l *largest) read(now time.Time) (most time.Duration) {
	for _, second := range l.seconds {
		if ago := now.Unix() - second.at; ago >= 0 && ago <= 60 {
			most = max(most, second.most)
		}
	}
	return most
}
