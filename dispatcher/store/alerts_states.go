package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// AlertStates returns a page of the states of alerts of an app, by alert, job and condition.
func (s *Store) AlertStates(ctx context.Context, query alert.StateQuery) ([]alert.State, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	if _, err := readApp(ctx, s.db.Read, query.App, ""); err != nil {
		return nil, err
	}
	if query.Alert != "" {
		if _, err := findAlert(ctx, s.db.Read, query.App, query.Alert, ""); err != nil {
			return nil, err
		}
	}
	now, err := s.db.OrClock(ctx, query.Now)
	if err != nil {
		return nil, err
	}
	return s.alertStates(ctx, s.db.Read, query, now)
}

// alertStates is AlertStates within a transaction.
func (s *Store) alertStates(ctx context.Context, q db.Querier, query alert.StateQuery, now time.Time) (
	[]alert.State, error,
) {
	var w db.Conditions
	w.Add("a.app_id = %s", run.AppID(query.App))
	if query.Alert != "" {
		w.Add("a.id = %s", dispatcher.AlertID(query.App, query.Alert))
	}
	if query.Job != "" {
		w.Add("j.name = %s", query.Job)
	}
	if query.Firing {
		w.Text += " AND s.firing"
	}
	if query.Page.Cursor != "" {
		parts := strings.Split(query.Page.Cursor, "/")
		if len(parts) != 3 {
			return nil, fmt.Errorf("cursor %s is not that of a state of an alert", input.Echo(query.Page.Cursor))
		}
		w.Add("(a.name, j.name, s.condition) > (%s, %s, %s)", parts[0], parts[1], parts[2])
	}
	all, err := listAlertStates(ctx, q, w, query.Page.Limit)
	if err != nil {
		return nil, fmt.Errorf("read states of alerts: %w", err)
	}
	states := make([]alert.State, len(all))
	for i, one := range all {
		states[i] = one.State(one.alert, one.job, now)
		if err := s.addDelivery(ctx, q, one.keyedTrack, &states[i]); err != nil {
			return nil, fmt.Errorf("read the notification of a state of an alert: %w", err)
		}
	}
	return states, nil
}

// shownAlertState is a state with the names that people know.
type shownAlertState struct {
	keyedTrack
	alert alert.Alert
	job   string
}

// listAlertStates lists the states s of alerts a for jobs j that meet conditions.
func listAlertStates(ctx context.Context, q db.Querier, w db.Conditions, limit int) ([]shownAlertState, error) {
	list := `SELECT ` + trackColumns + `, j.app, j.name, ` + alertColumns + ` FROM alerts AS a JOIN alert_states AS s ON s.alert_id = a.id
		JOIN jobs AS j ON j.id = s.job_id WHERE a.deleted_at IS NULL` + w.Text + `
		ORDER BY a.name, j.name, s.condition LIMIT ` + strconv.Itoa(limit)
	return db.Collect(ctx, q, func(row db.Scanner) (one shownAlertState, err error) {
		var app, track string
		k := &one.keyedTrack
		one.alert, err = scanAlert("")(db.WiderRow{Scanner: row,
			Before: []any{&k.id, &k.AlertID, &k.JobID, &k.Condition, &k.Firing, &track, &app, &one.job}})
		one.alert.App = app
		if err == nil {
			err = json.Unmarshal([]byte(track), &k.Track)
		}
		return one, err
	}, list, w.Args...)
}

// addDelivery adds to a state what became of its latest notification.
func (s *Store) addDelivery(ctx context.Context, q db.Querier, track keyedTrack, state *alert.State) error {
	if track.Told == "" {
		return nil
	}
	key := run.Key{TriggerID: track.id, ScheduledAt: track.ToldAt, Kind: run.KindAlert}
	state.Notification = &alert.Delivery{Run: key.String(), Transition: track.Told, At: track.ToldAt}
	// $1 scheduled instant, $2 trigger, $3 kind
	const run = `SELECT state, class, error FROM live_runs WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3
		UNION ALL SELECT coalesce(state, 'succeeded'), coalesce(class, ''), coalesce(error, '') FROM runs
			WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3`
	_, _, err := db.First(ctx, q, func(row db.Scanner) (struct{}, error) {
		return struct{}{}, row.Scan(&state.Notification.State, &state.Notification.Class, &state.Notification.Error)
	}, run, keyArgs(key)[:3]...)
	return err
}

// AcknowledgeAlert acknowledges what holds for a job, and notifies of it.
func (s *Store) AcknowledgeAlert(ctx context.Context, app, name string, ack alert.Acknowledgement,
	change input.Change) ([]alert.State, error) {
	if err := ack.Validate(); err != nil {
		return nil, err
	}
	acknowledge := func(j *judgement, id int64, rule alert.Rule) bool {
		track := j.tracks[id]
		if !track.Firing {
			return false
		}
		until := ack.Until
		if until != nil {
			until = new(until.UTC().Truncate(time.Millisecond))
		}
		next, made := track.Acknowledge(rule, alert.AcknowledgedAlert{By: change.Actor, At: j.now, Until: until, Reason: ack.Reason}, j.now)
		j.set(id, j.alerts[track.AlertID], j.jobs[track.JobID], next, made)
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
	return s.changeStates(ctx, app, name, job, condition, "unacknowledge", change, func(j *judgement, id int64, _ alert.Rule) bool {
		track := j.tracks[id]
		if track.Acknowledged == nil {
			return false
		}
		track.Acknowledged = nil
		j.set(id, j.alerts[track.AlertID], j.jobs[track.JobID], track, nil)
		return true
	}, nil)
}

// changeStates changes states of an alert for a job, of one condition or of all, and returns those that do changed.
// ErrConflict: it changed none.
func (s *Store) changeStates(ctx context.Context, app, name, jobName string, condition target.AlertCondition, action string,
	change input.Change, do func(*judgement, int64, alert.Rule) bool, check func(time.Time) error) (
	states []alert.State, err error,
) {
	err = s.change(ctx, change, func(ctx context.Context, t *tx) error {
		a, err := findAlert(ctx, t, app, name, "")
		if err == nil && check != nil {
			err = check(t.now)
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
		j, err := judge(ctx, t, []int64{job})
		if err != nil {
			return err
		}
		changed := map[target.AlertCondition]bool{}
		for _, one := range target.AlertConditions {
			id := dispatcher.AlertStateID(j.jobs[job].salt, dispatcher.AlertID(app, name), job, one)
			if _, known := j.tracks[id]; !known || condition != "" && condition != one {
				continue
			}
			rule, _ := a.RuleOf(one, t.now)
			changed[one] = do(j, id, rule)
		}
		if _, err := j.finish(ctx); err != nil {
			return err
		}
		states, err = s.alertStates(ctx, t, alert.StateQuery{App: app, Alert: name, Job: jobName,
			Page: input.Page{Limit: len(target.AlertConditions)}}, t.now)
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
		return t.audit(ctx, action, app, "alert "+name+" job "+jobName, a.Revision)
	})
	return states, err
}
