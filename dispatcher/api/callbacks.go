package api

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// callbackKey is the key of the tokens of callbacks, which never changes.
type callbackKey struct {
	mu  sync.Mutex
	key []byte
}

func (k *callbackKey) read(ctx context.Context, store Store) (key []byte, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.key == nil {
		k.key, err = store.CallbackKey(ctx)
	}
	return k.key, err
}

// authorizeCallback checks the token of an attempt, which permits to end this attempt of the run in the path and nothing
// else. The error is the same for a token of another run or attempt and for a run that does not exist.
func (a *API) authorizeCallback(r *request) error {
	wrong := func() error {
		r.bad = badCallback
		return input.Refuse(input.CodeUnauthorized, "the token is not that of an attempt of this run; send what the request had in "+
			"Carillon-Callback-Token as \"Authorization: Bearer %s…\"", run.CallbackTokenPrefix)
	}
	id, secret := r.PathValue("run"), r.bearer()
	attempt := run.CallbackAttempt(secret)
	if !run.IsID(id) || attempt == 0 {
		return wrong()
	}
	one, err := a.store.Run(r.Context(), id)
	switch {
	case errors.Is(err, dispatcher.ErrNotFound):
		return wrong()
	case err != nil:
		return err
	}
	key, err := a.callbackKey.read(r.Context(), a.store)
	if err != nil {
		return err
	}
	if !run.IsCallbackToken(key, secret, one.EventID, attempt) {
		return wrong()
	}
	r.attempt, r.app = attempt, one.App
	r.token = access.APIToken{Name: run.ActorCallback, Apps: []string{one.App}}
	return nil
}

// callbackCompletion is what complete may say.
type callbackCompletion struct {
	// Message is the result.
	Message string `json:"message"`
	// State is the state of the job for its next run; null clears it.
	State json.RawMessage `json:"state"`
}

// callbackFailure is what fail may say.
type callbackFailure struct {
	// Message is the failure in words.
	Message string `json:"message"`
}

// callbackHeartbeat is what a heartbeat may say.
type callbackHeartbeat struct {
	// Progress and Percent say how far the work is.
	Progress string `json:"progress"`
	Percent  *int   `json:"percent"`
}

// What callbacks say; the values of a metric's label.
const (
	callbackComplete = "complete"
	callbackFail     = "fail"
	callbackProgress = "heartbeat"
	callbackConflict = "conflict" // nothing waits for it
)

func (a *API) completeRun(r *request) (response, error) {
	var said callbackCompletion
	problems := r.decodeIfAny(&said)
	result := run.CallbackResult{Message: r.withoutToken(said.Message)}
	if len(said.State) > 0 {
		state, err := run.ReadCarriedState(said.State)
		if err == nil && r.withoutToken(string(state)) != string(state) {
			err = errors.New("the state has the token of the callback, which is a secret; leave it out")
		}
		if err != nil {
			problems.Add("/state", input.CodeStateInvalid, "%s", err)
		}
		result.State = state
	}
	return a.callBack(r, callbackComplete, problems, func(run run.Run, attempt int) (run.Run, error) {
		return a.store.CompleteRun(r.Context(), run.ID, attempt, result, r.by())
	})
}

func (a *API) failRun(r *request) (response, error) {
	var said callbackFailure
	problems := r.decodeIfAny(&said)
	result := run.CallbackResult{Message: r.withoutToken(said.Message)}
	return a.callBack(r, callbackFail, problems, func(run run.Run, attempt int) (run.Run, error) {
		return a.store.FailRun(r.Context(), run.ID, attempt, result, r.by())
	})
}

func (a *API) extendRun(r *request) (response, error) {
	var said callbackHeartbeat
	problems := r.decodeIfAny(&said)
	if p := said.Percent; p != nil && (*p < 0 || *p > 100) {
		problems.Add("/percent", input.CodeCountRange, "percent %d is not between 0 and 100", *p)
	}
	progress := run.Progress{Text: r.withoutToken(said.Progress), Percent: said.Percent}
	return a.callBack(r, callbackProgress, problems, func(run run.Run, attempt int) (run.Run, error) {
		return a.store.ExtendRun(r.Context(), run.ID, attempt, 0, progress, r.by())
	})
}

// withoutToken removes the token of a callback from what the callback says, because people and other targets see that. A target
// that logs its request as its error would tell it to them.
func (r *request) withoutToken(text string) string {
	if r.attempt == 0 { // an operator ends the run, in words of their own
		return text
	}
	return strings.ReplaceAll(text, r.bearer(), "[redacted]")
}

// callBack writes to the attempt whose token was sent or, for an operator, to the one that waits for its callback.
func (a *API) callBack(r *request, said string, problems input.Problems, write func(run.Run, int) (run.Run, error)) (
	response, error,
) {
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	one, err := a.visibleRun(r)
	if err != nil {
		return response{}, err
	}
	attempt := r.attempt
	if attempt == 0 {
		if attempt = one.Attempt; one.State != run.WaitingCallback {
			return response{}, input.Refuse(input.CodeStateConflict, "run %s is %s; only a run that waits for a callback is ended so",
				one.ID, one.State)
		}
	}
	one, err = write(one, attempt)
	a.countCallback(said, err)
	return response{body: run.CallbackReply{Run: one.ID, State: one.State, Attempt: attempt, Callback: one.Callback}},
		conflict(err, "stop the work; nothing waits for its result")
}

// countCallback counts a callback by what it said, or that nothing waited for it.
func (a *API) countCallback(said string, err error) {
	switch {
	case err == nil:
		a.limits.callbacks.WithLabelValues(said).Inc()
	case errors.Is(err, dispatcher.ErrConflict):
		a.limits.callbacks.WithLabelValues(callbackConflict).Inc()
	}
}
