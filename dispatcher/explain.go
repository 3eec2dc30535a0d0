package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// Explanation is what became of one instant of a trigger, and why.
type Explanation struct {
	App     string    `json:"app"`
	Job     string    `json:"job"`
	Trigger string    `json:"trigger"`
	At      time.Time `json:"at"`
	Verdict Verdict   `json:"verdict"`
	// Reason is Account in words.
	Reason string `json:"reason"`
	// Revision is the job's that was in force, 0 if none was.
	Revision int64 `json:"revision,omitempty"`
	// DueAt is when the fire was or is due, nil if At is no instant of the schedule; NextAt is the
	// next instant after it by the schedule in force, nil if there is none.
	DueAt  *time.Time `json:"due_at,omitempty"`
	NextAt *time.Time `json:"next_at,omitempty"`
	// Steps are the chain of decisions, oldest first.
	Steps []Step `json:"steps"`
	// Run executed the instant. Misfire decided about it, with CatchUp in its place if there is one.
	Run     *Run     `json:"run,omitempty"`
	Misfire *Misfire `json:"misfire,omitempty"`
	CatchUp *Run     `json:"catch_up,omitempty"`
}

// Step is one link of the chain of decisions.
type Step struct {
	At   time.Time `json:"at"`
	What string    `json:"what"`
}

// Account says what became of an instant.
type Verdict string

// The accounts.
const (
	VerdictRun     Verdict = "run"     // a run executes it
	VerdictMisfire Verdict = "misfire" // a decision covers it
	VerdictOpen    Verdict = "open"    // it is due, and to be claimed or settled
	VerdictPlanned Verdict = "planned" // it is to come
	VerdictNone    Verdict = "none"    // it was never scheduled
	VerdictUnknown Verdict = "unknown" // the history does not go so far back, or cannot be evaluated
	VerdictMissing Verdict = "missing" // it was scheduled, and the ledger knows nothing of it
)

// ExplainLedger is what Explain reads.
type ExplainLedger interface {
	VerifyLedger
	Run(ctx context.Context, id string) (Run, error)
}

// ExplainQuery asks for the account of one instant of a trigger.
type ExplainQuery struct {
	App, Job, Trigger string
	At, Now           time.Time
}

// Explain tells what became of an instant of a trigger. The error is ErrNotFound if nothing is
// on record of the trigger.
func Explain(ctx context.Context, ledger ExplainLedger, query ExplainQuery) (Explanation, error) {
	e := explaining{ledger: ledger, accounts: newRevisionReader(ledger, query.App, query.Job), Explanation: Explanation{
		App: query.App, Job: query.Job, Trigger: query.Trigger, At: query.At.UTC().Truncate(time.Millisecond), Steps: []Step{},
	}}
	err := e.run(ctx, query.Now)
	return e.Explanation, err
}

// explaining is one call of Explain.
type explaining struct {
	Explanation
	ledger   ExplainLedger
	accounts *revisionReader
	record   TriggerHistory
	appState AppHistory
}

func (e *explaining) run(ctx context.Context, now time.Time) error {
	var err error
	if e.appState, err = e.ledger.AppHistory(ctx, e.App, e.At, now); err != nil {
		return err
	}
	// The record comes before the ledger: what is claimed meanwhile is found there.
	records, err := e.ledger.TriggerHistories(ctx, e.App, e.Job, latestOf(e.At.Add(-time.Minute), time.UnixMilli(0)))
	if err != nil {
		return err
	}
	found := false
	for _, record := range records {
		if record.Name == e.Trigger {
			e.record, found = record, true
		}
	}
	if !found {
		return NotFound("trigger", e.App+"/"+e.Job+"/"+e.Trigger)
	}
	key := RunKey{TriggerID: TriggerID(e.App, e.Job, e.Trigger), ScheduledAt: e.At, Kind: KindSchedule}
	if e.Run, err = e.find(ctx, key.String()); err != nil {
		return err
	}
	owed, err := e.schedule(ctx)
	if err != nil {
		return err
	}
	if e.Run != nil {
		e.Verdict, e.Reason = VerdictRun, "it has a run, which "+stands(e.Run)
		e.ran(e.Run)
		return nil
	}
	if owed == nil || e.Verdict != "" {
		return nil
	}
	if err := e.findMisfire(ctx); err != nil || e.Misfire != nil {
		return err
	}
	e.unclaimed(owed)
	return nil
}

