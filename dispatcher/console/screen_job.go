package console

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/console/kit"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// jobPage is a job with what happened to it.
type jobPage struct {
	dispatcher.Job
	runTable
	// Rows are the triggers of the page, and MoreRows is a link to those that follow.
	Rows     []triggerRow
	MoreRows string
	// Strips are those of the first triggers, or of the one that the URL names. More tells that there are others.
	Strips []kit.StripChart
	More   bool
	Runs   kit.Part[client.List[run.Run]]
	Health jobHealth
	// Durations and Lateness are pictures of the latest runs. Ended tells that one of them is over.
	Durations, Lateness kit.Bars
	Ended               bool
	Follows             []followRow
	jobDetails
}

// jobDetails is what the page of a job shows below its runs.
type jobDetails struct {
	Definition kit.Part[string]
	Changes    kit.Part[client.List[access.AuditEntry]]
	Slots      *kit.Part[client.List[dispatcher.Slot]] // nil: the job has no slots
	State      *kit.Part[carriedState]                 // nil: it carries none
	Budget     *kit.Part[dispatcher.ObjectiveStatus]   // nil: it has no objective
}

// triggerRow is a trigger of the job.
type triggerRow struct {
	Name string
	dispatcher.Trigger
}

// carriedState is the state that runs of a job hand on, as text.
type carriedState struct {
	run.CarriedState
	Text string
}

// followRow is a job or a target that follows an event of the job.
type followRow struct {
	On     run.FollowEvent
	Jobs   []string
	Target target.Kind
}

// What a page of a job has of each list.
const (
	stripsOfJob   = 2
	triggersOfJob = 30
	runsOfJob     = 60
	runsOfTable   = 20
	changesOfJob  = 10
)

// showJob shows one job. It makes the same few requests for any job.
func showJob(v *visit) (content, error) {
	app, name := v.PathValue("app"), v.PathValue("job")
	job, err := v.client.Job(v.Context(), app, name)
	if err != nil {
		return content{}, err
	}
	page := jobPage{Job: job, Follows: follows(job), runTable: runTable{zones: map[string]string{}}}
	page.addTriggers(v)
	page.addStrips(v)
	page.addRuns(v)
	page.addHealth(v)
	page.addDetails(v)
	return content{Title: v.Texts.Text("job.title", "job", app+"/"+name), Data: page, Zone: page.zone(v.query("trigger")), Refresh: true}, nil
}

// zone returns the zone of a trigger, or if none is named the one that all triggers of the job share; empty: they have several.
func (p *jobPage) zone(trigger string) string {
	if trigger != "" {
		return p.Triggers[trigger].Timezone
	}
	shared := ""
	for _, one := range p.Triggers {
		if shared != "" && one.Timezone != shared {
			return ""
		}
		shared = one.Timezone
	}
	return shared
}

// addTriggers adds a page of the triggers: those after the one that the URL names.
func (p *jobPage) addTriggers(v *visit) {
	for _, name := range slices.Sorted(maps.Keys(p.Triggers)) {
		p.zones[name] = p.Triggers[name].Timezone
		switch {
		case name <= v.query("after"):
		case len(p.Rows) == triggersOfJob:
			p.MoreRows = v.linkQuery(url.Values{"after": {p.Rows[triggersOfJob-1].Name}}, "apps", p.App, "jobs", p.Job.Name)
			return
		default:
			p.Rows = append(p.Rows, triggerRow{name, p.Triggers[name]})
		}
	}
}

// addStrips adds the strips of the trigger that the URL names, or of the first ones.
func (p *jobPage) addStrips(v *visit) {
	names := slices.Sorted(maps.Keys(p.Triggers))
	if asked := v.query("trigger"); asked != "" {
		names = []string{asked}
	}
	shown := names[:min(len(names), stripsOfJob)]
	p.More = len(p.Triggers) > len(shown)
	for _, trigger := range shown {
		strip, err := v.client.Strip(v.Context(), view.StripQuery{App: p.App, Job: p.Name, Trigger: trigger})
		if err != nil {
			p.Strips = append(p.Strips, kit.StripChart{Trigger: trigger, Problem: err.Error()})
			continue
		}
		p.Strips = append(p.Strips, kit.NewStrip(v.Reader, strip, func(at time.Time) string {
			return v.linkQuery(url.Values{"at": {input.FormatInstant(at)}},
				"apps", strip.App, "jobs", strip.Job, "triggers", strip.Trigger, "explain")
		}))
	}
}

// addRuns adds the latest runs, and the pictures of how long they took and how late they were.
func (p *jobPage) addRuns(v *visit) {
	p.Runs = kit.ReadPart(v.client.Runs(v.Context(), dispatcher.RunQuery{App: p.App, Job: p.Name, Page: input.Page{Limit: runsOfJob}}))
	p.addCharts(v)
}

