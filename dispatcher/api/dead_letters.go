package api

import (
	"github.com/carillon-dev/carillon/dispatcher/api/decode"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

func (a *API) listDeadLetters(r *request) (response, error) {
	var problems input.Problems
	values := r.URL.Query()
	query := repeat.DeadLetterQuery{
		App: r.PathValue("app"), Job: values.Get("job"), Class: run.Class(values.Get("class")),
		State: run.State(values.Get("state")),
		From:  r.instant(&problems, "from"), To: r.instant(&problems, "to"), Page: r.page(&problems, run.IsID),
	}
	for _, name := range []string{"job", "class", "state"} {
		if values.Has(name) && values.Get(name) == "" {
			problems.Add("/"+name, input.CodeRequired, "%s is empty; leave it out to select all", name)
		}
	}
	problems.AddError("", query.Validate())
	checkOrder(&problems, query.From, query.To)
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	key := func(run run.Run) string { return run.ID }
	return paged(query.Page, key, func(page input.Page) ([]run.Run, error) {
		query.Page = page
		return a.store.DeadLetters(r.Context(), query)
	})
}

// replayDeadLetters retries a portion, so that a request ends soon however many dead letters there are.
func (a *API) replayDeadLetters(r *request) (response, error) {
	var replay repeat.DeadLetterReplay
	replay.SetDefaults()
	problems := r.DecodeIfAny(&replay)
	decode.AddInvalid(&problems, replay.Validate())
	if replay.Cursor != "" && !run.IsID(replay.Cursor) {
		problems.Add("/cursor", input.CodePageCursor, "cursor %s is not from a replay; leave it out to begin with the first",
			input.Echo(replay.Cursor))
	}
	checkOrder(&problems, replay.From, replay.To)
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	query := replay.Query(r.PathValue("app"))
	if replay.DryRun {
		count, err := a.store.CountDeadLetters(r.Context(), query, repeat.MostDeadLettersCounted)
		return response{body: count}, err
	}
	if err := a.checkEnabled(r, query.App); err != nil {
		return response{}, err
	}
	replayed, err := a.store.ReplayDeadLetters(r.Context(), query, r.By())
	return response{body: replayed}, err
}
