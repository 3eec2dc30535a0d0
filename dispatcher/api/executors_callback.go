package api

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/limit"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

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
	LogID int64  `json:"logId"`
	Code  int    `json:"handleCode"`
	Msg   string `json:"handleMsg"`
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
	seen *limit.Recent[strayKey, time.Time]
}

type strayKey struct {
	app string
	id  int64
}

func newStrays() *strays { return &strays{seen: limit.NewRecent[strayKey, time.Time](maxStrays)} }

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

// callBackOfExecutor takes the results of attempts. What it took stays taken if the executor has to repeat the whole.
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
