package plan

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/provider/binding"
)

// sectionsInFull is the number of a job's triggers that a warning about fires describes.
const sectionsInFull = 5

// scheduleChanges returns the names of the triggers with different schedules or calendars in two definitions of a job.
func scheduleChanges(before, after dispatcher.Job, calendars map[string]bool) []string {
	var changed []string
	names := maps.Clone(before.Triggers)
	maps.Copy(names, after.Triggers)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, is := before.Triggers[name], after.Triggers[name]
		on, stays := isOn(before, name), isOn(after, name)
		if on != stays || on && (!was.Same(is.Schedule) || calendars[is.Calendar]) {
			changed = append(changed, name)
		}
	}
	return changed
}

// JobChange is a job in the state under its new names, and as planned.
type JobChange struct {
	Before, After dispatcher.Job
	E             *binding.Expander // has expanded After
	Renames       Renaming
	Now           time.Time
}

// KeepsFires reports whether a planned job keeps its schedules. If they or their calendars change,
// it adds a warning with the effect on fires: Terraform shows the values of attributes, but a
// reviewer wants to know when the job will run.
func (p *Plan) KeepsFires(ctx context.Context, diags *diag.Diagnostics, change JobChange) bool {
	before, after := change.Before, change.After
	after.Origin = before.Origin // origins determine H and jitter
	for name, t := range after.Triggers {
		t.Origin = before.Triggers[name].Origin
		after.Triggers[name] = t
	}
	names := scheduleChanges(before, after, nil)
	keeps := len(names) == 0 && change.E.AllKnown("/triggers") && change.E.AllKnown("/enabled")
	if !p.reads() || !change.E.NamesKnown("/triggers") {
		return keeps
	}
	uses := func(name string) bool {
		return before.Triggers[name].Calendar != "" || after.Triggers[name].Calendar != ""
	}
	reads := slices.ContainsFunc(names, uses)
	if len(p.calendarsPlanned(after.App)) > 0 {
		reads = reads || slices.ContainsFunc(slices.Collect(maps.Keys(after.Triggers)), uses)
	}
	calendars := p.calendarChange(ctx, after.App, reads)
	if names = scheduleChanges(before, after, calendars.changed); len(names) > 0 {
		p.warnOfZones(ctx, diags)
		p.warnOfFires(diags, change.E, names, &fireReport{
			before: p.withClocks(ctx, before, after, change.Renames, names), after: after, now: change.Now.UTC(),
			calendars: calendars, budget: schedule.NewSteps(firesBudget),
		})
	}
	return keeps
}

// warnOfFires adds the warning about these triggers. e has expanded the planned job.
func (p *Plan) warnOfFires(diags *diag.Diagnostics, e *binding.Expander, names []string, f *fireReport) {
	var sections, further []string
	at, effects := "", map[string]bool{}
	for _, name := range names {
		section := fmt.Sprintf("Trigger %s is known only after apply.\n", name)
		if pointer := input.Pointer("triggers", name); e.AllKnown(pointer) && e.AllKnown("/enabled") {
			var effect string
			section, effect = f.section(name)
			effects[effect] = true
		}
		switch {
		case section == "":
			continue
		case len(sections) < sectionsInFull:
			sections = append(sections, section)
		default:
			further = append(further, name)
		}
		if _, there := f.after.Triggers[name]; there && at == "" {
			at = input.Pointer("triggers", name, "expression")
		}
	}
	if len(sections) == 0 {
		return // the same fires, in another spelling
	}
	text := "If this is applied now:\n\n" + strings.Join(sections, "\n")
	if len(further) > 0 {
		text += fmt.Sprintf("\n%d more triggers change: %s.\n", len(further), strings.Join(further, ", "))
	}
	if renamed := likelyRename(f.before, f.after); renamed != "" {
		text += "\n" + renamed
	}
	delete(effects, "")
	effect := cmp.Or(strings.Join(slices.Sorted(maps.Keys(effects)), ", "), "changed fires")
	p.warn(diags, warning{ // of each effect a few jobs, so that one with another effect is seen among hundreds
		kind: "fires " + effect, title: "Fires change", thing: f.before.App + "/" + f.before.Name, at: at,
		detail: strings.TrimRight(text, "\n"), short: effect + ".", more: "more jobs, " + effect,
	})
}

