package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// knownSchedules are the schedules of the revisions of an app's triggers, each evaluated once.
type knownSchedules struct {
	past  *dispatcher.PastSchedules
	known map[*dispatcher.TriggerRevision]*schedule.Schedule
}

// at is PastSchedules.At for a revision of a history.
func (k *knownSchedules) at(ctx context.Context, identity string, in *dispatcher.TriggerRevision) (*schedule.Schedule, error) {
	if s, known := k.known[in]; known {
		return s, nil
	}
	s, err := k.past.At(ctx, identity, in)
	if err == nil {
		k.known[in] = s
	}
	return s, err
}

// schedule adds the schedule that was in force, and returns the span in which it scheduled the time. Without one,
// schedule decides why not.
func (e *explainer) schedule(ctx context.Context) (*dispatcher.Span, error) {
	revision, span, err := e.decisive(ctx)
	if err != nil {
		return nil, err
	}
	if revision == nil {
		e.undeclared()
		return nil, nil
	}
	e.inForce(revision)
	e.pauses = dispatcher.HeldBy(e.app.Pauses, revision.Labels)
	e.holds = holdsOf(&e.history, &e.app, e.pauses)
	parsed, err := e.schedules.at(ctx, e.history.Identity, revision)
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
		if e.delayed = true; span == nil && e.Run == nil {
			e.undelayed()
		}
		return span, nil
	}
	if planned || parsed.Matches(e.At) {
		due := e.At.Add(parsed.Delay(e.At))
		e.DueAt = &due
		if span != nil {
			if from, moved := parsed.MovedFrom(e.At); moved {
				e.step(e.At, "moved here from %s, which calendar %s excludes (on_excluded = %q)", input.FormatInstant(from),
					input.Echo(revision.Calendar), revision.OnExcluded)
			}
			e.step(e.At, "scheduled; due at %s", input.FormatInstant(due))
			return span, nil
		}
	}
	return nil, e.unscheduled(ctx, revision, parsed)
}

// decisive returns the revision that decides about the time, and the span that contains the time. If a later revision does not
// schedule it, an earlier one may have: the fire was pending when the definition changed.
func (e *explainer) decisive(ctx context.Context) (*dispatcher.TriggerRevision, *dispatcher.Span, error) {
	spans := e.history.SpansAt(e.At)
	for i := range spans {
		if len(spans) == 1 || e.At.Equal(e.history.Next) {
			break
		}
		parsed, err := e.schedules.at(ctx, e.history.Identity, spans[i].Revision)
		var unreadable *dispatcher.UnreadableError
		switch {
		case errors.As(err, &unreadable):
			continue
		case err != nil:
			return nil, nil, err
		case parsed.Matches(e.At):
			return spans[i].Revision, &spans[i], nil
		}
	}
	revision, span := e.history.At(e.At)
	return revision, span, nil
}

// inForce adds the steps that say which definition was in force at the time, and which one decided about it, if that came later.
func (e *explainer) inForce(in *dispatcher.TriggerRevision) {
	e.Revision = in.Revision
	e.declared(in)
	for i := range slices.Backward(e.history.Revisions) {
		if then := &e.history.Revisions[i]; !then.From.After(e.At) {
			if then != in && then.From.Before(in.From) {
				e.declared(then)
			}
			break
		}
	}
	for _, s := range e.app.Switches {
		if !s.Enabled && !s.At.After(e.At) {
			e.step(s.At, "the app was disabled by %s", s.Actor)
		}
	}
}

// declared adds the step that says what a revision declared, why and by whom.
func (e *explainer) declared(in *dispatcher.TriggerRevision) {
	cause := string(in.Cause)
	if in.Actor != "" {
		cause += " by " + in.Actor
	}
	switch {
	case in.Cause == dispatcher.CauseDelete:
		e.step(in.From, "the trigger was removed (%s)", cause)
		return
	case !in.Enabled:
		e.step(in.From, "revision %d came into force (%s): disabled", in.Revision, cause)
		return
	}
	more := ""
	if in.Calendar != "" {
		more += ", calendar " + in.Calendar
	}
	if in.Name != e.Trigger {
		more += ", called " + in.Name
	}
	if in.Paused {
		more += ", paused"
		if in.PauseReason != "" {
			more += ": " + input.Echo(in.PauseReason)
		}
	}
	e.step(in.From, "revision %d came into force (%s): %s in %s%s", in.Revision, cause, input.Echo(in.Expression), in.Timezone, more)
}

