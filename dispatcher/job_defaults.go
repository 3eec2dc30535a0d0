package dispatcher

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// JobDefaults are what an app gives its jobs where they leave it out. They are filled in when a job is declared, so that a
// later change of them changes no stored job.
type JobDefaults struct {
	// Timezone is for triggers with a wall-clock expression.
	Timezone string `json:"timezone,omitempty"`
	// Retry is for jobs without any; a job with a retry of its own takes nothing of it.
	Retry *run.Retry `json:"retry,omitempty"`
	// Headers are added to those of webhooks and of requests to endpoint groups, except the names that these have themselves.
	Headers           map[string]string     `json:"headers,omitempty"`
	MisfirePolicy     MisfirePolicy         `json:"misfire_policy,omitempty"`
	ConcurrencyPolicy run.ConcurrencyPolicy `json:"concurrency_policy,omitempty"`
}

// LeaveToApp empties what SetDefaults gave a decoded job and JobDefaults.Fill may fill.
func (j *JobSpec) LeaveToApp() { j.Retry, j.ConcurrencyPolicy = run.Retry{}, "" }

// LeaveToApp empties what SetDefaults gave a decoded trigger and JobDefaults.Fill may fill.
func (t *TriggerSpec) LeaveToApp() { t.MisfirePolicy = "" }

// Fill gives a job, whose LeaveToApp was called before it was decoded, the values that it leaves out: those of d, which may
// be nil, or else the general ones.
func (d *JobDefaults) Fill(j *Job) {
	if d == nil {
		d = &JobDefaults{}
	}
	j.ConcurrencyPolicy = cmp.Or(j.ConcurrencyPolicy, d.ConcurrencyPolicy, run.ConcurrencyAllow)
	if j.Retry.IsZero() && d.Retry != nil {
		j.Retry = *d.Retry
	}
	j.Retry = j.Retry.OrDefault()
	if own, has := j.Target.Headers(); has && len(d.Headers) > 0 {
		j.Target = j.Target.WithHeaders(d.headers(own))
	}
	j.Triggers = maps.Clone(j.Triggers)
	for name, t := range j.Triggers {
		t.MisfirePolicy = cmp.Or(t.MisfirePolicy, d.MisfirePolicy, FireOnce)
		if t.NeedsTimezone() {
			t.Timezone = d.Timezone
		}
		j.Triggers[name] = t
	}
}

// headers returns the headers of a target with the defaults. Names of headers are equal without regard to case.
func (d *JobDefaults) headers(own map[string]string) map[string]string {
	all := map[string]string{}
	taken := map[string]bool{}
	for name, value := range own {
		all[name], taken[strings.ToLower(name)] = value, true
	}
	for name, value := range d.Headers {
		if !taken[strings.ToLower(name)] {
			all[name] = value
		}
	}
	return all
}

// empty tells whether d gives nothing.
func (d *JobDefaults) empty() bool {
	return d.Timezone == "" && d.Retry == nil && len(d.Headers) == 0 && d.MisfirePolicy == "" && d.ConcurrencyPolicy == ""
}

// Normal returns defaults as they are stored: nil if they give nothing.
func (d *JobDefaults) Normal() *JobDefaults {
	if d == nil || d.empty() {
		return nil
	}
	return d
}

// Check adds everything wrong with d, by the rules for what it is filled into.
func (d *JobDefaults) Check(problems *input.Problems, at string) {
	const trigger = "any"
	hook := target.Webhook{URL: "https://example.com"}
	hook.SetDefaults()
	job := Job{App: trigger, Name: trigger, JobSpec: JobSpec{Target: target.Target{Webhook: &hook}, Triggers: map[string]Trigger{trigger: {
		TriggerSpec: TriggerSpec{Schedule: Schedule{Expression: "0 0 * * *"}, MisfireAfter: DefaultMisfireAfter},
	}}}}
	d.Fill(&job)
	var wrong input.Problems
	wrong.AddError("", job.Validate())
	for _, problem := range wrong {
		for _, part := range []struct{ in, out string }{
			{"/target/webhook/headers", "/headers"}, {"/triggers/any", ""}, {"", ""},
		} {
			if below, ok := strings.CutPrefix(problem.Path, part.in); ok {
				problems.Add(at+part.out+below, problem.Code, "%s", problem.Message)
				break
			}
		}
	}
	if d.Retry != nil && d.Retry.IsZero() {
		problems.Add(at+"/retry/max_attempts", input.CodeRequired,
			"max_attempts is missing; leave retry out if jobs are to have the general default")
	}
}

// NeedsTimezone tells whether s means the wall clock and does not say of which zone.
func (s Schedule) NeedsTimezone() bool {
	return s.Timezone == "" && (s.OnExcluded.MovesByDays() || schedule.WallClock(s.Expression, s.Dialect))
}

// CheckTimezones returns the triggers that name no zone and need one, as Problems, or nil. Stored jobs always have
// one, because declaring a job fills it in.
func (j JobSpec) CheckTimezones() error {
	var problems input.Problems
	for _, name := range input.SortedKeys(j.Triggers) {
		problems.AddError(input.Pointer("triggers", name), j.Triggers[name].CheckTimezone())
	}
	return problems.Err()
}

// CheckTimezone returns a *Problem if s needs a zone and names none, or nil. Validate says so of a local time in dialect
// at, which may name an offset instead.
func (s Schedule) CheckTimezone() error {
	var wrong input.Problems
	s.Check(&wrong, "any")
	if !s.NeedsTimezone() || slices.ContainsFunc(wrong, func(p input.Problem) bool { return p.Code == input.CodeTimeZoneMissing }) {
		return nil
	}
	return &input.Problem{Path: "/timezone", Code: input.CodeTZRequired, Message: "timezone is missing: expression " +
		input.Echo(s.Expression) +
		" follows the wall clock of a place; name its zone, such as Europe/Berlin, or UTC if that is meant"}
}