// find returns a run, nil if there is none.
func (e *explaining) find(ctx context.Context, id string) (*Run, error) {
	run, err := e.ledger.Run(ctx, id)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	return &run, err
}

func (e *explaining) step(at time.Time, format string, args ...any) {
	e.Steps = append(e.Steps, Step{at, fmt.Sprintf(format, args...)})
}

// schedule tells what was in force, and returns the span that owed the instant. Without one it
// says why.
func (e *explaining) schedule(ctx context.Context) (*span, error) {
	var owed *span
	for _, s := range e.record.spans() {
		if !e.At.Before(s.from) && !e.At.After(s.until) {
			owed = &s
		}
	}
	in := e.record.at(e.At)
	if owed != nil {
		in = owed.revision
	}
	if in == nil {
		return nil, e.undeclared()
	}
	e.inForce(in)
	parsed, err := e.accounts.schedule(ctx, e.Trigger, in, false)
	var unreadable *unreadableError
	switch {
	case errors.As(err, &unreadable):
		e.Verdict, e.Reason = VerdictUnknown, "its definition cannot be evaluated: "+err.Error()
		return nil, nil
	case err != nil:
		return nil, err
	}
	if next, ok := parsed.Next(e.At); ok {
		e.NextAt = &next
	}
	_, delayed := parsed.FixedDelay()
	planned := owed != nil && e.At.Equal(e.record.Next)
	if delayed && !planned {
		e.NextAt = nil // which nobody knows
		if e.Run == nil {
			e.Verdict, e.Reason = VerdictNone, "the fires of a fixed delay follow from the ends of its runs, and none led to this instant"
		}
		return owed, nil
	}
	if planned || parsed.Matches(e.At) {
		due := e.At.Add(parsed.Delay(e.At))
		e.DueAt = &due
		if owed != nil {
			e.step(e.At, "scheduled; due at %s", FormatInstant(due))
			return owed, nil
		}
	}
	return nil, e.unscheduled(ctx, in, parsed)
}