// fireReport compares the triggers of a job before and after a change.
type fireReport struct {
	before, after dispatcher.Job
	calendars     calendarChange
	now           time.Time
	budget        *schedule.Budget
}

// section describes the change of one trigger, and in short its effect. It returns "" if the fires stay the same.
func (f *fireReport) section(name string) (text, effect string) {
	was, is := f.schedule(f.before, f.calendars.before, name), f.schedule(f.after, f.calendars.after, name)
	if is != nil {
		is = f.continuing(name, is)
	}
	if f.before.Triggers[name].IsDelay() || f.after.Triggers[name].IsDelay() {
		return fmt.Sprintf("Trigger %s counts from the end of each run, so its fires are not known ahead.\n", name), "fires after the end of runs"
	}
	if was != nil && !foretells(was, f.before.Triggers[name]) {
		return fmt.Sprintf("Trigger %s fires by H or jitter, which depend on the name that it was created with. Only the server knows that "+
			"name, so its fires are not shown.\n", name), "fires that are not shown"
	}
	compared := compareFires(f.budget, was, is, f.now)
	if compared.same() {
		return "", ""
	}
	zone := f.zone(name)
	text = fmt.Sprintf("%s, times in %s:\n%s", f.title(name, was, is), zone, compared.text(zone))
	if is != nil && countsFromApply(f.after.Triggers[name]) && (was == nil || !was.SameGrid(is)) {
		text += "  The new fires count from the time of the apply.\n"
	}
	if c := f.after.Triggers[name].Calendar; c != "" {
		if _, err := f.calendars.after.Find(c); err != nil || f.calendars.after == nil {
			text += fmt.Sprintf("  What calendar %s will exclude is known only after apply, and not counted.\n", c)
		}
	}
	return text, compared.effect()
}

// title describes the change of a trigger.
func (f *fireReport) title(name string, was, is *schedule.Schedule) string {
	_, existed := f.before.Triggers[name]
	_, stays := f.after.Triggers[name]
	switch {
	case !existed:
		return "New trigger " + name
	case !stays:
		return "Removed trigger " + name
	case was == nil:
		return "Enabled trigger " + name
	case is == nil:
		return "Disabled trigger " + name
	}
	return "Trigger " + name
}

// same reports whether all fires are the same.
func (c comparison) same() bool {
	for _, count := range c.counts {
		if count.added+count.removed+count.moved > 0 || count.incomplete {
			return false
		}
	}
	return slices.EqualFunc(c.before, c.after, time.Time.Equal)
}

// schedule returns the schedule of a job's trigger, or nil if it fires nothing. Validate has reported parse errors.
func (f *fireReport) schedule(job dispatcher.Job, calendars dispatcher.Calendars, name string) *schedule.Schedule {
	if !isOn(job, name) {
		return nil
	}
	return f.parse(job, calendars, name)
}

// parse is schedule, for disabled triggers, too.
func (f *fireReport) parse(job dispatcher.Job, calendars dispatcher.Calendars, name string) *schedule.Schedule {
	t := job.Triggers[name]
	anchor := t.AnchorAt
	if anchor.IsZero() {
		anchor = f.now
	}
	if _, err := calendars.Find(t.Calendar); err != nil {
		calendars = nil // the same plan creates it from unknown values
	}
	s, err := t.Parse(job.Identity(name), anchor, calendars)
	if err != nil {
		return nil
	}
	return s
}

// continuing returns the planned schedule of a trigger with the anchor and count that it keeps.
func (f *fireReport) continuing(name string, is *schedule.Schedule) *schedule.Schedule {
	before, existed := f.before.Triggers[name]
	if !existed {
		return is
	}
	was := f.parse(f.before, f.calendars.before, name)
	if was == nil || !was.SameGrid(is) {
		return is
	}
	if before.AnchorAt.IsZero() {
		before.AnchorAt = f.now
	}
	kept := f.after
	kept.Triggers = maps.Clone(f.after.Triggers)
	kept.Triggers[name] = f.after.Triggers[name].Continuing(before, was, is, f.now)
	return f.parse(kept, f.calendars.after, name)
}

