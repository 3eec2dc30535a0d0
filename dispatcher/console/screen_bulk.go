package console

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/console/kit"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

type bulkActionPage struct {
	repeat.BulkAction
	Bar    kit.Progress
	Filter []fact
}

func showBulkAction(v *visit) (content, error) {
	b, err := v.client.BulkAction(v.Context(), v.PathValue("app"), v.PathValue("bulk"))
	if err != nil {
		return content{}, err
	}
	page := bulkActionPage{b, kit.ProgressBar(b.Total,
		kit.Portion{Key: "succeeded", Count: b.Done}, kit.Portion{Key: "skipped", Count: b.Skipped}), v.bulkFacts(b.Filter)}
	return content{Title: v.Texts.Text("bulk." + string(b.Action)), Data: page, Refresh: !b.State.Ended()}, nil
}

func (v *visit) bulkFacts(f repeat.BulkFilter) (facts []fact) {
	state := v.Texts.Word("state.", f.State)
	if f.State != "" && slices.Contains(dispatcher.JobStates, dispatcher.JobState(f.State)) {
		state = v.Texts.Word("jobs.state.", f.State)
	}
	for _, one := range []struct{ key, value string }{
		{"bulk.name", f.Name}, {"bulk.host", f.Host}, {"bulk.labels", f.Labels.String()},
		{"bulk.result", v.Texts.Word("state.", string(f.Result))}, {"field.state", state}, {"field.job", f.Job},
		{"field.class", v.Texts.WordAndValue("class.", string(f.Class))},
	} {
		if one.value != "" {
			facts = append(facts, v.fact(one.key, one.value))
		}
	}
	if !f.From.IsZero() {
		facts = append(facts, v.fact("bulk.from", v.TimeHTML(f.From)))
	}
	if !f.To.IsZero() {
		facts = append(facts, v.fact("bulk.to", v.TimeHTML(f.To)))
	}
	return facts
}

var bulkFields = []string{"action", "name", "host", "labels", "result", "state", "job", "class", "from", "to", "reason"}

func bulkSpec(f *kit.Fields) repeat.BulkSpec {
	return repeat.BulkSpec{Action: repeat.BulkVerb(f.Text("action")), Reason: f.Text("reason"), Filter: repeat.BulkFilter{
		Name: f.Text("name"), Host: f.Text("host"), Labels: f.Labels("labels"), Result: run.State(f.Text("result")),
		State: f.Text("state"), Job: f.Text("job"), Class: run.Class(f.Text("class")), From: f.Instant("from"),
		To: f.Instant("to"),
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

// newBulkPage asks for a bulk action. Once filled in, it has the number of selected jobs or runs, and the first ones.
type newBulkPage struct {
	App     string
	Given   map[string]string
	Verbs   []repeat.BulkVerb
	Results []run.State
	Classes []run.Class
	// JobStates are those of jobs, and run.States those of the runs on which some action acts.
	JobStates []dispatcher.JobState
	RunStates []run.State
	// Agree is the action that a person is asked to confirm; nil: nothing yet.
	Agree *bulkAgreement
}

// bulkAgreement is the jobs or runs on which a bulk action would act.
type bulkAgreement struct {
	repeat.BulkCount
	// First are some of them, and Others is how many more there are.
	First  []bulkTarget
	Others int
	// Filter are the facts of the filter, and Fields the form that a person confirms.
	Filter []fact
	Fields url.Values
}

// bulkTarget is one of the jobs or runs on which a bulk action would act.
type bulkTarget struct {
	Name, Link string
	At         time.Time // of a run
}

// shownOfBulk is how many jobs or runs a person sees before they confirm.
const shownOfBulk = 10

func showNewBulkAction(v *visit) (content, error) {
	app, f := v.PathValue("app"), v.fields()
	if err := v.mayBulk(app); err != nil {
		return content{}, err
	}
	page := newBulkPage{App: app, Given: f.All(bulkFields...), Results: run.FinalStates, JobStates: dispatcher.JobStates,
		Classes:   slices.Sorted(slices.Values(run.Classes)),
		RunStates: slices.Concat(repeat.CancellableStates, repeat.DeadLetterStates)}
	for _, verb := range repeat.BulkVerbs {
		if v.may(verb.Scope(), app) {
			page.Verbs = append(page.Verbs, verb)
		}
	}
	spec := bulkSpec(f)
	err := f.Err()
	if err == nil && spec.Action != "" {
		page.Agree, err = v.bulkAgreement(app, spec, f)
	}
	return v.filtered(content{Data: page}, err)
}

// bulkAgreement counts the jobs or runs on which a bulk action would act, and names the first.
func (v *visit) bulkAgreement(app string, spec repeat.BulkSpec, f *kit.Fields) (*bulkAgreement, error) {
	count, err := v.client.CountBulk(v.Context(), app, spec)
	if err != nil {
		return nil, err
	}
	asked := &bulkAgreement{BulkCount: count, Filter: v.bulkFacts(spec.Filter), Fields: given(f, bulkFields...)}
	asked.Fields.Set("expected", strconv.Itoa(count.Total))
	if count.Total > 0 {
		asked.First, err = v.firstOfBulk(app, spec)
	}
	asked.Others = max(count.Total-len(asked.First), 0)
	return asked, err
}

// firstOfBulk returns the first jobs or runs on which a bulk action would act.
func (v *visit) firstOfBulk(app string, spec repeat.BulkSpec) (first []bulkTarget, err error) {
	few := input.Page{Limit: shownOfBulk}
	if spec.Action.OfJobs() {
		jobs, err := v.client.JobSummaries(v.Context(), spec.Filter.Jobs(app, few))
		for _, job := range jobs.Items {
			first = append(first, bulkTarget{Name: job.Name, Link: v.link("apps", app, "jobs", job.Name)})
		}
		return first, err
	}
	var runs client.List[run.Run]
	if spec.Action == repeat.BulkRetryRuns {
		runs, err = v.client.DeadLetters(v.Context(), spec.Filter.Dead(app, few))
	} else {
		runs, err = v.client.Runs(v.Context(), spec.Filter.Live(app, few))
	}
	for _, run := range runs.Items {
		first = append(first, bulkTarget{Name: run.Job, Link: v.link("runs", run.ID), At: run.ScheduledAt})
	}
	return first, err
}

// startBulkAction begins a confirmed action. If the filter now selects another number, the page asks again.
func startBulkAction(v *visit) (done, error) {
	app, f := v.PathValue("app"), v.fields()
	if err := v.mayBulk(app); err != nil {
		return done{}, err
	}
	asked := repeat.BulkRequest{BulkSpec: bulkSpec(f)}
	expected := f.Number("expected", -1)
	asked.Expected = &expected
	if err := f.Err(); err != nil {
		return done{}, err
	}
	if expected < 0 {
		return done{}, &pageError{status: http.StatusConflict, key: "bulk_new.uncounted"}
	}
	b, err := v.client.CreateBulkAction(v.Context(), app, asked)
	return done{to: v.link("apps", app, "bulk", b.ID), notice: "bulk.notice.started"}, err
}

// cancelBulkAction ends an action; finished changes stay, so there is no confirmation.
func cancelBulkAction(v *visit) (done, error) {
	app, id := v.PathValue("app"), v.PathValue("bulk")
	if err := v.mayBulk(app); err != nil {
		return done{}, err
	}
	_, err := v.client.CancelBulkAction(v.Context(), app, id)
	return done{to: v.link("apps", app, "bulk", id), notice: "bulk.notice.cancelled"}, err
}