// inForce adds the steps that say what was declared.
func (e *explaining) inForce(in *TriggerRevision) {
	e.Revision = in.Revision
	switch {
	case in.Cause == CauseDelete:
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
	e.step(in.From, "revision %d came into force (%s): %s in %s%s%s", in.Revision, in.Cause, Echo(in.Expression), in.Timezone, bounds, paused)
	if !e.appState.Enabled && e.appState.Changed != nil {
		e.step(*e.appState.Changed, "the app was disabled")
	}
}

// undeclared explains an instant before all that is on record.
func (e *explaining) undeclared() error {
	first := e.record.Revisions[0]
	if e.At.Before(e.appState.Since) {
		e.Verdict, e.Reason = VerdictUnknown, fmt.Sprintf("the history of the app goes back to %s only", FormatInstant(e.appState.Since))
		return nil
	}
	e.Verdict, e.Reason = VerdictNone, "the trigger was not declared yet"
	e.step(first.From, "first declared, as revision %d", first.Revision)
	return nil
}

// unscheduled says why the schedule in force did not owe the instant.
func (e *explaining) unscheduled(ctx context.Context, in *TriggerRevision, parsed *schedule.Schedule) error {
	e.Verdict = VerdictNone
	matches := parsed.Matches(e.At)
	switch {
	case in.Cause == CauseDelete:
		e.Reason = "the trigger was removed before"
	case !in.Enabled:
		e.Reason = "the trigger or its job was disabled"
	case matches && e.At.Before(e.appState.Since):
		e.Verdict, e.Reason = VerdictUnknown, fmt.Sprintf("the history of the app goes back to %s only", FormatInstant(e.appState.Since))
	case matches && in.NextFireTime != nil && e.At.Before(*in.NextFireTime):
		e.Reason = fmt.Sprintf("revision %d, in force since %s, fires from %s on", in.Revision, FormatInstant(in.From), FormatInstant(*in.NextFireTime))
	case matches && in.NextFireTime == nil:
		e.Reason = fmt.Sprintf("revision %d had no fire left", in.Revision)
	case matches:
		e.Reason = "the definition was changed before it was due"
	case in.StartAt != nil && e.At.Before(*in.StartAt):
		e.Reason = "it is before start_at " + FormatInstant(*in.StartAt)
	case in.EndAt != nil && e.At.After(*in.EndAt):
		e.Reason = "it is after end_at " + FormatInstant(*in.EndAt)
	default:
		return e.noInstant(ctx, in)
	}
	return nil
}

// noInstant says why the schedule does not fire at an instant within its bounds.
func (e *explaining) noInstant(ctx context.Context, in *TriggerRevision) error {
	e.Reason = fmt.Sprintf("it is no instant of %s in %s", Echo(in.Expression), in.Timezone)
	bare := *in
	bare.RepeatCount = 0
	for _, missing := range []struct {
		without bool // the calendar
		reason  string
	}{
		{false, fmt.Sprintf("its repeat_count of %d was used up", in.RepeatCount)},
		{true, fmt.Sprintf("calendar %s excludes it", Echo(in.Calendar))},
	} {
		s, err := e.accounts.schedule(ctx, e.Trigger, &bare, missing.without)
		if err != nil {
			return err
		}
		if s.Matches(e.At) {
			e.Reason = missing.reason
			return nil
		}
	}
	return nil
}

// findMisfire looks for the decision that covers the instant.
func (e *explaining) findMisfire(ctx context.Context) error {
	found, err := e.ledger.Misfires(ctx, RunQuery{App: e.App, Job: e.Job, Trigger: e.Trigger, From: e.At, To: e.At, Page: Page{Limit: 1}})
	if err != nil || len(found) == 0 {
		return err
	}
	m := found[0]
	e.Misfire, e.Verdict = &m, VerdictMisfire
	e.Reason = fmt.Sprintf("it was missed, and the decision about it was %s: %s", m.Decision, m.Reason)
	by := "by a change of the definition"
	if m.Node != nil {
		by = "by node " + m.Node.String()
	}
	e.step(m.DecidedAt, "%d missed from %s to %s were settled %s: %s, %s", m.Count, FormatInstant(m.From), FormatInstant(m.To), by, m.Decision, m.Reason)
	if m.Run == "" {
		return nil
	}
	if e.CatchUp, err = e.find(ctx, m.Run); err == nil && e.CatchUp != nil {
		e.ran(e.CatchUp)
	}
	return err
}

// unclaimed is the account of an instant that was owed and has neither run nor decision.
func (e *explaining) unclaimed(owed *span) {
	in := owed.revision
	switch {
	case e.At.Before(e.appState.Since):
		e.Verdict, e.Reason = VerdictUnknown, fmt.Sprintf("the history of the app goes back to %s only", FormatInstant(e.appState.Since))
	case owed.open.IsZero() || e.At.Before(owed.open):
		e.Verdict, e.Reason = VerdictMissing, "it was scheduled, and the ledger has neither a run nor a decision"
	case e.record.Error != "":
		e.Verdict, e.Reason = VerdictOpen, "the trigger is in quarantine: "+e.record.Error
	case e.At.After(e.appState.Now):
		e.Verdict, e.Reason = VerdictPlanned, "it is to come"
	case in.Paused:
		e.Verdict, e.Reason = VerdictOpen, "it is owed, and the trigger or its job is paused"
	case !e.appState.Enabled:
		e.Verdict, e.Reason = VerdictOpen, "it is owed, and the app is disabled"
	default:
		e.Verdict, e.Reason = VerdictOpen, "it is due, and not yet claimed or settled"
	}
}

// ran adds the steps of a run.
func (e *explaining) ran(run *Run) {
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

// stands says how far a run has come.
func stands(run *Run) string {
	if run.EndedAt == nil {
		return "is " + string(run.State)
	}
	return fmt.Sprintf("ended as %s at attempt %d", run.State, run.Attempt)
}
