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

// Executors of XXL-JOB call the API of its admin, below the address of their group. They have no token of this
// installation, only that of the group, and read a code from each response, whose status is always 200.
const (
	executorPath = "/xxl-job/{app}/{group}/api"

	executorSuccess  = 200
	executorFailure  = 500
	executorTimedOut = 502 // the handler took longer than its time-out
)

// executorReply is the body of each response to an executor.
type executorReply struct {
	// 200: done; 500: failed.
	Code int `json:"code"`
	// The reason of a failure.
	Msg *string `json:"msg"`
}

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

// deregisterExecutor removes an executor of XXL-JOB that shuts down.
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

// decodeOfExecutor reads the body of r. Executors of other versions may send unknown members.
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
	// stopPatience is how long a cancellation waits for executors to stop, and stopsAtOnce how many it asks at once.
	stopPatience = 3 * time.Second
	stopsAtOnce  = 8
)

// acceptedRuns returns the runs that executors may have if run is cancelled: itself, or shards of it. In any other
// state than this one no executor has an attempt, and a stop would end another run of the job.
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

// stopExecutors asks the executors of runs, all of one job, to stop, because the runs are cancelled. Their replies do
// not matter: the runs are over.
func (a *API) stopExecutors(r *request, accepted []run.Run) {
	call, err := a.executorsOf(r, accepted[0])
	if err != nil {
		return // no executor has them
	}
	r.EndTurn() // a wait for them does not count as work
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

// stopHolder asks the executors of the run whose slot is to be freed to stop, if that cancels it. It comes before the next
// run of the job has the slot, which the stop would end, too.
func (a *API) stopHolder(r *request, release run.SlotRelease) error {
	if err := release.Validate(); err != nil || !release.Cancel {
		return err
	}
	slots, err := a.store.Slots(r.Context(), r.PathValue("app"), r.PathValue("job"))
	slots = slices.DeleteFunc(slots, func(s dispatcher.Slot) bool { return s.Run != cmp.Or(release.Run, s.Run) })
	slots = slices.CompactFunc(slots, func(s, other dispatcher.Slot) bool { return s.Run == other.Run })
	if err != nil || len(slots) != 1 {
		return err // the store refuses to choose
	}
	holder, err := a.store.Run(r.Context(), slots[0].Run)
	if err != nil {
		return err
	}
	accepted, err := a.acceptedRuns(r, holder)
	if len(accepted) > 0 {
		a.stopExecutors(r, accepted)
	}
	return err
}

// stopExecutor asks the executor that accepted the latest attempt of a run to stop it.
func (a *API) stopExecutor(ctx context.Context, r *request, call target.ExecutorCall, run run.Run) {
	read, err := a.store.Run(ctx, run.ID) // lists do not have the executor of an attempt
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

// registrations counts the endpoints that registered and deregistered with this node, so that a flapping fleet takes
// one line of the log in a minute. Lines for each endpoint are for debugging. The handler logs those that expire.
type registrations struct {
	log    *slog.Logger
	mu     sync.Mutex
	counts map[endpointEvent]int
	groups map[[2]string]bool // app and name
}

// endpointEvent is a change of an endpoint.
type endpointEvent string

const (
	cameEndpoint endpointEvent = "registered"
	leftEndpoint endpointEvent = "deregistered"
)

// registrationsTurn is how often they are logged, and maxGroupsCounted how many groups have counts of their own.
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

// run logs the endpoints that came and left in each turn until ctx ends, and then for the last time.
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

// turn logs the endpoints that came and left since the last call, if any.
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
	// callbackPatience is how long a callback waits until the acceptance of its attempt is recorded. Executors wait 3 s
	// for a response.
	callbackPatience = 2 * time.Second
	callbackPause    = 500 * time.Millisecond
	// strayTime is how long executors must repeat a callback without a waiting run. After that, the response is that it
	// is done, because they would repeat it without end.
	strayTime = 2 * time.Minute
	// maxCallbacks is how many results a callback may have: executors send all that they have at once, and repeat the
	// same ones after a refusal. Of those without a run, maxAwaited are looked up again during callbackPatience, and
	// maxStrays are remembered.
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
	// The result, or the reason of the failure.
	Msg string `json:"handleMsg"`
	// Result replaces Code and Msg until version 2.2.
	Result *executorReply `json:"executeResult,omitempty"`
}

// outcome returns the code and the message of a result, for any version of the executor.
func (e executorResult) outcome() (code int, msg string) {
	if code, msg = e.Code, e.Msg; e.Result != nil {
		code = e.Result.Code
		if e.Result.Msg != nil {
			msg = *e.Result.Msg
		}
	}
	return code, msg
}

// strays are callbacks without a waiting run: since when this node has known them, or that they are done.
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

// repeat reports whether an executor has to repeat a callback.
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

// settled reports whether the node knows already that an executor need not repeat a callback.
func (s *strays) settled(key strayKey, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	since, known := s.seen.Get(key)
	return known && now.Sub(since) >= strayTime
}

// callBackOfExecutor takes the results of attempts from an executor of XXL-JOB. A result without a waiting run is
// refused for two minutes, so that the executor repeats it, and accepted after that.
//
// Results that were taken stay taken even if the executor has to repeat the whole request.
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

// awaitResults takes results as the acceptances of their attempts are recorded, and returns the results without one.
func (a *API) awaitResults(r *request, left []executorResult) ([]executorResult, error) {
	if len(left) == 0 {
		return nil, nil
	}
	r.EndTurn() // a wait is no work
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

// takeResults ends the attempts of results, and returns the results without a waiting run.
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

// takeResult ends the attempt of a result. ErrNotFound: no run of the group waits for it.
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
		return nil // it has ended otherwise
	}
	return err
}

// strayResults decides about results without a waiting run: the acceptance of their attempts is not recorded yet, or
// their runs are over, for example cancelled. An error makes the executor repeat them.
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
