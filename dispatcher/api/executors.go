package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/cache"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Executors of XXL-JOB call what its admin would serve, below the address of their group. They have no token of this
// installation but that of the group, and read from each response, whose status is 200, a code.
const (
	executorPath = "/xxl-job/{app}/{group}/api"

	executorSuccess  = 200
	executorFailure  = 500
	executorTimedOut = 502 // the handler took longer than its time-out
)

// executorReply is the body of each response to an executor.
type executorReply struct {
	// 200: done; 500: not.
	Code int `json:"code"`
	// Why not.
	Msg *string `json:"msg"`
}

// forExecutor turns a response into one that executors understand.
func forExecutor(res response) response {
	reply := executorReply{Code: executorSuccess}
	if document, ok := res.body.(problemDocument); ok {
		texts := make([]string, len(document.Errors))
		for i, problem := range document.Errors {
			texts[i] = problem.Message
		}
		reply = executorReply{executorFailure, new(strings.Join(texts, "; "))}
	}
	return response{status: http.StatusOK, body: reply}
}

// registry is the body of a registration, and of its removal.
type registry struct {
	Group string `json:"registryGroup" schema:"required,enum=EXECUTOR"`
	// The AppName of the executor, which is that of the group.
	Key string `json:"registryKey" schema:"required"`
	// The URL of the executor.
	Value string `json:"registryValue" schema:"required"`
}

// readRegistry reads a registration, and checks that it is one of the group.
func (a *API) readRegistry(r *request) (endpoint target.Endpoint, err error) {
	var body registry
	if err := r.decodeOfExecutor(&body); err != nil {
		return endpoint, err
	}
	name := r.Executors.ExecutorName()
	switch {
	case body.Group != "EXECUTOR":
		return endpoint, input.Refuse(input.CodeEnum, "registryGroup %s is not EXECUTOR", input.Echo(body.Group))
	case body.Key != name:
		return endpoint, input.Refuse(input.CodeNameMismatch, "registryKey %s is not the AppName of group %s, %s; change the address of the "+
			"executor, or app_name of the group", input.Echo(body.Key), input.Echo(r.Executors.Name), input.Echo(name))
	}
	endpoint.URL = body.Value
	endpoint.ID = target.ExecutorEndpointID(body.Value)
	return endpoint, endpoint.Validate()
}

// registerExecutor takes the heartbeat of an executor of XXL-JOB.
func (a *API) registerExecutor(r *request) (response, error) {
	endpoint, err := a.readRegistry(r)
	if err != nil {
		return response{}, err
	}
	app, group := r.PathValue("app"), r.PathValue("group")
	_, created, err := a.store.RegisterEndpoint(r.Context(), app, group, endpoint, r.By())
	if err == nil && created {
		a.registrations.note(r.Context(), cameEndpoint, app, group, endpoint.ID)
	}
	return response{}, conflict(err, "give the group registration, with the networks and ports of the executors")
}

// deregisterExecutor takes the leave of an executor of XXL-JOB.
func (a *API) deregisterExecutor(r *request) (response, error) {
	endpoint, err := a.readRegistry(r)
	if err != nil {
		return response{}, err
	}
	app, group := r.PathValue("app"), r.PathValue("group")
	err = a.store.DeregisterEndpoint(r.Context(), app, group, endpoint.ID, r.By())
	switch {
	case errors.Is(err, dispatcher.ErrNotFound):
		err = nil
	case err == nil:
		a.registrations.note(r.Context(), leftEndpoint, app, group, endpoint.ID)
	}
	return response{}, err
}

// decodeOfExecutor reads the body of r. Executors of other versions may send members that are unknown here.
func (r *request) decodeOfExecutor(into any) error {
	text, problems := r.Text()
	if len(problems) > 0 {
		return problems
	}
	if err := json.Unmarshal(text, into); err != nil {
		return input.Refuse(input.CodeJSONSyntax, "the body is not the JSON of XXL-JOB's protocol: %s", input.Echo(fmt.Sprint(err)))
	}
	return nil
}

const (
	// stopPatience bounds how long a cancellation waits for executors to stop, and stopsAtOnce how many are asked at once.
	stopPatience = 3 * time.Second
	stopsAtOnce  = 8
)

// acceptedRuns returns those runs that executors may have if run is cancelled: itself, or shards of it. In any other state
// than this one no executor has an attempt, and one that stopped would stop another run of the job.
func (a *API) acceptedRuns(r *request, one run.Run) ([]run.Run, error) {
	switch {
	case a.opts.Executors == nil:
		return nil, nil
	case one.State == run.WaitingCallback:
		return []run.Run{one}, nil
	case one.Shards != nil:
		return a.store.Runs(r.Context(), dispatcher.RunQuery{
			App: one.App, Parent: one.ID, State: run.WaitingCallback, Page: input.Page{Limit: target.MaxEndpoints},
		})
	}
	return nil, nil
}

