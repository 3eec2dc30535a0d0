package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// Explanation says what became of one scheduled time of a trigger, and why.
type Explanation struct {
	App     string    `json:"app"`
	Job     string    `json:"job"`
	Trigger string    `json:"trigger"`
	At      time.Time `json:"at"`
	Verdict Verdict   `json:"verdict"`
	// Reason is the verdict in words.
	Reason string `json:"reason"`
	// Revision is that of the job in force at the time, 0 if there was none.
	Revision int64 `json:"revision,omitempty"`
	// DueAt is when the fire was or is due, nil if the schedule does not fire at At. NextAt is the
	// next fire after At by the schedule in force, nil if there is none.
	DueAt  *time.Time `json:"due_at,omitempty"`
	NextAt *time.Time `json:"next_at,omitempty"`
	// Steps are the decisions that led to the verdict, oldest first.
	Steps []Step `json:"steps"`
	// Run executes the fire. Misfire is the decision about a missed fire, and CatchUp the run that
	// stands for it, if there is one.
	Run     *dispatcher.Run     `json:"run,omitempty"`
	Misfire *dispatcher.Misfire `json:"misfire,omitempty"`
	CatchUp *dispatcher.Run     `json:"catch_up,omitempty"`
}

// Step is one decision on the way to a verdict.
type Step struct {
	At   time.Time `json:"at"`
	What string    `json:"what"`
}

// Verdict says what became of a scheduled time.
type Verdict string

// The verdicts.
const (
	VerdictRun     Verdict = "run"     // it has a run
	VerdictMisfire Verdict = "misfire" // a misfire decision covers it
	VerdictOpen    Verdict = "open"    // it is due and not yet claimed or settled
	VerdictPlanned Verdict = "planned" // it is in the future
	VerdictNone    Verdict = "none"    // it was never scheduled
	VerdictUnknown Verdict = "unknown" // the history does not reach back so far, or cannot be evaluated
	VerdictMissing Verdict = "missing" // it was scheduled, but the ledger has nothing about it
)

// ExplainQuery names the time of a trigger to explain.
type ExplainQuery struct {
	App, Job, Trigger string
	At, Now           time.Time
}

// Explain says what became of a time of a trigger. The error is ErrNotFound if the trigger has no
// history.
func Explain(ctx context.Context, reader Reader, query ExplainQuery) (Explanation, error) {
	e := explainer{
		reader: reader, schedules: dispatcher.NewPastSchedules(reader, query.App),
		Explanation: Explanation{
			App: query.App, Job: query.Job, Trigger: query.Trigger,
			At: query.At.UTC().Truncate(time.Millisecond), Steps: []Step{},
		},
	}
	err := e.run(ctx, query.Now)
	return e.Explanation, err
}

// explainer is one call of Explain.
type explainer struct {
	Explanation
	reader    Reader
	schedules *dispatcher.PastSchedules
	history   dispatcher.TriggerHistory
	app       dispatcher.AppHistory
}

func (e *explainer) run(ctx context.Context, now time.Time) error {
	var err error
	if e.app, err = e.reader.AppHistory(ctx, e.App, e.At, now); err != nil {
		return err
	}
	// The history comes before the ledger: a fire that is claimed in between is found there.
	since := latest(e.At.Add(-time.Minute), time.UnixMilli(0))
	job, err := e.reader.JobKey(ctx, e.App, e.Job)
	if err != nil {
		return err
	}
	histories, err := e.reader.TriggerHistories(ctx, job, since)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(histories, func(h dispatcher.TriggerHistory) bool { return h.Name == e.Trigger })
	if i < 0 {
		return dispatcher.NotFound("trigger", e.App+"/"+e.Job+"/"+e.Trigger)
	}
	e.history = histories[i]
	key := dispatcher.RunKey{
		TriggerID: e.history.ID, ScheduledAt: e.At, Kind: dispatcher.KindSchedule,
	}
	if e.Run, err = e.find(ctx, key.String()); err != nil {
		return err
	}
	scheduled, err := e.schedule(ctx)
	if err != nil {
		return err
	}
	if e.Run != nil {
		e.decide(VerdictRun, "its run %s", progress(e.Run))
		e.addRun(e.Run)
		return nil
	}
	if scheduled == nil || e.Verdict != "" {
		return nil
	}
	if err := e.findMisfire(ctx); err != nil || e.Misfire != nil {
		return err
	}
	e.unclaimed(scheduled)
	return nil
}

// find returns a run, nil if there is none.
func (e *explainer) find(ctx context.Context, id string) (*dispatcher.Run, error) {
	run, err := e.reader.Run(ctx, id)
	if errors.Is(err, dispatcher.ErrNotFound) {
		return nil, nil
	}
	return &run, err
}

