package console

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/console/kit"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// jobPage is a job with its history.
type jobPage struct {
	dispatcher.Job
	runTable
	// Rows are the triggers of the page, and MoreRows is a link to the following ones.
	Rows     []triggerRow
	MoreRows string
	// Strips are those of the first triggers, or of the one in the URL. More means that there are others.
	Strips []kit.StripChart
	More   bool
	// Runs are the latest, without those of backfills, of which LeftOut says how many there are.
	Runs    kit.Part[client.List[run.Run]]
	LeftOut int
	Health  jobHealth
	// Durations and Lateness are pictures of the latest runs. Ended means that one of them is over.
	Durations, Lateness kit.Bars
	Ended               bool
	Follows             []followRow
	jobDetails
}

// jobDetails is the part of a job's page below its runs.
type jobDetails struct {
	Definition kit.Part[string]
	Changes    kit.Part[client.List[access.AuditEntry]]
	Slots      *kit.Part[client.List[dispatcher.Slot]] // nil: the job has no slots
	State      *kit.Part[carriedState]                 // nil: it has none
	Budget     *kit.Part[dispatcher.ObjectiveStatus]   // nil: it has no objective
}

type triggerRow struct {
	Name string
	dispatcher.Trigger
}

// carriedState is the state that runs of a job carry, as text.
type carriedState struct {
	run.CarriedState
	Text string
}

// followRow is a job or a target that follows an event of the job.
type followRow struct {
	On     run.FollowEvent
	Jobs   []string
	Alert  string
	Target target.Kind
}

// How many entries of each list the page of a job has.
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
	page.Runs = kit.ReadPart(v.client.Runs(v.Context(), dispatcher.RunQuery{App: app, Job: name, Page: input.Page{Limit: runsOfJob}}))
	routine := slices.DeleteFunc(slices.Clone(page.Runs.Value.Items), func(r run.Run) bool { return r.Kind == run.KindBackfill })
	page.LeftOut, page.Runs.Value.Items = len(page.Runs.Value.Items)-len(routine), routine
	page.addCharts(v)
	page.Health = healthOf(page.Runs.Value.Items)
	page.Health.Alerts = kit.ReadPart(v.client.AlertStates(v.Context(), alert.StateQuery{
		App: page.App, Job: page.Name, Firing: true, Page: input.Page{Limit: alertsOfJob},
	}))
	if f := page.Health.Failure; f != nil && f.Class == run.ClassCircuitOpen {
		page.Health.Failure = attempted(v, *f)
	}
	page.addDetails(v)
	if page.Slots != nil {
		page.Health.Blocked = blockedBy(page.Slots.Value.Items, page.Runs.Value.Items, v.Now)
	}
	return content{Title: v.Texts.Text("job.title", "job", app+"/"+name), Data: page, Zone: page.zone(v.query("trigger")), Refresh: true}, nil
}

// zone returns the zone of a trigger, or without a name the one that all triggers of the job share; empty: they differ.
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

// addTriggers adds a page of the triggers: those after the one in the URL.
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

// addStrips adds the strips of the trigger in the URL, or of the first ones.
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

// Named returns the trigger of a name, or nil.
func (p jobPage) Named(name string) *triggerRow {
	found, is := p.Triggers[name]
	if !is {
		return nil
	}
	return &triggerRow{name, found}
}

// Latest returns the runs in the table; the pictures have more.
func (p jobPage) Latest() []run.Run {
	return p.Runs.Value.Items[:min(len(p.Runs.Value.Items), runsOfTable)]
}

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

// burnRate is how fast the error budget is used up, looking back as far as Span, such as 1h.
type burnRate struct {
	Span string
	Rate float64
}

// BurnRates returns the burn rates of the objective, that of the shortest span first.
func (p jobPage) BurnRates() []burnRate {
	var found []burnRate
	for span, rate := range p.Budget.Value.BurnRates {
		found = append(found, burnRate{span, rate})
	}
	length := func(b burnRate) input.Duration {
		d, _ := input.ParseDuration(b.Span) // the API writes them
		return d
	}
	slices.SortFunc(found, func(a, b burnRate) int { return cmp.Compare(length(a), length(b)) })
	return found
}

// follows lists the jobs and targets that follow the events of a job.
func follows(job dispatcher.Job) []followRow {
	var found []followRow
	for event, follow := range job.EachFollow() {
		row := followRow{On: event, Jobs: follow.Jobs, Alert: follow.Alert}
		if to := follow.Target(); to != nil {
			row.Target = to.Kind()
		}
		found = append(found, row)
	}
	return found
}

// TargetName names the target of the job: a host, a function, a group, a queue or a topic.
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

