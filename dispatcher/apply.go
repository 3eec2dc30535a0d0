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

// Prior holds what the store still has of deleted definitions with the names that a job declares again.
type Prior struct {
	Revision int64 // of the deleted job; 0 if there was none
	// Origin is the origin of a new job, as in Job.Origin. Origins has the origins of triggers that are new to the
	// job, by name; without an entry it is the name.
	Origin  string
	Origins map[string]string
	// Fired has the latest scheduled times of deleted triggers, by name, if they are after now: a node claims a fire
	// shortly before it is due. A trigger that is declared again fires after that time, so that no fire runs twice.
	Fired map[string]time.Time
}

// Apply returns the job that results when declared replaces old at now, ready to be stored: with
// next fire times, resolved texts and the next revision. old is nil for a new job. calendars are those of
// the job's app.
//
// A trigger whose schedule did not change keeps its fire times, even a fire that is due right now. Fires that were
// due and unclaimed under a schedule that no longer exists come back as misfires, so that they are explained. The
// error is Problems: a time in the past, an unknown calendar, a secret that would go to another origin, or an invalid
// definition.
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
	job.State = job.RollUp(false)
	return job, missed, nil
}

// withOrigins returns j with the origins of old, the job that it replaces; where old has none, with those of prior.
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

// Unretire returns the decisions of Retire that still hold when a job comes back. Its triggers decide again about
// their fires from the next one on, and runs of some fires come back with the job.
func Unretire(job Job, calendars Calendars, missed []Misfire, runs map[run.Key]bool) (left []Misfire) {
	budget := newMissedBudget()
	for name, t := range job.Triggers {
		s, err := t.Parse(job.Identity(name), t.AnchorAt, calendars)
		for _, m := range missed {
			if m.TriggerID != job.TriggerKey(name) {
				continue
			}
			if err != nil { // it has no fires, so the decisions stand
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
				if at, ok, costly = s.FindWithin(budget, at); costly != nil && goesOn { // as dropping.due does
					left[len(left)-1].To = end.Add(-time.Millisecond)
				}
			}
		}
	}
	return left
}

// resolve fills in the values that were left out, except those of the triggers, which it copies.
func (j *JobSpec) resolve() {
	j.Delivery = cmp.Or(j.Delivery, AtLeastOnce)
	j.Retry = j.Retry.OrDefault()
	j.ConcurrencyPolicy = cmp.Or(j.ConcurrencyPolicy, run.ConcurrencyAllow)
	j.QueueLimit = cmp.Or(j.QueueLimit, defaultQueueLimit)
	j.JobFollows = j.withFollows(func(_ run.FollowEvent, follow Follow) Follow {
		follow.Payload = cmp.Or(follow.Payload, FollowOwn)
		return follow
	})
	j.Triggers = maps.Clone(j.Triggers)
	if j.Triggers == nil {
		j.Triggers = map[string]Trigger{}
	}
}

// trigger finds a trigger by name; j may be nil.
func (j *Job) trigger(name string) (Trigger, bool) {
	if j == nil {
		return Trigger{}, false
	}
	t, ok := j.Triggers[name]
	return t, ok
}

// Stored returns the state without the pause, which is shown but not stored.
func (s TriggerState) Stored() TriggerState {
	if s == TriggerPaused {
		return TriggerWaiting
	}
	return s
}

// dropping drops fires because schedules of a job are replaced or removed. The triggers of the job share one budget
// for counting them, because a transaction waits for the result.
type dropping struct {
	calendars Calendars
	now       time.Time
	budget    *schedule.Budget
}

// due returns the misfire that explains the fires of a trigger that were due by now. If the budget runs out, the
// misfire counts fewer fires than there were.
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

// A definition that a client declares again unchanged has no effect: no revision, no entry in the audit log, no
// notification. The JSON of both Specs is compared, so a field that is added later is compared, too.

// Declares reports whether declared, once stored, would equal the stored job j. A given value of a secret always
// counts as different, so that the revision does not reveal a correct guess. So does a trigger in state error,
// because declaring it again schedules it again.
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

// Declares reports whether declared, once stored, would equal the stored calendar c. A calendar that is to be removed
// with its last use stays if it is declared again, so it differs.
func (c Calendar) Declares(declared Calendar) bool {
	return c.Err == nil && c.RemovalRequestedAt == nil && input.SameJSON(c.CalendarSpec, declared.CalendarSpec)
}

