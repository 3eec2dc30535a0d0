package limit

import (
	"math"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/cache"
)

// Rates counts requests for each key, such as an address. A key may make some requests per minute, and as many at once
// after a quiet minute. The zero value is not usable; see NewRates.
//
// A Limiter of x/time/rate would need its rate and burst set at each request, because the rate of a token may change,
// and gives a wait only with a reservation, which a refused request must return. That would be more code.
type Rates[K comparable] struct {
	mu sync.Mutex
	// A dropped key has a full bucket again, as it would have anyway, unless very many keys came in between.
	buckets *cache.Cache[K, bucket]
}

// bucket is the remaining budget of a key.
type bucket struct {
	left float64
	at   time.Time
}

// NewRates returns a Rates that remembers at most most keys.
func NewRates[K comparable](most int) *Rates[K] {
	return &Rates[K]{buckets: cache.New[K, bucket](most)}
}

// Take counts a request of key, which may make perMinute, and returns 0. If it has made too many, Take does not count
// the request and returns how long key has to wait.
func (r *Rates[K]) Take(key K, perMinute int, now time.Time) (wait time.Duration) {
	return r.take(key, perMinute, time.Minute, 1, now)
}

// Wait is Take without counting.
func (r *Rates[K]) Wait(key K, perMinute int, now time.Time) (wait time.Duration) {
	return r.take(key, perMinute, time.Minute, 0, now)
}

func (r *Rates[K]) take(key K, most int, per time.Duration, count float64, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, found := r.buckets.Get(key)
	if !found {
		if count == 0 {
			return 0
		}
		b = bucket{left: float64(most), at: now}
	}
	perSecond := float64(most) / per.Seconds()
	b.left = min(float64(most), b.left+max(0, now.Sub(b.at).Seconds())*perSecond)
	b.at = now
	if b.left < 1 {
		r.buckets.Put(key, b)
		return time.Duration(math.Ceil((1 - b.left) / perSecond * float64(time.Second)))
	}
	b.left -= count
	r.buckets.Put(key, b)
	return 0
}

// Len returns how many keys are remembered.
func (r *Rates[K]) Len() int { return r.buckets.Len() }

// Lines bounds lines in a log: each kind of line may come some times in a span of time.
type Lines struct {
	rates *Rates[string]
	most  int
	per   time.Duration

	mu       sync.Mutex
	withheld map[string]int
}

// NewLines returns a Lines that allows most lines of each kind in per. Kinds are constants, so they are not bounded.
func NewLines(most int, per time.Duration) *Lines {
	return &Lines{rates: NewRates[string](64), most: most, per: per, withheld: map[string]int{}}
}

// May reports whether a line of a kind may be written at now, and how many were withheld since the previous one.
func (l *Lines) May(kind string, now time.Time) (withheld int, may bool) {
	may = l.rates.take(kind, l.most, l.per, 1, now) == 0
	l.mu.Lock()
	defer l.mu.Unlock()
	if !may {
		l.withheld[kind]++
		return 0, false
	}
	withheld = l.withheld[kind]
	l.withheld[kind] = 0
	return withheld, true
}