// addCharts draws how long the latest runs took, and how late fires began that did not wait as their job asked, the
// oldest first. A run that is not over is
// drawn up to now.
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
		began, first := r.StartedAt, r.Began()
		if r.Attempt == 0 { // for a waiting run, that is the time at which it was deferred
			began = nil
		}
		switch {
		case began != nil && r.EndedAt != nil:
			took = draw(took, "strip.took", r.EndedAt.Sub(*began))
		case began != nil && mark.Class == kit.ShapeLive:
			took = draw(took, "strip.so_far", v.Now.Sub(*began))
		}
		if r.Kind != run.KindSchedule || r.Waited != "" {
			continue
		}
		switch {
		case first != nil:
			late = draw(late, "strip.late", first.Sub(r.ScheduledAt))
		case r.EndedAt == nil && v.Now.After(r.ScheduledAt):
			late = draw(late, "strip.not_begun", v.Now.Sub(r.ScheduledAt))
		}
	}
	format := func(d time.Duration) string { return v.Texts.Duration(d) }
	p.Durations, p.Lateness = kit.NewDurationBars(took, format), kit.NewDurationBars(late, format)
}

// jobHealth shows in words whether a job works, at the top of its page. It is derived from the latest runs.
type jobHealth struct {
	// Alerts are conditions that hold for the job.
	Alerts kit.Part[client.List[alert.State]]
	// Wait is the host for which runs of the job wait, nil if they wait for none.
	Wait *hostWait
	// Blocked is the slot for which the fires of the job wait or are skipped; nil if they run.
	Blocked *dispatcher.Slot
	// Latest is the run with a result that was scheduled last: it is over, or an attempt failed.
	Latest *run.Run
	// Failure is the latest failure, and Success the latest run that succeeded, nil if the latest runs have none.
	Failure, Success *run.Run
	// FailingSince is when the first failed run since the latest success was scheduled; zero: none failed since.
	FailingSince time.Time
	// Examined is how many runs it is derived from.
	Examined int
}

// hostWait is the host for which runs of the job wait, because its circuit is open.
type hostWait struct {
	Host string
	// Runs is how many of the latest runs wait, and Since when the first of them was scheduled.
	Runs  int
	Since time.Time
	// ProbeAt is when the next of them goes there as a probe, nil if the host responds again.
	ProbeAt *time.Time
}

// alertsOfJob is how many conditions the top of a job's page has.
const alertsOfJob = 10

// attempted returns a run with the failure of its latest real attempt: a deferred run itself shows the deferral.
func attempted(v *visit, r run.Run) *run.Run {
	found, err := v.client.Run(v.Context(), r.ID)
	if err != nil {
		return &r // the known result is enough
	}
	for _, a := range slices.Backward(found.Attempts) {
		if a.Class != "" && a.Class != run.ClassCircuitOpen {
			found.Class, found.Error, found.StartedAt, found.EndedAt = a.Class, a.Error, &a.StartedAt, &a.EndedAt
			break
		}
	}
	return &found
}

// healthOf returns the health that runs show, the latest scheduled first.
func healthOf(runs []run.Run) jobHealth {
	h := jobHealth{Examined: len(runs)}
	for i := range runs {
		r := &runs[i]
		if r.WaitsFor != "" {
			h.wait(r)
		}
		switch {
		case r.State == run.Succeeded:
			if h.Success == nil {
				h.Success = r
			}
		case kit.ShapeOfRun(r.State) == kit.ShapeFailed || r.State == run.Retrying && r.Class != "": // or it goes on after a failed attempt
			if h.Failure == nil || h.Failure.Attempt == 0 && r.Attempt > 0 && h.Success == nil {
				h.Failure = r // an attempted run shows more than a waiting one
			}
			if h.Success == nil {
				h.FailingSince = r.ScheduledAt
			}
		default:
			continue
		}
		if h.Latest == nil {
			h.Latest = r
		}
	}
	return h
}

// blockedBy returns the slot that keeps the latest runs, the latest first, from running; nil: none. The attention page
// has the same rule; see view.BlockedAfter.
func blockedBy(slots []dispatcher.Slot, runs []run.Run, now time.Time) *dispatcher.Slot {
	if len(slots) == 0 || slots[0].Endpoint != "" {
		return nil
	}
	slot, longest, skipped, waits := &slots[0], time.Duration(0), 0, false
	holder, _ := run.ParseKey(slot.Run) // its scheduled time is all that counts
	for _, r := range runs {
		switch {
		case !r.ScheduledAt.After(holder.ScheduledAt):
			if r.StartedAt != nil && r.EndedAt != nil {
				longest = max(longest, r.EndedAt.Sub(*r.StartedAt))
			}
		case r.Attempt > 0:
			return nil // it has another slot
		case r.State == run.Skipped:
			skipped++
		case r.State == run.Queued:
			waits = waits || now.Sub(r.ScheduledAt) >= view.BlockedAfter
		}
	}
	if held := now.Sub(slot.Since); held < view.BlockedAfter || held <= view.BlockedTimes*longest || skipped < view.BlockedSkips && !waits {
		return nil
	}
	return slot
}

func (h *jobHealth) wait(run *run.Run) {
	if h.Wait == nil {
		h.Wait = &hostWait{Host: run.WaitsFor, ProbeAt: run.ProbeAt}
	}
	if h.Wait.Host == run.WaitsFor {
		h.Wait.Runs++
		h.Wait.Since = run.ScheduledAt
	}
}

func (h jobHealth) Wrong() bool {
	return h.Blocked != nil || !h.FailingSince.IsZero() || h.Wait != nil || len(h.Alerts.Value.Items) > 0 || h.Alerts.Problem != ""
}
