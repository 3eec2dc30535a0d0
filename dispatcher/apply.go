package dispatcher

import (
	"cmp"
	"maps"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// Prior is what is left of deleted definitions under the names that a job declares again.
type Prior struct {
	Revision int64 // of the deleted job; 0: there was none
	// Origin is that of a new job, as Job.Origin holds it. Origins are those of triggers that the job did not have, by name;
	// absent: the name.
	Origin  string
	Origins map[string]string
	// Fired are the latest scheduled times of deleted triggers, by name, where they lie ahead of now, because a
	// node claims a fire shortly before it is due. A trigger that is declared again fires after that, so
	// that no fire comes twice.
	Fired map[string]time.Time
}

// Apply returns the job that results when declared replaces old at now, ready to be stored: with
// next fire times, resolved texts and the next revision. old is nil for a new job. calendars are those of
// the job's app.
//
// A trigger whose schedule did not change keeps its fire times, even a fire that is due right now.
// Fires that were due and unclaimed under a schedule that no longer exists come back as misfires, so
// that they are explained. The error is Problems: a time in the past, an unknown calendar, a secret
// that would be sent to another origin, or an invalid definition.
func Apply(old *Job, declared Job, prior Prior, calendars Calendars, now time.Time) (Job, []Misfire, error) {
	declared = declared.withOrigins(old, prior)
	if err := declared.Validate(); err != nil {
		return Job{}, nil, err
	}
	if err := declared.CheckCost(calendars, now); err != nil {
		return Job{}, nil, err
	}
	job := declared
	job.Paused, job.Pause, job.CreatedAt, job.UpdatedAt, job.Revision = false, Pause{}, now, now, prior.Revision+1
	if old != nil {
		job.Paused, job.Pause, job.CreatedAt, job.Revision = old.Paused, old.Pause, old.CreatedAt, old.Revision+1
	}
	job.resolve()
	var missed []Misfire
	var problems Problems
	budget := newMissedBudget()
	for _, name := range sortedKeys(declared.Triggers) {
		t, dropped, err := applyTrigger(budget, old, job, name, prior, calendars, now)
		problems.AddError(Pointer("triggers", name), err)
		job.Triggers[name] = t
		missed = append(missed, dropped...)
	}
	if old != nil {
		problems.AddError("", job.CheckKept(*old))
	}
	if err := problems.Err(); err != nil {
		return Job{}, nil, err
	}
	if old != nil {
		for _, name := range sortedKeys(old.Triggers) {
			if _, stays := job.Triggers[name]; !stays {
				missed = append(missed, dropDue(budget, *old, name, calendars, now, "the trigger was removed")...)
			}
		}
	}
	job.State, job.Warnings = job.RollUp(false), job.Warn(calendars)
	return job, missed, nil
}

// withOrigins returns j with the origins of old, which it replaces, and where that has none, those of prior.
func (j Job) withOrigins(old *Job, prior Prior) Job {
	j.Origin = prior.Origin
	if old != nil {
		j.Origin = old.Origin
	}
	j.Triggers = maps.Clone(j.Triggers)
	for name, t := range j.Triggers {
		t.Origin = prior.Origins[name]
		if before, known := old.trigger(name); known {
			t.Origin = before.Origin
		}
		j.Triggers[name] = t
	}
	return j
}

// Retire returns the misfires that explain the fires that were due when job was deleted at now.
func Retire(job Job, calendars Calendars, now time.Time) []Misfire {
	var missed []Misfire
	budget := newMissedBudget()
	for _, name := range sortedKeys(job.Triggers) {
		missed = append(missed, dropDue(budget, job, name, calendars, now, "the job was deleted")...)
	}
	return missed
}

// resolve writes out what was left out, but for the triggers, which it copies.
func (j *Job) resolve() {
	j.Delivery = cmp.Or(j.Delivery, AtLeastOnce)
	j.Retry = j.Retry.orDefault()
	j.ConcurrencyPolicy = cmp.Or(j.ConcurrencyPolicy, ConcurrencyAllow)
	j.QueueLimit = cmp.Or(j.QueueLimit, DefaultQueueLimit)
	j.resolveFollows()
	j.Triggers = maps.Clone(j.Triggers)
	if j.Triggers == nil {
		j.Triggers = map[string]Trigger{}
	}
}

// resolve writes out what was recognised or left out, as parsed has it, so that the stored definition is complete.
func (t *Trigger) resolve(parsed *schedule.Schedule) {
	t.Schedule.resolve(parsed)
	t.MisfirePolicy = cmp.Or(t.MisfirePolicy, FireOnce)
	t.CatchUpWindow = cmp.Or(t.CatchUpWindow, MaxCatchUpWindow)
}

// applyTrigger returns the trigger of job with that name as it is to be stored, and the misfires of
// its old schedule.
func applyTrigger(budget *schedule.Budget, old *Job, job Job, name string, prior Prior, calendars Calendars, now time.Time) (
	Trigger, []Misfire, error,
) {
	t := job.Triggers[name]
	t.Paused, t.Error, t.PrevFireTime, t.NextFireTime, t.DueAt, t.Fired = false, "", nil, nil, nil, 0
	t.State, t.AnchorAt, t.Pause = TriggerWaiting, now, Pause{}
	s, err := t.Parse(job.Identity(name), t.AnchorAt, calendars)
	if err != nil {
		return t, nil, err
	}
	t.resolve(s)
	var missed []Misfire
	unchanged := false
	if before, known := old.trigger(name); known {
		t.Paused, t.Pause, t.PrevFireTime = before.Paused, before.Pause, before.PrevFireTime
		if unchanged = before.Same(t.Schedule); unchanged {
			wasOn, isOn := old.Enabled && before.Enabled, job.Enabled && t.Enabled
			if wasOn && isOn && before.State != TriggerError {
				t.State, t.NextFireTime, t.DueAt = before.State.Stored(), before.NextFireTime, before.DueAt
				t.AnchorAt, t.Fired = before.AnchorAt, before.Fired
				return t, nil, nil
			}
			if s, err = t.continued(before, s, job.Identity(name), calendars); err != nil {
				return t, nil, err
			}
		}
		missed = dropDue(budget, *old, name, calendars, now, "the trigger was changed")
	} else if fired := prior.Fired[name]; fired.After(now) {
		t.PrevFireTime = &fired
	}
	if !job.Enabled || !t.Enabled {
		return t, missed, nil
	}
	if err := t.scheduleNext(s, t.afterLast(now)); err != nil {
		return t, nil, err
	}
	// A schedule that ended while its job was disabled, or with a fire that was claimed a moment ago, is
	// complete. Only a new one that is over is a mistake worth refusing.
	if t.State == TriggerComplete && !unchanged && !t.afterLast(now).After(now) {
		if err := t.over(s, calendars, now); err != nil {
			return t, nil, err
		}
	}
	return t, missed, nil
}

// continued lets t count on from where before stopped, and returns its schedule, anchored there. Only
// a fixed delay starts again: it counts from the end of a run, and that run is over.
func (t *Trigger) continued(before Trigger, s *schedule.Schedule, identity string, calendars Calendars) (*schedule.Schedule, error) {
	t.Fired = before.Fired
	if _, delayed := s.FixedDelay(); delayed {
		return s, nil
	}
	t.AnchorAt = before.AnchorAt
	return t.Parse(identity, t.AnchorAt, calendars)
}

// afterLast is now, or the last fire if a node claimed it ahead of time.
func (t Trigger) afterLast(now time.Time) time.Time {
	if t.PrevFireTime != nil && t.PrevFireTime.After(now) {
		return *t.PrevFireTime
	}
	return now
}

// over explains why t, whose schedule is s, has no fire left, if a time in its definition shows it.
func (t Trigger) over(s *schedule.Schedule, calendars Calendars, now time.Time) error {
	var problems Problems
	if t.EndAt != nil && !t.EndAt.After(now) {
		problems.Add("/end_at", CodeAtPast, "end_at %s is in the past (it is %s), so the trigger would never fire; "+
			"give a later one, or remove the trigger",
			FormatInstant(*t.EndAt), now.Format(time.RFC3339))
	}
	if t.Dialect != schedule.DialectAt {
		return problems.Err()
	}
	spec := s.Spec()
	spec.StartAt, spec.EndAt, spec.Calendar = time.Time{}, time.Time{}, nil
	unbounded, err := schedule.Parse(spec)
	if err != nil {
		return err
	}
	switch at, ok := unbounded.Next(now); {
	case !ok:
		problems.Add("/expression", CodeAtPast, "time %s is in the past (it is %s); give a later one, or remove the trigger",
			Echo(t.Expression), now.Format(time.RFC3339))
	case len(problems) > 0:
	case t.Calendar != "" && !s.Spec().Calendar.Includes(at):
		problems.Add("/calendar", schedule.CodeCronNever, "calendar %s excludes time %s, so the trigger would never fire",
			Echo(t.Calendar), Echo(t.Expression))
	default:
		problems.Add("/expression", schedule.CodeCronNever, "time %s is not between start_at and end_at, so the trigger would never fire",
			Echo(t.Expression))
	}
	return problems.Err()
}

// trigger looks a trigger up; j may be nil.
func (j *Job) trigger(name string) (Trigger, bool) {
	if j == nil {
		return Trigger{}, false
	}
	t, ok := j.Triggers[name]
	return t, ok
}

// Stored is the state without the pause, which is shown but not stored.
func (s TriggerState) Stored() TriggerState {
	if s == TriggerPaused {
		return TriggerWaiting
	}
	return s
}

// dropDue returns the misfire that explains the fires of a trigger that were due by now when its
// schedule was replaced or removed. It counts them within a budget, which the triggers of a job share,
// because a transaction waits for it. If that is used up, the misfire stands for more than it counts.
func dropDue(budget *schedule.Budget, job Job, name string, calendars Calendars, now time.Time, reason string) []Misfire {
	t := job.Triggers[name]
	if t.NextFireTime == nil || t.NextFireTime.After(now) {
		return nil
	}
	missed := Misfire{
		App: job.App, Job: job.Name, Trigger: name, JobID: job.Key(), TriggerID: job.TriggerKey(name),
		From: *t.NextFireTime, To: *t.NextFireTime, Count: 1, Decision: DecisionSkip, Reason: reason, DecidedAt: now,
	}
	// A definition that cannot be evaluated has no later fires to count.
	if s, err := t.Parse(job.Identity(name), t.AnchorAt, calendars); err == nil {
		if missed.To, missed.Count, _, _, err = missedFires(budget, s, missed.From, now); err != nil {
			missed.To = now
		}
	}
	return []Misfire{missed}
}