// stopExecutors asks the executors of runs, all of one job, to stop, because the runs were cancelled. Nothing depends on
// their replies: the runs are over.
func (a *API) stopExecutors(r *request, accepted []run.Run) {
	call, err := a.executorsOf(r, accepted[0])
	if err != nil {
		return // no executor has them
	}
	r.EndTurn() // waiting for them is no work
	ctx, cancel := context.WithTimeout(r.Context(), stopPatience)
	defer cancel()
	var stops errgroup.Group
	stops.SetLimit(stopsAtOnce)
	for _, run := range accepted {
		a.strays.done(strayKey{run.App, run.ExecutorRun(run.Attempt).LogID})
		stops.Go(func() error {
			a.stopExecutor(ctx, r, call, run)
			return nil
		})
	}
	_ = stops.Wait() // each has logged its own
}

// stopExecutor asks the executor to stop that accepted the latest attempt of a run.
func (a *API) stopExecutor(ctx context.Context, r *request, call target.ExecutorCall, run run.Run) {
	read, err := a.store.Run(ctx, run.ID) // lists do not tell which executor has an attempt
	if err == nil {
		call, err = callOf(call, read, run.Attempt)
	}
	if err == nil {
		err = a.opts.Executors.StopExecutor(ctx, call)
	}
	if err == nil {
		return
	}
	if withheld, may := a.lines.May("executor not stopped", r.Now); may {
		a.log.WarnContext(ctx, "executor did not stop a cancelled run", "run", run.ID, "app", run.App, "job", run.Job,
			"endpoint", call.Endpoint.ID, "err", err, "lines_withheld", withheld)
	}
}

// registrations counts the endpoints that registered and deregistered with this node, so that a fleet that comes and goes
// takes one line of the log in a minute. Lines for each endpoint are for debugging. What expires the handler logs.
type registrations struct {
	log    *slog.Logger
	mu     sync.Mutex
	counts map[endpointEvent]int
	groups map[[2]string]bool // app and name
}

// endpointEvent says what an endpoint did.
type endpointEvent string

const (
	cameEndpoint endpointEvent = "registered"
	leftEndpoint endpointEvent = "deregistered"
)

// registrationsTurn is how often they are logged, and maxGroupsCounted how many groups are told apart meanwhile.
const (
	registrationsTurn = time.Minute
	maxGroupsCounted  = 10_000
)

func newRegistrations(log *slog.Logger) *registrations {
	return &registrations{log: log, counts: map[endpointEvent]int{}, groups: map[[2]string]bool{}}
}

// note counts an endpoint that came or left.
func (c *registrations) note(ctx context.Context, event endpointEvent, app, group, id string) {
	c.log.DebugContext(ctx, "endpoint came or left", "event", string(event), "app", app, "group", group, "endpoint", id)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[event]++
	if len(c.groups) < maxGroupsCounted {
		c.groups[[2]string{app, group}] = true
	}
}

// run logs what came and left in each turn until ctx ends, and then for the last time.
func (c *registrations) run(ctx context.Context) {
	ticker := time.NewTicker(registrationsTurn)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
		c.turn(ctx)
	}
}

// turn logs what came and left since the last call, if anything did.
func (c *registrations) turn(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.counts) == 0 {
		return
	}
	c.log.InfoContext(ctx, "endpoints registered and deregistered", "registered", c.counts[cameEndpoint],
		"deregistered", c.counts[leftEndpoint], "groups", len(c.groups))
	clear(c.counts)
	clear(c.groups)
}

const (
	// callbackPatience is how long a callback waits until the acceptance of its attempt is recorded. Executors wait 3 s for
	// a response.
	callbackPatience = 2 * time.Second
	callbackPause    = 500 * time.Millisecond
	// strayTime is for how long executors are told to repeat a callback that no run waits for. After it, they are told
	// that it is done, for they would repeat it for ever.
	strayTime = 2 * time.Minute
	// maxCallbacks is how many results a callback may have: executors send at once all that they have, and again the same
	// ones if they are refused. Of those without a run, maxAwaited are looked up again during callbackPatience, and maxStrays
	// are remembered.
	maxCallbacks = 1000
	maxAwaited   = 100
	maxStrays    = 10_000
)

// executorResult is an element of the body of a callback.
type executorResult struct {
	// The number of the attempt.
	LogID int64 `json:"logId" schema:"required"`
	// 200: it succeeded; any other: it failed.
	Code int `json:"handleCode"`
	// The result, or why it failed.
	Msg string `json:"handleMsg"`
	// Result is in place of Code and Msg until version 2.2.
	Result *executorReply `json:"executeResult,omitempty"`
}

// outcome returns the code and the message of a result, of whatever version the executor is.
func (e executorResult) outcome() (code int, msg string) {
	if code, msg = e.Code, e.Msg; e.Result != nil {
		code = e.Result.Code
		if e.Result.Msg != nil {
			msg = *e.Result.Msg
		}
	}
	return code, msg
}