// resolve fills in values that parsed recognised or defaulted, so that the stored definition is complete.
func (t *Trigger) resolve(parsed *schedule.Schedule) {
	t.Schedule.Resolve(parsed)
	t.MisfirePolicy = cmp.Or(t.MisfirePolicy, FireOnce)
	t.CatchUpWindow = cmp.Or(t.CatchUpWindow, MaxCatchUpWindow)
}

// triggerChange is the change of a job, trigger by trigger.
type triggerChange struct {
	dropping
	old   *Job // nil if it is new
	job   Job  // as it will be
	prior Prior
}

// apply returns the trigger of that name as it is to be stored, and the decisions about its pending fires.
func (c *triggerChange) apply(name string) (Trigger, []Misfire, error) {
	t := c.job.Triggers[name]
	t.Paused, t.Error, t.PrevFireTime, t.NextFireTime, t.DueAt, t.Fired, t.CountedFrom = false, "", nil, nil, nil, 0, nil
	t.State, t.AnchorAt, t.Pause = TriggerWaiting, c.now, Pause{}
	s, err := t.Parse(c.job.Identity(name), t.AnchorAt, c.calendars)
	if err != nil {
		return t, nil, err
	}
	t.resolve(s)
	if before, known := c.old.trigger(name); known {
		t.Paused, t.Pause, t.PrevFireTime = before.Paused, before.Pause, before.PrevFireTime
		return c.replace(name, before, t)
	}
	if fired := c.prior.Fired[name]; fired.After(c.now) {
		t.PrevFireTime = &fired
	}
	if !c.job.Enabled || !t.Enabled {
		return t, nil, nil
	}
	return t, nil, c.schedule(&t, s, true)
}

// replace does the work of apply for a trigger that replaces before.
func (c *triggerChange) replace(name string, before, t Trigger) (Trigger, []Misfire, error) {
	identity := c.job.Identity(name)
	s, err := t.Parse(identity, t.AnchorAt, c.calendars)
	if err != nil {
		return t, nil, err
	}
	was, err := before.Parse(identity, before.AnchorAt, c.calendars)
	if err != nil {
		was = nil
	}
	grid := was != nil && was.SameGrid(s)
	same := grid && before.Calendar == t.Calendar && was.SameFires(s)
	wasOn, isOn := c.old.Enabled && before.Enabled, c.job.Enabled && t.Enabled
	if grid {
		t = t.Continuing(before, was, s, c.now)
		if _, delayed := s.FixedDelay(); delayed && c.startsAgain(t, before, wasOn) {
			t.AnchorAt = c.now
		}
		if s, err = t.Parse(identity, t.AnchorAt, c.calendars); err != nil {
			return t, nil, err
		}
	}
	switch {
	case wasOn && !isOn:
		reason := "the trigger was disabled"
		if !c.job.Enabled {
			reason = "the job was disabled"
		}
		return t, c.due(*c.old, name, reason), nil
	case !isOn:
		return t, nil, nil
	case wasOn && same && before.State != TriggerError:
		t.State, t.NextFireTime, t.DueAt = before.State.Stored(), before.NextFireTime, before.DueAt
		return t, nil, nil
	}
	refuse := !grid || !input.SameInstant(before.EndAt, t.EndAt)
	if !wasOn {
		return t, nil, c.schedule(&t, s, refuse)
	}
	return c.reschedule(name, before, t, was, s)
}

// reschedule does the work of replace for a trigger that is on before and after the change.
func (c *triggerChange) reschedule(name string, before, t Trigger, was, s *schedule.Schedule) (Trigger, []Misfire, error) {
	grid := was != nil && was.SameGrid(s)
	if _, delayed := s.FixedDelay(); delayed && grid && before.State.Stored() == TriggerWaiting && before.NextFireTime == nil {
		return t, nil, nil // scheduled when its run ends
	}
	pending := pendingChange{
		job: c.job, name: name, before: before, was: was, after: t, is: s, left: -1, now: c.now, budget: c.budget,
		reason: "the trigger was changed",
	}
	if grid && t.RepeatCount > 0 && before.NextFireTime != nil {
		pending.left = t.RepeatCount - before.used(was, before.NextFireTime.Add(-time.Millisecond), t.RepeatCount)
	}
	next, due, decided := pending.settle()
	if next != nil {
		t.State, t.NextFireTime, t.DueAt = TriggerWaiting, next, due
		return t, decided, nil
	}
	return t, decided, c.schedule(&t, s, !grid || !input.SameInstant(before.EndAt, t.EndAt))
}