func (e *explainer) decide(verdict Verdict, format string, args ...any) {
	e.Verdict, e.Reason = verdict, fmt.Sprintf(format, args...)
}

func (e *explainer) step(at time.Time, format string, args ...any) {
	e.Steps = append(e.Steps, Step{at, fmt.Sprintf(format, args...)})
}

// schedule adds the schedule that was in force, and returns the span in which it scheduled the
// time. If there is none, schedule decides why not.
func (e *explainer) schedule(ctx context.Context) (*dispatcher.Span, error) {
	revision, span := e.history.At(e.At)
	if revision == nil {
		e.undeclared()
		return nil, nil
	}
	e.inForce(revision)
	parsed, err := e.schedules.At(ctx, e.history.Identity, revision)
	var unreadable *dispatcher.UnreadableError
	switch {
	case errors.As(err, &unreadable):
		e.decide(VerdictUnknown, "its definition cannot be evaluated: %v", err)
		return nil, nil
	case err != nil:
		return nil, err
	}
	if next, ok := parsed.Next(e.At); ok {
		e.NextAt = &next
	}
	_, delayed := parsed.FixedDelay()
	planned := span != nil && e.At.Equal(e.history.Next)
	if delayed && !planned {
		e.NextAt = nil // it depends on the end of a run
		if e.Run == nil {
			e.decide(VerdictNone, "a fixed delay counts from the end of each run, and no run led to this time")
		}
		return span, nil
	}
	if planned || parsed.Matches(e.At) {
		due := e.At.Add(parsed.Delay(e.At))
		e.DueAt = &due
		if span != nil {
			e.step(e.At, "scheduled; due at %s", dispatcher.FormatInstant(due))
			return span, nil
		}
	}
	return nil, e.unscheduled(ctx, revision, parsed)
}

// inForce adds the steps that say which definition was in force.
func (e *explainer) inForce(in *dispatcher.TriggerRevision) {
	e.Revision = in.Revision
	switch {
	case in.Cause == dispatcher.CauseDelete:
		e.step(in.From, "the trigger was removed")
		return
	case !in.Enabled:
		e.step(in.From, "revision %d came into force (%s): disabled", in.Revision, in.Cause)
		return
	}
	paused := ""
	if in.Paused {
		paused = ", paused"
	}
	bounds := ""
	if in.Calendar != "" {
		bounds = ", calendar " + in.Calendar
	}
	called := ""
	if in.Name != e.Trigger {
		called = ", called " + in.Name
	}
	e.step(in.From, "revision %d came into force (%s): %s in %s%s%s%s",
		in.Revision, in.Cause, dispatcher.Echo(in.Expression), in.Timezone, bounds, paused, called)
	if !e.app.Enabled && e.app.Changed != nil {
		e.step(*e.app.Changed, "the app was disabled")
	}
}

// undeclared explains a time before the first revision.
func (e *explainer) undeclared() {
	if e.At.Before(e.app.Since) {
		e.beforeHistory()
		return
	}
	first := e.history.Revisions[0]
	e.decide(VerdictNone, "the trigger was not declared yet")
	e.step(first.From, "first declared as revision %d", first.Revision)
}

func (e *explainer) beforeHistory() {
	e.decide(VerdictUnknown, "the history of the app only goes back to %s", dispatcher.FormatInstant(e.app.Since))
}

// unscheduled decides why the schedule in force did not schedule the time.
func (e *explainer) unscheduled(ctx context.Context, in *dispatcher.TriggerRevision, parsed *schedule.Schedule) error {
	matches := parsed.Matches(e.At)
	switch {
	case in.Cause == dispatcher.CauseDelete:
		e.decide(VerdictNone, "the trigger had been removed")
	case !in.Enabled:
		e.decide(VerdictNone, "the trigger or its job was disabled")
	case matches && e.At.Before(e.app.Since):
		e.beforeHistory()
	case matches && in.NextFireTime != nil && e.At.Before(*in.NextFireTime):
		e.decide(VerdictNone, "revision %d, in force since %s, first fires at %s",
			in.Revision, dispatcher.FormatInstant(in.From), dispatcher.FormatInstant(*in.NextFireTime))
	case matches && in.NextFireTime == nil:
		e.decide(VerdictNone, "revision %d had no fires left", in.Revision)
	case matches:
		e.decide(VerdictNone, "the definition changed before it was due")
	case in.StartAt != nil && e.At.Before(*in.StartAt):
		e.decide(VerdictNone, "it is before start_at %s", dispatcher.FormatInstant(*in.StartAt))
	case in.EndAt != nil && e.At.After(*in.EndAt):
		e.decide(VerdictNone, "it is after end_at %s", dispatcher.FormatInstant(*in.EndAt))
	default:
		return e.unmatched(ctx, in)
	}
	return nil
}