// strays are callbacks that no run waits for: since when this node knows them, or that they are done with.
type strays struct {
	mu   sync.Mutex
	seen *cache.Cache[strayKey, time.Time]
}

type strayKey struct {
	app string
	id  int64
}

func newStrays() *strays { return &strays{seen: cache.New[strayKey, time.Time](maxStrays)} }

// done notes that the run of a callback is over, so that the callback may come again.
func (s *strays) done(key strayKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.Put(key, time.Time{})
}

// repeat tells whether an executor has to repeat a callback.
func (s *strays) repeat(key strayKey, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	since, known := s.seen.Get(key)
	if !known {
		since = now
		s.seen.Put(key, now)
	}
	return now.Sub(since) < strayTime
}

// settled tells whether it is known already that an executor need not repeat a callback.
func (s *strays) settled(key strayKey, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	since, known := s.seen.Get(key)
	return known && now.Sub(since) >= strayTime
}

// callBackOfExecutor takes the results of attempts from an executor of XXL-JOB. A result that no run waits
// for is refused for two minutes, so that the executor repeats it, and accepted after that.
//
// callBackOfExecutor takes the results of attempts. What it took stays taken if the executor has to repeat
// the whole.
func (a *API) callBackOfExecutor(r *request) (response, error) {
	var all []executorResult
	if err := r.decodeOfExecutor(&all); err != nil {
		return response{}, err
	}
	if len(all) > maxCallbacks {
		return response{}, input.Refuse(input.CodeTooMany, "the callback has %d results; the maximum is %d", len(all), maxCallbacks)
	}
	left, err := a.takeResults(r, all)
	if err != nil {
		return response{}, err
	}
	left = slices.DeleteFunc(left, func(result executorResult) bool {
		return a.strays.settled(strayKey{r.Executors.App, result.LogID}, r.Now)
	})
	awaited := min(len(left), maxAwaited)
	late, err := a.awaitResults(r, left[:awaited])
	if err != nil {
		return response{}, err
	}
	return response{}, a.strayResults(r, slices.Concat(late, left[awaited:]))
}

// awaitResults takes results as the acceptances of their attempts are recorded, and returns those of which none was.
func (a *API) awaitResults(r *request, left []executorResult) ([]executorResult, error) {
	if len(left) == 0 {
		return nil, nil
	}
	r.EndTurn() // waiting is no work
	ctx, cancel := context.WithTimeout(r.Context(), callbackPatience)
	defer cancel()
	ticker := time.NewTicker(callbackPause)
	defer ticker.Stop()
	for len(left) > 0 {
		select {
		case <-ctx.Done():
			return left, nil
		case <-ticker.C:
		}
		var err error
		if left, err = a.takeResults(r, left); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// takeResults ends the attempts that results are of, and returns those results that no run waits for.
func (a *API) takeResults(r *request, all []executorResult) (left []executorResult, err error) {
	for _, result := range all {
		switch err := a.takeResult(r, result); {
		case errors.Is(err, dispatcher.ErrNotFound):
			left = append(left, result)
		case err != nil:
			return nil, err
		default:
			a.strays.done(strayKey{r.Executors.App, result.LogID})
		}
	}
	return left, nil
}

// takeResult ends the attempt that a result is of. ErrNotFound: no run of the group waits for it.
func (a *API) takeResult(r *request, result executorResult) error {
	found, err := a.store.AwaitedAttempt(r.Context(), r.Executors.App, result.LogID)
	if err != nil {
		return err
	}
	if found.Group != r.Executors.Name { // executors of one group do not end runs of another
		return dispatcher.NotFound("run", found.Run)
	}
	code, msg := result.outcome()
	write, said := a.store.CompleteRun, callbackComplete
	if code != executorSuccess {
		write, said = a.store.FailRun, callbackFail
		msg = "the handler ended with code " + strconv.Itoa(code) + ": " + cmp.Or(msg, "no message given")
	}
	change := r.By()
	change.Actor = run.ActorCallback
	_, err = write(r.Context(), found.Run, found.Attempt, run.CallbackResult{Message: msg, TimedOut: code == executorTimedOut}, change)
	a.countCallback(said, err)
	if errors.Is(err, dispatcher.ErrConflict) {
		return nil // it is over in another way
	}
	return err
}

// strayResults decides about results that no run waits for: the acceptance of their attempts is not recorded yet, or their
// runs are over, as if they were cancelled. The error tells the executor to repeat them.
func (a *API) strayResults(r *request, all []executorResult) error {
	again := 0
	for _, result := range all {
		if a.strays.repeat(strayKey{r.Executors.App, result.LogID}, r.Now) {
			again++
		}
	}
	if again == 0 {
		return nil
	}
	return input.Refuse(input.CodeUnavailable, "no run waits for %d of the results, beginning with log %d; repeat the callback",
		again, all[0].LogID)
}
