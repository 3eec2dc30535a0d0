package api

import (
	"net/http"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/api/decode"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
)

func (a *API) listBulkActions(r *request) (response, error) {
	var problems input.Problems
	page := r.page(&problems, func(cursor string) bool {
		_, err := repeat.ParseBulkActionID(cursor)
		return err == nil
	})
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	key := func(b repeat.BulkAction) string { return b.ID }
	return paged(page, key, func(page input.Page) ([]repeat.BulkAction, error) {
		return a.store.BulkActions(r.Context(), r.PathValue("app"), page)
	})
}

func (a *API) getBulkAction(r *request) (response, error) {
	found, err := a.store.BulkAction(r.Context(), r.PathValue("app"), r.PathValue("bulk"))
	return response{body: found}, err
}

// createBulkAction counts what the filter selects, and begins the action unless that is all that is wanted.
func (a *API) createBulkAction(r *request) (response, error) {
	var asked repeat.BulkRequest
	problems := r.Decode(&asked)
	asked.Filter.From, asked.Filter.To = asked.Filter.From.UTC().Truncate(time.Millisecond), asked.Filter.To.UTC().Truncate(time.Millisecond)
	decode.AddInvalid(&problems, asked.Validate())
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	if err := mayBulk(r, asked.Action); err != nil {
		return response{}, err
	}
	app := r.PathValue("app")
	if asked.Action == repeat.BulkRunJobs || asked.Action == repeat.BulkRetryRuns {
		if err := a.checkEnabled(r, app); err != nil {
			return response{}, err
		}
	}
	count, err := a.store.CountBulk(r.Context(), app, asked.BulkSpec)
	if err != nil || asked.DryRun {
		return response{body: count}, err
	}
	if err := asked.Agreed(count); err != nil {
		return response{}, conflict(err, "look at what it selects, and ask again with expected as it is now")
	}
	created, err := a.store.CreateBulkAction(r.Context(), app, asked.BulkSpec, count, r.By())
	header := map[string]string{"Location": "/v1/apps/" + app + "/bulk/" + created.ID}
	return response{status: http.StatusAccepted, body: created, header: header}, err
}

// mayBulk refuses a token without the scope that the same request about a single job or run needs.
func mayBulk(r *request, action repeat.BulkVerb) error {
	if r.Token.May(action.Scope()) {
		return nil
	}
	return input.Refuse(input.CodeForbidden, "token %s does not have the scope %s, which action %s needs", input.Echo(r.Token.Name),
		string(action.Scope()), string(action))
}

// cancelBulkAction ends an action. What began it may end it.
func (a *API) cancelBulkAction(r *request) (response, error) {
	app, id := r.PathValue("app"), r.PathValue("bulk")
	found, err := a.store.BulkAction(r.Context(), app, id)
	if err != nil {
		return response{}, err
	}
	if err := mayBulk(r, found.Action); err != nil {
		return response{}, err
	}
	cancelled, err := a.store.CancelBulkAction(r.Context(), app, id, r.By())
	if err != nil {
		return response{}, conflict(err, "it is over; begin another one to undo what it did")
	}
	return response{body: cancelled}, nil
}
