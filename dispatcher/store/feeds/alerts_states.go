package feeds

import (
	"cmp"
	"context"
	"fmt"
	"slices"

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
	return s.changeStates(ctx, app, name, stateChange{"acknowledge", ack, change,
		func(track alert.Track, rule alert.Rule, by alert.AcknowledgedAlert) (alert.Track, []alert.Made, bool) {
			if !track.Firing {
				return track, nil, false
			}
			next, made := track.Acknowledge(rule, by, by.At)
			return next, made, true
		}})
}

// WithdrawAcknowledgement takes acknowledgements back.
func (s *Store) WithdrawAcknowledgement(ctx context.Context, app, name string, ack alert.Acknowledgement,
	change input.Change) ([]alert.State, error) {
	return s.changeStates(ctx, app, name, stateChange{"unacknowledge", ack, change,
		func(track alert.Track, _ alert.Rule, _ alert.AcknowledgedAlert) (alert.Track, []alert.Made, bool) {
			was := track.Acknowledged != nil
			track.Acknowledged = nil
			return track, nil, was
		}})
}

// stateChange is what becomes of the states of an alert that ack covers. next returns a track as it is then, and whether it changed.
type stateChange struct {
	action string
	ack    alert.Acknowledgement
	by     input.Change
	next   func(alert.Track, alert.Rule, alert.AcknowledgedAlert) (alert.Track, []alert.Made, bool)
}

// changeStates changes states of an alert for a job, of one condition or of all, and returns those that changed.
// ErrConflict: it changed none.
func (s *Store) changeStates(ctx context.Context, app, name string, c stateChange) (states []alert.State, err error) {
	jobName := c.ack.Job
	err = s.dispatch.Change(ctx, c.by, func(ctx context.Context, t *dispatch.Tx) error {
		a, err := definitions.FindAlert(ctx, t, app, name, "")
		if err != nil {
			return err
		}
		by, err := c.ack.Decide(c.by, t.At)
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
			track, known := j.Tracks[id]
			if !known || !c.ack.Covers(one) {
				continue
			}
			rule, _ := a.RuleOf(one, t.At)
			next, made, changes := c.next(track, rule, by)
			if changed[one] = changes; changes {
				j.Set(id, j.Alerts[track.AlertID], j.Jobs[track.JobID], next, made)
			}
		}
		if _, err := j.Finish(ctx); err != nil {
			return err
		}
		states, err = s.reads.StatesOfAlerts(ctx, t, alert.StateQuery{App: app, Alert: name, Job: jobName,
			Page: input.Page{Limit: len(target.AlertConditions)}}, t.At)
		if err != nil {
			return err
		}
		states = slices.DeleteFunc(states, func(state alert.State) bool { return !changed[state.Condition] })
		if len(states) == 0 {
			return fmt.Errorf("%s alert %s: %s of it holds for job %s, or it was done before: %w", c.action, input.Echo(name),
				cmp.Or(string(c.ack.Condition), "nothing"), input.Echo(jobName), dispatcher.ErrConflict)
		}
		return t.Audit(ctx, c.action, app, "alert "+name+" job "+jobName, a.Revision)
	})
	return states, err
}
