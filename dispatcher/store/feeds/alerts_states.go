package feeds

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/definitions"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// AcknowledgeAlert acknowledges what holds for a job, and notifies of it.
func (s *Store) AcknowledgeAlert(ctx context.Context, app, name string, ack alert.Acknowledgement,
	change input.Change) ([]alert.State, error) {
	if err := ack.Validate(); err != nil {
		return nil, err
	}
	acknowledge := func(j *definitions.Judgement, id int64, rule alert.Rule) bool {
		track := j.Tracks[id]
		if !track.Firing {
			return false
		}
		until := ack.Until
		if until != nil {
			until = new(until.UTC().Truncate(time.Millisecond))
		}
		next, made := track.Acknowledge(rule, alert.AcknowledgedAlert{By: change.Actor, At: j.At, Until: until, Reason: ack.Reason}, j.At)
		j.Set(id, j.Alerts[track.AlertID], j.Jobs[track.JobID], next, made)
		return true
	}
	return s.changeStates(ctx, app, name, ack.Job, ack.Condition, "acknowledge", change, acknowledge, func(now time.Time) error {
		if ack.Until != nil && !ack.Until.After(now) {
			return pastProblem("/until", *ack.Until, now)
		}
		return nil
	})
}

// pastProblem refuses a time that is not in the future.
func pastProblem(path string, at, now time.Time) error {
	return input.Problems{{Path: path, Code: input.CodeAtPast, Message: "time " + input.FormatInstant(at) +
		" has passed; it is " + input.FormatInstant(now) + ": give a later one, or leave it out"}}
}

// WithdrawAcknowledgement takes acknowledgements back.
func (s *Store) WithdrawAcknowledgement(ctx context.Context, app, name, job string, condition target.AlertCondition,
	change input.Change) ([]alert.State, error) {
	return s.changeStates(ctx, app, name, job, condition, "unacknowledge", change,
		func(j *definitions.Judgement, id int64, _ alert.Rule) bool {
			track := j.Tracks[id]
			if track.Acknowledged == nil {
				return false
			}
			track.Acknowledged = nil
			j.Set(id, j.Alerts[track.AlertID], j.Jobs[track.JobID], track, nil)
			return true
		}, nil)
}

// changeStates changes states of an alert for a job, of one condition or of all, and returns those that do changed.
// ErrConflict: it changed none.
func (s *Store) changeStates(ctx context.Context, app, name, jobName string, condition target.AlertCondition, action string,
	change input.Change, do func(*definitions.Judgement, int64, alert.Rule) bool, check func(time.Time) error) (
	states []alert.State, err error,
) {
	err = s.dispatch.Change(ctx, change, func(ctx context.Context, t *dispatch.Tx) error {
		a, err := definitions.FindAlert(ctx, t, app, name, "")
		if err == nil && check != nil {
			err = check(t.At)
		}
		if err != nil {
			return err
		}
		// $1 app, $2 name
		const find = `SELECT id FROM jobs WHERE app_id = $1 AND name = $2 AND deleted_at IS NULL`
		job, there, err := db.First(ctx, t, db.ScanInt, find, run.AppID(app), jobName)
		if err == nil && !there {
			err = dispatcher.NotFound("job", app+"/"+jobName)
		}
		if err != nil {
			return err
		}
		j, err := definitions.Judge(ctx, t, []int64{job})
		if err != nil {
			return err
		}
		changed := map[target.AlertCondition]bool{}
		for _, one := range target.AlertConditions {
			id := dispatcher.AlertStateID(j.Jobs[job].Salt, dispatcher.AlertID(app, name), job, one)
			if _, known := j.Tracks[id]; !known || condition != "" && condition != one {
				continue
			}
			rule, _ := a.RuleOf(one, t.At)
			changed[one] = do(j, id, rule)
		}
		if _, err := j.Finish(ctx); err != nil {
			return err
		}
		states, err = s.reads.StatesOfAlerts(ctx, t, alert.StateQuery{App: app, Alert: name, Job: jobName,
			Page: input.Page{Limit: len(target.AlertConditions)}}, t.At)
		if err != nil {
			return err
		}
		kept := states[:0]
		for _, state := range states {
			if changed[state.Condition] {
				kept = append(kept, state)
			}
		}
		if states = kept; len(states) == 0 {
			return fmt.Errorf("%s alert %s: %s of it holds for job %s, or it was done before: %w", action, input.Echo(name),
				cmp.Or(string(condition), "nothing"), input.Echo(jobName), dispatcher.ErrConflict)
		}
		return t.Audit(ctx, action, app, "alert "+name+" job "+jobName, a.Revision)
	})
	return states, err
}
