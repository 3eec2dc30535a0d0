package dispatcher

import (
	"cmp"
	"maps"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
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
	var problems input.Problems
	change := triggerChange{dropping: dropping{calendars, now, newMissedBudget()}, old: old, job: job, prior: prior}
	for _, name := range input.SortedKeys(declared.Triggers) {
		t, decided, err := change.apply(name)
		problems.AddError(input.Pointer("triggers", name), err)
		job.Triggers[name] = t
		missed = append(missed, decided...)
	}
	if old != nil {
		problems.AddError("", job.CheckKept(*old))
	}
	if err := problems.Err(); err != nil {
		return Job{}, nil, err
	}
	if old != nil {
		for _, name := range input.SortedKeys(old.Triggers) {
			if _, stays := job.Triggers[name]; !stays {
				missed = append(missed, change.due(*old, name, "the trigger was removed")...)
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
	retired := dropping{calendars, now, newMissedBudget()}
	for _, name := range input.SortedKeys(job.Triggers) {
		missed = append(missed, retired.due(job, name, "the job was deleted")...)
	}
	return missed
}

// Unretire returns what is left of the decisions of Retire about triggers of a job that comes back: they decide again about their
// fires from the next one on, and runs of some come with it.
func Unretire(job Job, calendars Calendars, missed []Misfire, runs map[run.Key]bool) (left []Misfire) {
	budget := newMissedBudget()
	for name, t := range job.Triggers {
		s, err := t.Parse(job.Identity(name), t.AnchorAt, calendars)
		for _, m := range missed {
			if m.TriggerID != job.TriggerKey(name) {
				continue
			}
			if err != nil { // it makes no fires, so what was decided stands
				left = append(left, m)
				continue
			}
			end := m.To.Add(time.Millisecond)
			if t.NextFireTime != nil && t.NextFireTime.Before(end) {
				end = *t.NextFireTime
			}
			for at, ok, goesOn := m.From, true, false; ok && at.Before(end); {
				switch last := len(left) - 1; {
				case runs[run.Key{TriggerID: m.TriggerID, ScheduledAt: at.UTC(), Kind: run.KindSchedule}]:
					goesOn = false
				case goesOn:
					left[last].To, left[last].Count = at, left[last].Count+1
				default:
					m.From, m.To, m.Count, goesOn = at, at, 1, true
					left = append(left, m)
				}
				var costly error
				if at, ok, costly = s.FindWithin(budget, at); costly != nil && goesOn { // as dropDue does
					left[len(left)-1].To = end.Add(-time.Millisecond)
				}
			}
		}
	}
	return left
}

// resolve writes out what was left out, but for the triggers, which it copies.
func (j *JobSpec) resolve() {
	j.Delivery = cmp.Or(j.Delivery, AtLeastOnce)
	j.Retry = j.Retry.OrDefault()
	j.ConcurrencyPolicy = cmp.Or(j.ConcurrencyPolicy, run.ConcurrencyAllow)
	j.QueueLimit = cmp.Or(j.QueueLimit, DefaultQueueLimit)
	j.resolveFollows()
	j.Triggers = maps.Clone(j.Triggers)
	if j.Triggers == nil {
		j.Triggers = map[string]Trigger{}
	}
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

// dropping is when fires are dropped because schedules of a job are replaced or removed. They are counted within a
// budget, which the triggers of the job share, because a transaction waits for it.
type dropping struct {
	calendars Calendars
	now       time.Time
	budget    *schedule.Budget
}

// due returns the misfire that explains the fires of a trigger that were due by now. If the budget is used up, it
// stands for more than it counts.
func (d dropping) due(job Job, name, reason string) []Misfire {
	t := job.Triggers[name]
	if t.NextFireTime == nil || t.NextFireTime.After(d.now) {
		return nil
	}
	missed := Misfire{
		App: job.App, Job: job.Name, Trigger: name, JobID: job.Key(), TriggerID: job.TriggerKey(name),
		From: *t.NextFireTime, To: *t.NextFireTime, Count: 1, Decision: DecisionSkip, Reason: reason, DecidedAt: d.now,
	}
	// A definition that cannot be evaluated has no later fires to count.
	if s, err := t.Parse(job.Identity(name), t.AnchorAt, d.calendars); err == nil {
		if missed.To, missed.Count, _, _, err = missedFires(d.budget, s, missed.From, d.now); err != nil {
			missed.To = d.now
		}
	}
	return []Misfire{missed}
}

// What a client declares again as it is stored changes nothing: no revision, no entry in the audit log, no notification.
// The comparison is of the JSON of the Spec, so that a field that is added later is compared, too.

// Declares tells whether j, which is stored, is what declared would become. A value that is given for a secret differs
// always: nobody learns from a revision whether they have guessed it. So does a trigger in state error, because declaring
// it again schedules it again.
func (j Job) Declares(declared Job) bool {
	if len(j.Triggers) != len(declared.Triggers) || target.GivesSecret(declared) {
		return false
	}
	for _, t := range j.Triggers {
		if t.State == TriggerError {
			return false
		}
	}
	was, err := j.declared()
	if err != nil {
		return false
	}
	is, err := declared.declared()
	return err == nil && input.SameJSON(was, is)
}

// declared returns the Spec of j as Apply resolves it.
func (j Job) declared() (JobSpec, error) {
	j.resolve()
	for name, t := range j.Triggers {
		s, err := t.Parse(j.Identity(name), time.Time{}, nil)
		if err != nil {
			return j.JobSpec, err
		}
		t.resolve(s)
		t.TriggerStatus = TriggerStatus{}
		for _, at := range []**time.Time{&t.StartAt, &t.EndAt} {
			if *at != nil {
				*at = new((*at).UTC().Truncate(time.Millisecond))
			}
		}
		j.Triggers[name] = t
	}
	return j.JobSpec, nil
}

// Declares tells whether c, which is stored, is what declared would become. A calendar that goes with its last use stays
// if it is declared again.
func (c Calendar) Declares(declared Calendar) bool {
	return c.Err == nil && c.RemovalRequestedAt == nil && input.SameJSON(c.CalendarSpec, declared.CalendarSpec)
}
