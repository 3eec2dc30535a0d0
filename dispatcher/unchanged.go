package dispatcher

import (
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

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