// unmatched decides why the schedule does not fire at a time within its bounds.
func (e *explainer) unmatched(ctx context.Context, in *dispatcher.TriggerRevision) error {
	e.decide(VerdictNone, "%s in %s does not fire at this time", dispatcher.Echo(in.Expression), in.Timezone)
	uncounted := *in
	uncounted.RepeatCount = 0
	unbounded := uncounted
	unbounded.Calendar = ""
	for _, tried := range []struct {
		revision *dispatcher.TriggerRevision
		reason   string
	}{
		{&uncounted, fmt.Sprintf("its repeat_count of %d was used up", in.RepeatCount)},
		{&unbounded, fmt.Sprintf("calendar %s excludes it", dispatcher.Echo(in.Calendar))},
	} {
		s, err := e.schedules.At(ctx, e.history.Identity, tried.revision)
		if err != nil {
			return err
		}
		if s.Matches(e.At) {
			e.Reason = tried.reason
			return nil
		}
	}
	return nil
}

// findMisfire looks for the misfire decision that covers the time.
func (e *explainer) findMisfire(ctx context.Context) error {
	found, err := e.reader.Misfires(ctx, dispatcher.RunQuery{
		App: e.App, Job: e.Job, Trigger: e.Trigger, From: e.At, To: e.At, Page: dispatcher.Page{Limit: 1},
	})
	if err != nil || len(found) == 0 {
		return err
	}
	m := found[0]
	e.Misfire = &m
	e.decide(VerdictMisfire, "it was missed, and the misfire decision was %s: %s", m.Decision, m.Reason)
	by := "a change of the definition"
	if m.Node != nil {
		by = "node " + m.Node.String()
	}
	e.step(m.DecidedAt, "%s settled %d missed fires from %s to %s: %s, %s",
		by, m.Count, dispatcher.FormatInstant(m.From), dispatcher.FormatInstant(m.To), m.Decision, m.Reason)
	if m.Run == "" {
		return nil
	}
	if e.CatchUp, err = e.find(ctx, m.Run); err == nil && e.CatchUp != nil {
		e.addRun(e.CatchUp)
	}
	return err
}

// unclaimed decides about a scheduled time that has neither a run nor a misfire decision.
func (e *explainer) unclaimed(span *dispatcher.Span) {
	switch {
	case e.At.Before(e.app.Since):
		e.beforeHistory()
	case span.Open.IsZero() || e.At.Before(span.Open):
		e.decide(VerdictMissing, "it was scheduled, but the ledger has neither a run nor a misfire decision")
	case e.history.Error != "":
		e.decide(VerdictOpen, "the trigger is in quarantine: %s", e.history.Error)
	case e.At.After(e.app.Now):
		e.decide(VerdictPlanned, "it is in the future")
	case span.Revision.Paused:
		e.decide(VerdictOpen, "it is due, but the trigger or its job is paused")
	case e.app.Suspended != "":
		e.decide(VerdictOpen, "it is due, but %s", e.app.Suspended)
	case !e.app.Enabled:
		e.decide(VerdictOpen, "it is due, but the app is disabled")
	default:
		e.decide(VerdictOpen, "it is due and not yet claimed or settled")
	}
}

// addRun adds the steps of a run.
func (e *explainer) addRun(run *dispatcher.Run) {
	claimed := func(attempt int) {
		if run.ClaimedAt != nil && run.Node != nil && attempt == run.Attempt {
			e.step(*run.ClaimedAt, "claimed by node %s as attempt %d", *run.Node, run.Attempt)
		}
	}
	listed := 0
	for _, a := range run.Attempts {
		listed = a.Attempt
		claimed(a.Attempt)
		outcome := string(a.State)
		if a.Error != "" {
			outcome += ": " + a.Error
		}
		e.step(a.StartedAt, "attempt %d by node %s", a.Attempt, a.Node)
		e.step(a.EndedAt, "attempt %d ended: %s", a.Attempt, outcome)
		if a.Late != nil {
			e.step(a.Late.EndedAt, "its result came late: %s", a.Late.State)
		}
	}
	if listed < run.Attempt {
		claimed(run.Attempt)
	}
}

// progress says how far a run has come.
func progress(run *dispatcher.Run) string {
	waiting := run.Waiting()
	switch {
	case waiting != "" && run.Error != "":
		return waiting + " (" + run.Error + ")"
	case waiting != "":
		return waiting
	case run.EndedAt == nil:
		return "is " + string(run.State)
	}
	return fmt.Sprintf("ended as %s at attempt %d", run.State, run.Attempt)
}