// zone returns the zone of the planned or, if it is removed, the former trigger.
func (f *fireReport) zone(name string) *time.Location {
	t, ok := f.after.Triggers[name]
	if !ok {
		t = f.before.Triggers[name]
	}
	s, err := t.Parse(f.after.Identity(name), f.now, nil)
	if err != nil {
		return time.UTC
	}
	return s.In(f.now).Location()
}

// isOn reports whether a trigger of job exists and is enabled.
func isOn(job dispatcher.Job, name string) bool {
	t, ok := job.Triggers[name]
	return ok && job.Enabled && t.Enabled
}

// countsFromApply reports whether the fires of a resolved trigger depend on the time of its declaration.
func countsFromApply(t dispatcher.Trigger) bool {
	counted := t.Dialect == schedule.DialectInterval || t.Dialect == schedule.DialectCalendarInterval || t.RepeatCount > 0
	return counted && t.StartAt == nil
}

// dependsOnNames reports whether the fires of a trigger depend on names.
func dependsOnNames(t dispatcher.Trigger) bool {
	return t.Jitter > 0 || schedule.UsesHash(t.Expression)
}

// foretells reports whether the schedule computed here contains a trigger's next fire from the API. After a
// rename of the trigger or its job it does not, because the API does not return the original names.
func foretells(s *schedule.Schedule, t dispatcher.Trigger) bool {
	if !dependsOnNames(t) || t.NextFireTime == nil || t.DueAt == nil {
		return true
	}
	return s.Matches(*t.NextFireTime) && t.NextFireTime.Add(s.Delay(*t.NextFireTime)).Equal(*t.DueAt)
}

// withClocks returns a job from the state with values of its changed triggers that only the API
// knows, under their former names: the declaration time of those that count from it, and the next
// fire of those that depend on names. If the job cannot be read, they count from now.
func (p *Plan) withClocks(ctx context.Context, job, after dispatcher.Job, renames Renaming, names []string) dispatcher.Job {
	asks := func(name string) bool {
		return countsFromApply(job.Triggers[name]) || countsFromApply(after.Triggers[name]) || dependsOnNames(job.Triggers[name])
	}
	if !slices.ContainsFunc(names, asks) {
		return job
	}
	stored, err := p.Job(ctx, job.App, renames.from)
	if err != nil {
		return job
	}
	stored = renames.Of(stored)
	job.Triggers = maps.Clone(job.Triggers)
	for name, t := range job.Triggers {
		there := stored.Triggers[name]
		t.AnchorAt, t.NextFireTime, t.DueAt = there.AnchorAt, there.NextFireTime, there.DueAt
		t.PrevFireTime, t.CountedFrom, t.Fired = there.PrevFireTime, there.CountedFrom, there.Fired
		job.Triggers[name] = t
	}
	return job
}

// KeepMoving replaces values of a job that only change with time by those in the state: the next fire times,
// and the summary of its triggers. Otherwise every fire would be drift, and a plan with -refresh-only and
// -detailed-exitcode would never be 0. It keeps the new values when the job has another revision, when a
// trigger fails or works again, and when newer time zone data move its fires.
func KeepMoving(read, state binding.Values, job dispatcher.Job, now time.Time) {
	if !read["revision"].Equal(state["revision"]) || state["next_fire_times"].IsNull() || state["state"].IsNull() {
		return
	}
	failed := string(dispatcher.JobError)
	if (read.Text("state").ValueString() == failed) != (state.Text("state").ValueString() == failed) {
		return
	}
	kept := state.Map("next_fire_times").Elements()
	for name, t := range job.Triggers {
		before, known := kept[name].(timetypes.RFC3339)
		if known && t.Calendar == "" && moved(before, t, now) {
			return
		}
	}
	read["next_fire_times"], read["state"] = state["next_fire_times"], state["state"]
}

// moved reports whether a former next fire time is no longer one, although it has not passed. If
// neither the trigger nor a calendar, which is a separate resource, has changed, the cause is time
// zone data.
func moved(before timetypes.RFC3339, t dispatcher.Trigger, now time.Time) bool {
	at, diags := before.ValueRFC3339Time()
	if diags.HasError() {
		return true
	}
	// A node claims a fire shortly before it is due, and its clock may be ahead of this one.
	passed := !at.After(now.Add(time.Minute))
	if t.NextFireTime == nil {
		return !passed
	}
	return t.NextFireTime.Before(at) || !passed && !t.NextFireTime.Equal(at)
}
