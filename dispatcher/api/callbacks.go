package api

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// callbackCompletion is the body of complete.
type callbackCompletion struct {
	// Message is the result.
	Message string `json:"message"`
	// State is the state of the job for its next run; null clears it.
	State json.RawMessage `json:"state"`
}

// callbackFailure is the body of fail.
type callbackFailure struct {
	// Message is the reason of the failure in words.
	Message string `json:"message"`
}

// callbackHeartbeat is the body of a heartbeat.
type callbackHeartbeat struct {
	// Progress and Percent are the progress of the work.
	Progress string `json:"progress"`
	Percent  *int   `json:"percent" schema:"max=100,min=0"`
}

// Kinds of callbacks; the values of a metric's label.
const (
	callbackComplete = "complete"
	callbackFail     = "fail"
	callbackProgress = "heartbeat"
	callbackConflict = "conflict" // no run waits for it
)

// completeRun ends a run that waits for its callback, as succeeded. The bearer token is the one of the attempt, which
// its target got in Carillon-Callback-Token; it permits nothing else. A token with scope run ends the waiting attempt.
// A repeated callback returns 200 again. 401: the token is not for an attempt of this run. 409: the attempt has ended
// otherwise, or the run is cancelled. 422: the callback returns a state, and the job carried none when the attempt
// began.
func (a *API) completeRun(r *request) (response, error) {
	var said callbackCompletion
	problems := r.DecodeIfAny(&said)
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
		return a.store.CompleteRun(r.Context(), run.ID, attempt, result, r.By())
	})
}

// failRun reports that the attempt of a run that waits for its callback failed. The bearer token is the one of the
// attempt, which its target got in Carillon-Callback-Token; it permits nothing else. A token with scope run ends the
// waiting attempt. A repeated callback returns 200 again. 401: the token is not for an attempt of this run. 409: the
// attempt has ended otherwise, or the run is cancelled.
func (a *API) failRun(r *request) (response, error) {
	var said callbackFailure
	problems := r.DecodeIfAny(&said)
	result := run.CallbackResult{Message: r.withoutToken(said.Message)}
	return a.callBack(r, callbackFail, problems, func(run run.Run, attempt int) (run.Run, error) {
		return a.store.FailRun(r.Context(), run.ID, attempt, result, r.By())
	})
}

// extendRun moves the deadline of a run that waits for its callback, and reports its progress. The bearer token is the
// one of the attempt, which its target got in Carillon-Callback-Token; it permits nothing else. A token with scope run
// extends the waiting attempt. A repeated callback returns 200 again. 401: the token is not for an attempt of this run.
// 409: the attempt has ended otherwise, or the run is cancelled.
func (a *API) extendRun(r *request) (response, error) {
	var said callbackHeartbeat
	problems := r.DecodeIfAny(&said)
	if p := said.Percent; p != nil && (*p < 0 || *p > 100) {
		problems.Add("/percent", input.CodeCountRange, "percent %d is not between 0 and 100", *p)
	}
	beat := run.Heartbeat{Progress: run.Progress{Text: r.withoutToken(said.Progress), Percent: said.Percent}}
	return a.callBack(r, callbackProgress, problems, func(run run.Run, attempt int) (run.Run, error) {
		beat.Attempt = attempt
		return a.store.ExtendRun(r.Context(), run.ID, beat, r.By())
	})
}

// withoutToken removes the token of a callback from the text of the callback, because people and other targets see that
// text. A target that sends its own request as its error would reveal the token.
func (r *request) withoutToken(text string) string {
	if r.Attempt == 0 { // an operator ends the run, with a text of their own
		return text
	}
	return strings.ReplaceAll(text, r.Bearer(), "[redacted]")
}

// callBack writes to the attempt whose token was sent or, for an operator, to the waiting attempt.
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
	attempt := r.Attempt
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

func newCallbacks(metrics prometheus.Registerer) *prometheus.CounterVec {
	callbacks := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "carillon_callbacks_total", Help: "Callbacks that this node got, by what they said or that they came too late.",
	}, []string{"result"})
	for _, result := range []string{callbackComplete, callbackFail, callbackProgress, callbackConflict} {
		callbacks.WithLabelValues(result)
	}
	if metrics != nil {
		metrics.MustRegister(callbacks)
	}
	return callbacks
}

// countCallback counts a callback by its kind, or as one without a waiting run.
func (a *API) countCallback(said string, err error) {
	switch {
	case err == nil:
		a.callbacks.WithLabelValues(said).Inc()
	case errors.Is(err, dispatcher.ErrConflict):
		a.callbacks.WithLabelValues(callbackConflict).Inc()
	}
}
