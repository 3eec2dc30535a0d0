package api

import (
	"net/http"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/api/decode"
)

func (a *API) listPauses(r *request) (response, error) {
	pauses, err := a.store.AppPauses(r.Context(), r.PathValue("app"))
	return response{body: newList(pauses)}, err
}

// pauseApp responds when all jobs have followed the pause, however many there are: from then on no fire of them is claimed.
// It has no condition, because each pause is one of its own.
func (a *API) pauseApp(r *request) (response, error) {
	var asked dispatcher.AppPauseRequest
	problems := r.DecodeIfAny(&asked)
	decode.AddInvalid(&problems, asked.Validate())
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	if err := noCondition(r, "a pause"); err != nil {
		return response{}, err
	}
	pause, err := a.store.PauseApp(r.Context(), r.PathValue("app"), asked, r.By())
	if err != nil {
		return response{}, err
	}
	if pause.Pending {
		pause.Pending = a.followPauses(r)
	}
	return response{status: http.StatusCreated, body: pause}, nil
}

func (a *API) endPause(r *request) (response, error) {
	if err := noCondition(r, "a pause"); err != nil {
		return response{}, err
	}
	if err := a.store.EndAppPause(r.Context(), r.PathValue("app"), r.PathValue("pause"), r.By()); err != nil {
		return response{}, err
	}
	a.followPauses(r)
	return response{status: http.StatusNoContent}, nil
}

// pausePage is how many triggers follow in a transaction. Fires that are due wait for it, some 15 ms.
const pausePage = 500

// followPauses lets the other jobs of the app follow its pauses. If it is interrupted, the change stands, the handler of a
// node goes on, and followPauses returns true.
func (a *API) followPauses(r *request) (pending bool) {
	for more := true; more; {
		var err error
		if more, err = a.store.FollowPauses(r.Context(), r.PathValue("app"), pausePage); err != nil {
			a.log.WarnContext(r.Context(), "jobs have yet to follow the pauses of their app", "app", r.PathValue("app"), "err", err)
			return true
		}
	}
	return false
}