// undeclared explains a time before the first revision.
func (e *explainer) undeclared() {
	if e.At.Before(e.app.Since) {
		e.beforeHistory()
		return
	}
	first := e.history.Revisions[0]
	e.decide(VerdictNone, "the trigger was not declared yet")
	e.NextAt = first.NextFireTime
	e.step(first.From, "first declared as revision %d", first.Revision)
}

func (e *explainer) beforeHistory() {
	e.decide(VerdictUnknown, "the history of the app only goes back to %s", input.FormatInstant(e.app.Since))
}

// unscheduled decides why the schedule in force did not schedule the time.
func (e *explainer) unscheduled(ctx context.Context, in *dispatcher.TriggerRevision, parsed *schedule.Schedule) error {
	matches := parsed.Matches(e.At)
	switch {
	case in.Cause == dispatcher.CauseDelete:
		e.decide(VerdictNone, "the trigger was removed by %s at %s", in.Actor, input.FormatInstant(in.From))
	case !in.Enabled:
		e.decide(VerdictNone, "the trigger or its job was disabled")
	case matches && e.At.Before(e.app.Since):
		e.beforeHistory()
	case matches && in.NextFireTime != nil && e.At.Before(*in.NextFireTime):
		e.decide(VerdictNone, "revision %d, in force since %s, first fires at %s",
			in.Revision, input.FormatInstant(in.From), input.FormatInstant(*in.NextFireTime))
	case matches && in.NextFireTime == nil:
		e.decide(VerdictNone, "revision %d had no fires left", in.Revision)
	case matches:
		e.decide(VerdictNone, "the definition changed before it was due")
	case in.StartAt != nil && e.At.Before(*in.StartAt):
		e.decide(VerdictNone, "it is before start_at %s", input.FormatInstant(*in.StartAt))
	case in.EndAt != nil && e.At.After(*in.EndAt):
		e.decide(VerdictNone, "it is after end_at %s", input.FormatInstant(*in.EndAt))
	default:
		return e.unmatched(ctx, in, parsed)
	}
	return nil
}

// unmatched decides why the schedule does not fire at a time within its bounds.
func (e *explainer) unmatched(ctx context.Context, in *dispatcher.TriggerRevision, parsed *schedule.Schedule) error {
	e.decide(VerdictNone, "%s in %s does not fire at this time", input.Echo(in.Expression), in.Timezone)
	uncounted := *in
	uncounted.RepeatCount = 0
	unbounded := uncounted
	unbounded.Calendar = ""
	bothPasses := unbounded
	bothPasses.Overlap = schedule.OverlapBoth
	for _, tried := range []struct {
		revision *dispatcher.TriggerRevision
		reason   string
	}{
		{&uncounted, fmt.Sprintf("its repeat_count of %d was used up", in.RepeatCount)},
		{&unbounded, fmt.Sprintf("calendar %s excludes it", input.Echo(in.Calendar))},
		{&bothPasses, "daylight saving repeats its local time, and the schedule fires in another pass"},
	} {
		s, err := e.schedules.past.At(ctx, e.history.Identity, tried.revision)
		if err != nil {
			return err
		}
		if s.Matches(e.At) {
			e.Reason = tried.reason
			if e.excluded = tried.revision == &unbounded; e.excluded {
				e.Reason += movedBy(parsed, e.At)
			}
			return nil
		}
	}
	if local, ok := skippedBySaving(parsed, e.At); ok {
		e.Reason = fmt.Sprintf("daylight saving skips %s in %s, and the schedule does not fire", local, in.Timezone)
	}
	return nil
}

// movedBy says what on_excluded makes of a fire that the calendar excludes, unless it skips the fire.
func movedBy(s *schedule.Schedule, at time.Time) string {
	on := s.Spec().OnExcluded
	to, moved := s.MovedTo(at)
	switch {
	case moved:
		return fmt.Sprintf(", and on_excluded = %q moves it to %s", on, input.FormatInstant(to))
	case on.MovesByDays():
		return fmt.Sprintf(", and on_excluded = %q finds no day for it", on)
	}
	return ""
}

// skippedBySaving reports whether the clock jumps forward at a time over local times of a schedule, and the first.
func skippedBySaving(s *schedule.Schedule, at time.Time) (local string, is bool) {
	for _, shift := range s.Shifts(at.Add(-time.Second), at) {
		if shift.Effect == schedule.EffectSkipped && shift.At.Equal(at) {
			return shift.Local, true
		}
	}
	return "", false
}
