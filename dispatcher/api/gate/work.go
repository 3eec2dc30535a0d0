package gate

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/cache"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/limit"
)

const (
	// workShare is the part of its time for which each turn of an app may be used in the long run.
	workShare = 0.25
	// workSaved is how long each turn of an app may be used at once after an idle time.
	workSaved = 5 * time.Second
	// workPatience is how long a request waits for its turn.
	workPatience = 10 * time.Second
)

// work bounds the time for which the node works on requests of one app, whatever they are: meanwhile, other apps have
// less of its processors and of the database. Requests of an app take turns, which use up its time.
type work struct {
	turns int // of each app

	mu   sync.Mutex
	apps *cache.Cache[string, *appWork]
}

// appWork is the work on the requests of one app.
type appWork struct {
	turns chan struct{}

	mu sync.Mutex
	// left is the time that the app had left at the time at, less than zero if it has used too much.
	left time.Duration
	at   time.Time
}

// newWork gives one app half of the processors.
func newWork() *work {
	return &work{turns: max(1, runtime.GOMAXPROCS(0)/2), apps: cache.New[string, *appWork](maxCallers)}
}

// turn is the work on one request. It is nil for a request that counts for no app.
type turn struct {
	app   *appWork
	began time.Time
	// idle is how long the request has waited for those of other apps.
	idle time.Duration
	once sync.Once
}

// begin waits for a turn of an app. If that takes longer than workPatience or than ctx lasts, there is no turn, and
// begin returns how long to wait.
func (w *work) begin(ctx context.Context, name string) (t *turn, wait time.Duration) {
	app := w.of(name)
	ctx, cancel := context.WithTimeout(ctx, workPatience)
	defer cancel()
	select {
	case app.turns <- struct{}{}:
	case <-ctx.Done():
		return nil, workPatience
	}
	if wait := app.wait(clock()); wait > 0 {
		paid := time.NewTimer(wait)
		defer paid.Stop()
		select {
		case <-paid.C:
		case <-ctx.Done():
			<-app.turns
			return nil, app.wait(clock())
		}
	}
	return &turn{app: app, began: clock()}, 0
}

func (w *work) of(name string) *appWork {
	w.mu.Lock()
	defer w.mu.Unlock()
	app, known := w.apps.Get(name)
	if !known {
		app = &appWork{turns: make(chan struct{}, w.turns), left: time.Duration(w.turns) * workSaved, at: clock()}
	}
	w.apps.Put(name, app)
	return app
}

// wait returns how long to wait until the app has time left.
func (a *appWork) wait(now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	turns := time.Duration(cap(a.turns))
	earned := time.Duration(float64(now.Sub(a.at)*turns) * workShare)
	a.left, a.at = min(turns*workSaved, a.left+earned), now
	return time.Duration(float64(max(0, -a.left)/turns) / workShare)
}

// end ends the turn, once.
func (t *turn) end() {
	if t == nil {
		return
	}
	t.once.Do(func() {
		t.app.mu.Lock()
		t.app.left -= clock().Sub(t.began) - t.idle
		t.app.mu.Unlock()
		<-t.app.turns
	})
}

// takeTurn waits until the node may work on r. It is over when r.turn ends. A callback does not wait: it costs little,
// it counts in a quota like each request, and if it came too late, its target would do the work again.
func (g *Gate) takeTurn(r *Request) error {
	app := r.boundApp()
	if app == "" || r.Attempt != 0 {
		return nil
	}
	t, wait := g.work.begin(r.Context(), app)
	if t == nil {
		share := strconv.Itoa(int(workShare * float64(g.work.turns) * time.Minute.Seconds()))
		return g.limited(r, limitedWork, "the request waited for earlier ones of app "+input.Echo(app)+
			", on which this node works for "+share+" s of a minute at most; ask for less at a time", wait)
	}
	r.turn = t
	return nil
}

// EndTurn ends the work on the request, because it waits for others, or is over.
func (r *Request) EndTurn() { r.turn.end() }

// Evaluate waits until r may evaluate schedules. The wait does not count as work on r.
func (g *Gate) Evaluate(r *Request, timeout time.Duration) (ctx context.Context, done func(), err error) {
	waits := clock()
	ctx, done, err = g.evaluations.begin(r.Context(), r.Token.Name, timeout)
	if r.turn != nil {
		r.turn.idle += clock().Sub(waits)
	}
	return ctx, done, err
}

func clock() time.Time { return time.Now() } //nolint:forbidigo // durations within this process

const (
	// EvaluationTimeout bounds the requests that evaluate schedules, including their wait.
	EvaluationTimeout = 5 * time.Second
	// VerifyTimeout is longer, because it reads the ledger, too.
	VerifyTimeout = 30 * time.Second
)

// evaluations bounds the requests that evaluate schedules at one time: one of a token, and half of the processors of
// the node in total.
type evaluations struct {
	places *limit.Places
	most   int // in total
}

// begin waits until a request of a token may evaluate schedules. Call done after it. The context bounds
// the evaluation.
func (e evaluations) begin(ctx context.Context, token string, timeout time.Duration) (
	bounded context.Context, done func(), err error,
) {
	busy := input.Refuse(input.CodeUnavailable, "too many requests evaluate schedules at this moment; send one after "+
		"another, ask for fewer fire times or a shorter period, or try again in a moment")
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, busy)
	release, _ := e.places.Take(ctx, limit.Place{Key: "token " + token, Most: 1}, limit.Place{Key: "all", Most: e.most})
	if release == nil {
		defer cancel()
		return nil, nil, context.Cause(ctx)
	}
	return ctx, func() { release(); cancel() }, nil
}