// schedule gives t its next fire from now on. A schedule that ended while its job was disabled, or with a fire that was
// claimed a moment ago, is complete. With refuse, a schedule that is over is an error, because a new one must be a
// mistake.
func (c *triggerChange) schedule(t *Trigger, s *schedule.Schedule, refuse bool) error {
	// A fixed delay may have no repeats left. Other schedules count their repeats themselves.
	if _, delayed := s.FixedDelay(); delayed && t.RepeatCount > 0 && t.Fired >= t.RepeatCount {
		t.State = TriggerComplete
		return nil
	}
	after := t.afterLast(c.now)
	if err := t.scheduleNext(s, after); err != nil {
		return err
	}
	if t.State == TriggerComplete && refuse && !after.After(c.now) {
		return t.over(s, c.calendars, c.now)
	}
	return nil
}

// Continuing returns t with its anchor and count after it replaces before at now; was and is are the two schedules. A
// schedule with the same instants keeps both, so repeats that before has used up stay used up.
func (t Trigger) Continuing(before Trigger, was, is *schedule.Schedule, now time.Time) Trigger {
	if !was.SameGrid(is) {
		return t
	}
	t.AnchorAt, t.Fired, t.CountedFrom = before.AnchorAt, before.Fired, before.CountedFrom
	_, delayed := was.FixedDelay()
	if delayed || t.RepeatCount == 0 || before.Calendar == t.Calendar && was.SameFires(is) {
		return t
	}
	until := before.afterLast(now)
	t.Fired, t.CountedFrom = before.used(was, until, t.RepeatCount), &until
	return t
}

// used returns how many repeats of t, with schedule s, are used up by a time; most at most.
func (t Trigger) used(s *schedule.Schedule, until time.Time, most int) int {
	if _, delayed := s.FixedDelay(); delayed {
		return min(t.Fired, most)
	}
	from, used := t.AnchorAt, 0
	switch {
	case t.CountedFrom != nil && !t.CountedFrom.After(until):
		from, used = *t.CountedFrom, t.Fired
	case t.CountedFrom != nil: // already pending at the previous change
		return 0
	case t.StartAt != nil:
		from = t.StartAt.Add(-time.Millisecond)
	}
	// Fires that cannot be counted within bounds do not count as used up.
	n, _ := s.CountWithin(newMissedBudget(), from, until, max(most-used, 0))
	return min(used+n, most)
}

// startsAgain reports whether a fixed delay that replaces before counts from now, because no run is under way.
func (c *triggerChange) startsAgain(t, before Trigger, wasOn bool) bool {
	switch {
	case !wasOn:
		return true
	case before.NextFireTime != nil:
		return false
	}
	return before.State == TriggerError || before.State == TriggerComplete && (t.RepeatCount == 0 || t.Fired < t.RepeatCount)
}

// afterLast returns now, or the last fire if a node claimed it ahead of time.
func (t Trigger) afterLast(now time.Time) time.Time {
	if t.PrevFireTime != nil && t.PrevFireTime.After(now) {
		return *t.PrevFireTime
	}
	return now
}

// over explains why t, with schedule s, has no fire left, if a time in its definition shows it.
func (t Trigger) over(s *schedule.Schedule, calendars Calendars, now time.Time) error {
	var problems input.Problems
	if t.EndAt != nil && !t.EndAt.After(now) {
		problems.Add("/end_at", input.CodeAtPast, "end_at %s is in the past (it is %s), so the trigger would never fire; "+
			"give a later one, or remove the trigger",
			input.FormatInstant(*t.EndAt), now.Format(time.RFC3339))
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
		problems.Add("/expression", input.CodeAtPast, "time %s is in the past (it is %s); give a later one, or remove the trigger",
			input.Echo(t.Expression), now.Format(time.RFC3339))
	case len(problems) > 0:
	case t.Calendar != "" && !s.Spec().Calendar.Includes(at):
		problems.Add("/calendar", input.CodeCronNever, "calendar %s excludes time %s, so the trigger would never fire",
			input.Echo(t.Calendar), input.Echo(t.Expression))
	default:
		problems.Add("/expression", input.CodeCronNever, "time %s is not between start_at and end_at, so the trigger would never fire",
			input.Echo(t.Expression))
	}
	return problems.Err()
}
