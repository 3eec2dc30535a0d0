package console

import (
	"net/url"
	"slices"

	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/console/kit"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// deadLettersPage is the list of the dead letters of an app.
type deadLettersPage struct {
	client.List[run.Run]
	App, More string
	Filter    map[string]string
	States    []run.State
	Classes   []run.Class
	// Replay is the URL of the page that replays all that the filter selects.
	Replay string
}

var deadLetterFields = []string{"job", "class", "state", "from", "to"}

// deadLetters reads which dead letters a filter selects.
func deadLetters(f *kit.Fields) repeat.DeadLetterReplay {
	return repeat.DeadLetterReplay{Job: f.Text("job"), Class: run.Class(f.Text("class")),
		State: run.State(f.Text("state")), From: f.Instant("from"), To: f.Instant("to")}
}

// given returns some fields that are not empty, for a link or a form.
func given(f *kit.Fields, names ...string) url.Values {
	values := url.Values{}
	for _, name := range names {
		if text := f.Text(name); text != "" {
			values.Set(name, text)
		}
	}
	return values
}

func showDeadLetters(v *visit) (content, error) {
	app, f := v.PathValue("app"), v.fields()
	replay := given(f, deadLetterFields...)
	replay.Set("action", string(repeat.BulkRetryRuns))
	page := deadLettersPage{App: app, Filter: f.All(deadLetterFields...), States: repeat.DeadLetterStates,
		Classes: slices.Sorted(slices.Values(run.Classes)), Replay: v.linkQuery(replay, "apps", app, "new-bulk")}
	query := deadLetters(f).Query(app)
	query.Page = v.page()
	err := f.Err()
	if err == nil {
		page.List, err = v.client.DeadLetters(v.Context(), query)
	}
	page.More = v.more(page.Next)
	return v.filtered(content{Data: page, Refresh: true}, err)
}

// retryDeadLetter replays a single run.
func retryDeadLetter(v *visit) (done, error) {
	run, err := v.client.RetryRun(v.Context(), v.PathValue("run"))
	return done{to: v.link("runs", run.ID), notice: "dead_letters.notice.retried"}, err
}
