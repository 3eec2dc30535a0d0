package console

import (
	"net/http"
	"net/url"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
)

// bulkListPage is the list of the bulk actions of an app.
type bulkListPage struct {
	client.List[dispatcher.BulkAction]
	App, More string
}

func showBulkActions(v *visit) (view, error) {
	app := v.PathValue("app")
	list, err := v.client.BulkActions(v.Context(), app, v.page())
	return view{Data: bulkListPage{list, app, v.more(list.Next)}, Refresh: true}, err
}

// bulkActionPage is one bulk action with its progress.
type bulkActionPage struct {
	dispatcher.BulkAction
	Bar    progress
	Filter []fact
}

func showBulkAction(v *visit) (view, error) {
	b, err := v.client.BulkAction(v.Context(), v.PathValue("app"), v.PathValue("bulk"))
	if err != nil {
		return view{}, err
	}
	page := bulkActionPage{b, progressBar(b.Total, portion{"succeeded", b.Done}, portion{"skipped", b.Skipped}), v.bulkFacts(b.Filter)}
	return view{Title: v.texts.text("bulk." + string(b.Action)), Data: page, Refresh: !b.State.Ended()}, nil
}

// bulkFacts are what a filter selects by.
func (v *visit) bulkFacts(f dispatcher.BulkFilter) (facts []fact) {
	for _, one := range []struct{ key, value string }{
		{"bulk.name", f.Name}, {"bulk.host", f.Host}, {"bulk.labels", f.Labels.String()}, {"bulk.result", string(f.Result)},
		{"field.state", f.State}, {"field.job", f.Job}, {"field.class", string(f.Class)},
	} {
		if one.value != "" {
			facts = append(facts, v.fact(one.key, one.value))
		}
	}
	if !f.From.IsZero() {
		facts = append(facts, v.fact("bulk.from", v.timeHTML(f.From)))
	}
	if !f.To.IsZero() {
		facts = append(facts, v.fact("bulk.to", v.timeHTML(f.To)))
	}
	return facts
}

var bulkFields = []string{"action", "name", "host", "labels", "result", "state", "job", "class", "from", "to", "reason"}

// bulkSpec reads what a form asks for.
func (f *fields) bulkSpec() dispatcher.BulkSpec {
	return dispatcher.BulkSpec{Action: dispatcher.BulkVerb(f.text("action")), Reason: f.text("reason"), Filter: dispatcher.BulkFilter{
		Name: f.text("name"), Host: f.text("host"), Labels: f.labels("labels"), Result: dispatcher.RunState(f.text("result")),
		State: f.text("state"), Job: f.text("job"), Class: dispatcher.Class(f.text("class")), From: f.instant("from"),
		To: f.instant("to"),
	}}
}

// mayBulk refuses tokens that can begin no bulk action. The API refuses the actions for which a token lacks the scope.
func (v *visit) mayBulk(app string) error {
	if v.may(runScope, app) || v.may(writeScope, app) {
		return nil
	}
	return &pageError{status: http.StatusForbidden, key: "problem.forbidden", values: []any{"scope",
		string(runScope) + ", " + string(writeScope)}}
}

// newBulkPage asks for a bulk action. Once it says which, it has the number of what the filter selects.
type newBulkPage struct {
	App    string
	Given  map[string]string
	Verbs  []dispatcher.BulkVerb
	Count  *dispatcher.BulkCount
	Fields url.Values
}

func showNewBulkAction(v *visit) (view, error) {
	app, f := v.PathValue("app"), v.fields()
	if err := v.mayBulk(app); err != nil {
		return view{}, err
	}
	page := newBulkPage{App: app, Given: f.all(bulkFields...)}
	for _, verb := range dispatcher.BulkVerbs {
		if v.may(verb.Scope(), app) {
			page.Verbs = append(page.Verbs, verb)
		}
	}
	spec := f.bulkSpec()
	err := f.err()
	if err == nil && spec.Action != "" {
		var count dispatcher.BulkCount
		if count, err = v.client.CountBulk(v.Context(), app, spec); err == nil {
			page.Count, page.Fields = &count, f.given(bulkFields...)
		}
	}
	return v.filtered(view{Data: page}, err)
}

func startBulkAction(v *visit) (done, error) {
	app, f := v.PathValue("app"), v.fields()
	if err := v.mayBulk(app); err != nil {
		return done{}, err
	}
	spec := f.bulkSpec()
	if err := f.err(); err != nil {
		return done{}, err
	}
	b, err := v.client.CreateBulkAction(v.Context(), app, spec)
	return done{to: v.link("apps", app, "bulk", b.ID), notice: "bulk.notice.started"}, err
}

// cancelBulkAction ends an action; what is done stays done, so nothing asks before.
func cancelBulkAction(v *visit) (done, error) {
	app, id := v.PathValue("app"), v.PathValue("bulk")
	if err := v.mayBulk(app); err != nil {
		return done{}, err
	}
	_, err := v.client.CancelBulkAction(v.Context(), app, id)
	return done{to: v.link("apps", app, "bulk", id), notice: "bulk.notice.cancelled"}, err
}