// Named returns the trigger of a name, nil if there is none.
func (p jobPage) Named(name string) *triggerRow {
	found, is := p.Triggers[name]
	if !is {
		return nil
	}
	return &triggerRow{name, found}
}

// Latest returns the runs that the table has; the pictures have more.
func (p jobPage) Latest() []run.Run {
	return p.Runs.Value.Items[:min(len(p.Runs.Value.Items), runsOfTable)]
}

// addDetails adds what else is known of the job.
func (p *jobPage) addDetails(v *visit) {
	ctx := v.Context()
	p.Changes = kit.ReadPart(v.client.Audit(ctx, access.AuditQuery{
		Apps: []string{p.App}, Subject: "job " + p.Name, Page: input.Page{Limit: changesOfJob},
	}))
	if v.console.opts.Definition != nil {
		p.Definition = kit.ReadPart(v.console.opts.Definition(p.Job))
	}
	if p.MaxConcurrency > 0 || p.ConcurrencyPolicy != run.ConcurrencyAllow {
		slots := kit.ReadPart(v.client.Slots(ctx, p.App, p.Name))
		p.Slots = &slots
	}
	if p.CarryState {
		state, err := v.client.CarriedState(ctx, p.App, p.Name)
		shown := kit.ReadPart(carriedState{state, string(state.State)}, err)
		p.State = &shown
	}
	if p.Objective != nil {
		budget := kit.ReadPart(v.client.Objective(ctx, p.App, p.Name))
		p.Budget = &budget
	}
}

// follows lists what follows the events of a job.
func follows(job dispatcher.Job) []followRow {
	var found []followRow
	for _, one := range []struct {
		on run.FollowEvent
		by *dispatcher.Follow
	}{{run.OnSuccess, job.OnSuccess}, {run.OnFailure, job.OnFailure}, {run.OnMisfire, job.OnMisfire}} {
		if one.by == nil {
			continue
		}
		row := followRow{On: one.on, Jobs: one.by.Jobs}
		if one.by.Target != nil {
			row.Target = one.by.Target.Kind()
		}
		found = append(found, row)
	}
	return found
}

// TargetName says what the job calls: a host, a function, a group, a queue or a topic.
func (p jobPage) TargetName() string {
	switch t := p.Target; {
	case t.Webhook != nil:
		return strings.TrimSpace(t.Webhook.Method + " " + t.Webhook.URL)
	case t.Lambda != nil:
		return t.Lambda.Function
	case t.Group != nil:
		return t.Group.Name
	case t.SQS != nil:
		return t.SQS.QueueARN
	case t.SNS != nil:
		return t.SNS.TopicARN
	}
	return ""
}

// addCharts draws how long the latest runs took and how late they began, the oldest first. A run that is not over is drawn as far
// as it has come.
func (p *jobPage) addCharts(v *visit) {
	var took, late []kit.Bar
	for _, r := range slices.Backward(p.Runs.Value.Items) {
		p.Ended = p.Ended || r.EndedAt != nil
		mark := kit.Bar{Class: kit.ShapeOfRun(r.State), At: v.Zone.In(r.ScheduledAt, p.Zone(r.Trigger))}
		title := mark.At.Format(kit.TitleTime) + ": " + v.Texts.Text("state."+string(r.State))
		draw := func(all []kit.Bar, key string, d time.Duration) []kit.Bar {
			mark.Value, mark.Title = float64(max(d, 1)), title+", "+v.Texts.Text(key, "duration", v.Texts.Duration(d))
			return append(all, mark)
		}
		switch began := beginning(r); {
		case began != nil && r.EndedAt != nil:
			took = draw(took, "strip.took", r.EndedAt.Sub(*began))
		case began != nil && mark.Class == kit.ShapeLive:
			took = draw(took, "strip.so_far", v.Now.Sub(*began))
		}
		if r.Kind != run.KindSchedule {
			continue
		}
		switch first := firstStart(r); {
		case first != nil:
			late = draw(late, "strip.late", first.Sub(r.ScheduledAt))
		case r.EndedAt == nil && v.Now.After(r.ScheduledAt):
			late = draw(late, "strip.not_begun", v.Now.Sub(r.ScheduledAt))
		}
	}
	format := func(d time.Duration) string { return v.Texts.Duration(d) }
	p.Durations, p.Lateness = kit.NewDurationBars(took, format), kit.NewDurationBars(late, format)
}

// beginning returns when the latest attempt of a run began, nil if none has: one that waits has the time at which it was deferred.
func beginning(run run.Run) *time.Time {
	if run.Attempt == 0 {
		return nil
	}
	return run.StartedAt
}

// firstStart returns when the first attempt of a run began, nil if none has.
func firstStart(run run.Run) *time.Time {
	if run.FirstStartedAt == nil && run.Attempt == 1 {
		return run.StartedAt
	}
	return run.FirstStartedAt
}
