package feeds

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/definitions"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/store/reads"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// AcknowledgeAlert acknowledges the firing conditions of a job, and notifies about it.
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

// stateChange is a change of the states of an alert covered by ack. next changes a track and reports whether it did.
type stateChange struct {
	action string
	ack    alert.Acknowledgement
	by     input.Change
	next   func(alert.Track, alert.Rule, alert.AcknowledgedAlert) (alert.Track, []alert.Made, bool)
}

// changeStates changes states of an alert for a job, of one condition or of all, and returns the changed ones.
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
		if err = db.OrNotFound(there, err, "job", app+"/"+jobName); err != nil {
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
			rule, _ := j.RuleOf(j.Alerts[track.AlertID], j.Jobs[job], one)
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

// MuteAlert mutes an alert.
func (s *Store) MuteAlert(ctx context.Context, app, name string, mute alert.Mute, change input.Change) (alert.Alert, error) {
	if err := mute.Validate(); err != nil {
		return alert.Alert{}, err
	}
	return s.changeMute(ctx, app, name, &mute, change)
}

// UnmuteAlert lifts an operator's mute. The handler sends the notifications that it kept back.
func (s *Store) UnmuteAlert(ctx context.Context, app, name string, change input.Change) (alert.Alert, error) {
	return s.changeMute(ctx, app, name, nil, change)
}

// changeMute mutes an alert, or unmutes it if mute is nil. Unmuting an alert without a mute changes nothing.
func (s *Store) changeMute(ctx context.Context, app, name string, mute *alert.Mute, by input.Change) (alert.Alert, error) {
	stored, _, err := definitions.Redefine(ctx, s.definitions, by, definitions.Redefinition[alert.Alert, *alert.Mute, alert.Alert]{
		Load: func(ctx context.Context, from definitions.Source) (alert.Alert, error) {
			alert, err := definitions.FindAlert(ctx, from, app, name, from.Lock)
			if err == nil {
				err = dispatch.Allow(by, alert.Revision)
			}
			return alert, err
		},
		Unchanged: func(b alert.Alert) (alert.Alert, bool) { return b, mute == nil && b.Muted == nil },
		Decide:    func(_ alert.Alert, now time.Time) (*alert.Mute, error) { return mute.Decide(by, now) },
		Write: func(ctx context.Context, t *dispatch.Tx, alert alert.Alert, next *alert.Mute) (alert.Alert, error) {
			action := "mute"
			if next == nil {
				action = "unmute"
			}
			err := definitions.WriteMute(ctx, t, alert, next)
			if err == nil {
				// What is kept back is looked at again, because it is now kept back until another time. $1 alert, $2 now
				const look = `UPDATE alert_states SET check_at = $2 WHERE alert_id = $1 AND kept_back`
				err = t.Exec(ctx, look, dispatcher.AlertID(app, name), t.At.UnixMilli())
			}
			if err != nil {
				return alert, fmt.Errorf("%s alert %s/%s: %w", action, app, name, err)
			}
			entry := dispatch.AuditEntry{Action: action, App: app, Subject: "alert " + name, Revision: alert.Revision,
				Before: mutedOrNil(alert.Muted), After: mutedOrNil(next)}
			alert.Muted = next
			return alert, t.AuditChange(ctx, entry)
		},
	})
	return stored, err
}

// mutedOrNil keeps a nil mute from being audited as null.
func mutedOrNil(m *alert.Mute) any {
	if m == nil {
		return nil
	}
	return m
}

// TestAlert queues a test notification to the destination of an alert.
func (s *Store) TestAlert(ctx context.Context, app, name string, change input.Change) (r run.Run, err error) {
	err = s.dispatch.Change(ctx, change, func(ctx context.Context, t *dispatch.Tx) error {
		alert, err := definitions.FindAlert(ctx, t, app, name, "")
		if err != nil {
			return err
		}
		if err := definitions.CountManual(ctx, t, app, nil); err != nil {
			return err
		}
		attached := alert.Attached().Key()
		var revision int64
		var salt run.Salt
		// $1 id
		const read = `SELECT j.revision, a.salt FROM jobs AS j JOIN apps AS a ON a.id = j.app_id WHERE j.id = $1`
		if _, err := db.ReadRow(ctx, t, []any{&revision, &salt}, read, attached); err != nil {
			return err
		}
		n := target.AlertNotification{App: app, Alert: name, Description: alert.Description, Condition: target.AlertFailure,
			Transition: target.AlertTest, At: t.At, Since: t.At, By: change.Actor, Reason: "somebody tests the destination"}
		key := run.Key{TriggerID: dispatcher.AlertStateID(salt, dispatcher.AlertID(app, name), 0, ""), ScheduledAt: t.At,
			Kind: run.KindAlert}
		runs, err := testsOf(alert, n, dispatch.QueuedRun{Key: key, JobID: attached, Revision: revision})
		if err != nil {
			return err
		}
		queued, err := dispatch.QueueRuns(ctx, t, runs)
		if err == nil && len(queued) < len(runs) {
			err = fmt.Errorf("alert %s was tested in this millisecond: %w", input.Echo(name), dispatcher.ErrConflict)
		}
		if err == nil {
			r, err = s.reads.FindRun(ctx, t, key.String())
		}
		if err != nil {
			return err
		}
		return t.Audit(ctx, "test", app, "alert "+name+" run "+r.ID, alert.Revision)
	})
	return r, err
}

// testsOf returns the runs of a test, by the first of them. A second one ends the incident that PagerDuty opens.
func testsOf(a alert.Alert, n target.AlertNotification, first dispatch.QueuedRun) (runs []dispatch.QueuedRun, err error) {
	transitions := []target.AlertTransition{target.AlertTest}
	if w := a.Destination.Webhook; w != nil && w.Format == target.AlertFormatPagerDuty {
		transitions = append(transitions, target.AlertResolved)
	}
	for i, transition := range transitions {
		n.Transition = transition
		payload, err := json.Marshal(n)
		if err != nil {
			return nil, err
		}
		one := first
		one.Input = &run.Input{Payload: payload, Cause: &run.Cause{Alert: a.Name}}
		if i > 0 {
			one.Input.After = first.Key.ScheduledAt
			one.Key.ScheduledAt = one.Input.After.Add(time.Millisecond)
		}
		runs = append(runs, one)
	}
	return runs, nil
}

// AlertEvents returns a page of the transitions of an app, latest first.
func (s *Store) AlertEvents(ctx context.Context, query alert.EventQuery) ([]alert.Event, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	if _, err := definitions.ReadApp(ctx, s.db.Read, query.App, ""); err != nil {
		return nil, err
	}
	var w db.Conditions
	w.Add("app_id = %s", run.AppID(query.App))
	if query.Alert != "" {
		w.Add("alert = %s", query.Alert)
	}
	if query.Job != "" {
		w.Add("job = %s", query.Job)
	}
	if !query.From.IsZero() {
		w.Add("at >= %s", query.From.UnixMilli())
	}
	if !query.To.IsZero() {
		w.Add("at <= %s", query.To.UnixMilli())
	}
	if query.Page.Cursor != "" {
		at, id, err := access.ParseAuditID(query.Page.Cursor)
		if err != nil {
			return nil, fmt.Errorf("cursor %s is not that of an event of an alert: %w", input.Echo(query.Page.Cursor), err)
		}
		w.Add("(at, id) < (%s, %s)", at.UnixMilli(), id)
	}
	list := `SELECT at, id, alert, job, event FROM alert_events WHERE ` + strings.TrimPrefix(w.Text, " AND ") +
		fmt.Sprintf(` ORDER BY at DESC, id DESC LIMIT %d`, query.Page.Limit)
	var keys []run.Key
	events, err := db.Collect(ctx, s.db.Read, func(row db.Scanner) (e alert.Event, err error) {
		var id int64
		var at time.Time
		var alert, job, text string
		if err = row.Scan(db.InstantColumn(&at), &id, &alert, &job, &text); err != nil {
			return e, err
		}
		if err = json.Unmarshal([]byte(text), &e); err != nil {
			return e, fmt.Errorf("event of alert %s: %w", alert, err)
		}
		in := ""
		if e.Notification != nil {
			in = e.Notification.Run
		}
		keys = append(keys, reads.DeliveryOf(run.Key{TriggerID: id, ScheduledAt: at, Kind: run.KindAlert}, in))
		e.At, e.Alert, e.Job, e.Cursor = at, alert, job, access.AuditID(at, id)
		return e, nil
	}, list, w.Args...)
	if err != nil || len(events) == 0 {
		return events, err
	}
	return events, s.addDeliveries(ctx, query.App, events, keys)
}

// addDeliveries adds to events what became of their notifications, by the keys of the runs.
func (s *Store) addDeliveries(ctx context.Context, app string, events []alert.Event, keys []run.Key) error {
	found, err := s.reads.Deliveries(ctx, s.db.Read, keys)
	if err != nil {
		return err
	}
	destinations, err := definitions.AlertDestinations(ctx, s.db.Read, app)
	if err != nil {
		return err
	}
	for i := range events {
		e := &events[i]
		if e.Kept != "" {
			continue
		}
		delivery := found[keys[i]]
		delivery.Transition, delivery.To = e.Transition, destinations[e.Alert]
		e.Notification, e.Notified = &delivery, delivery.State == run.Succeeded
	}
	return nil
}

// The notifications of one condition are separate runs, and a receiver keeps the latest one: an incident opened after
// it was closed would stay open permanently. So a node checks before each attempt. A notification waits while the
// previous one is in progress, and is not sent if a later one has overtaken it. The later of two checking nodes sees
// the other: a run is live before its node checks, and a transition is stored before its run is queued.

// orderNotifications adds to the inputs of notifications which runs they wait for, and why they are overtaken. A run that
// delivers several leaves out those that are.
func (s *Store) orderNotifications(ctx context.Context, inputs map[run.Key]run.Input) error {
	k, told := db.NewKeys(len(inputs)), map[run.Key][]ordered{}
	ids := []int64(nil)
	for key, input := range inputs {
		var n target.AlertNotification
		if key.Kind != run.KindAlert || input.Err != nil || json.Unmarshal(input.Payload, &n) != nil ||
			n.Transition == target.AlertTest {
			continue
		}
		for _, one := range n.All() {
			o := ordered{one, reads.DeliveryOf(key, one.ID), run.Key{}}
			if !input.After.IsZero() && one.ID == "" {
				o.before = key
				o.before.ScheduledAt = input.After
			}
			if o.before = reads.DeliveryOf(o.before, one.Previous); o.before.TriggerID != 0 {
				k.Add(o.before, 0, 0)
			}
			told[key], ids = append(told[key], o), append(ids, o.own.TriggerID)
		}
	}
	if len(told) == 0 {
		return nil
	}
	under, err := s.underWay(ctx, &k)
	if err != nil {
		return fmt.Errorf("look for notifications under way: %w", err)
	}
	// From $1 on: ids
	read := s.db.Rows(0, 1, "", db.IDColumns...) + ` SELECT ` + definitions.TrackColumns +
		` FROM alert_states AS s WHERE s.id IN (SELECT b.id FROM b)`
	found, err := db.Collect(ctx, s.db.Read, definitions.ScanTrack, read, s.db.Batch(ids)...)
	if err != nil {
		return fmt.Errorf("read states of alerts: %w", err)
	}
	tracks := make(map[int64]alert.Track, len(found))
	for _, one := range found {
		tracks[one.ID] = one.Track
	}
	for key, all := range told {
		if inputs[key], err = inOrder(inputs[key], all, under, tracks); err != nil {
			return err
		}
	}
	return nil
}

// ordered is a notification with the key of a run of its own, and that of the run that delivered the one before.
type ordered struct {
	target.AlertNotification
	own, before run.Key
}

// inOrder completes the input of a run that delivers notifications.
func inOrder(in run.Input, all []ordered, under map[run.Key]bool, tracks map[int64]alert.Track) (run.Input, error) {
	var left []target.AlertNotification
	for _, n := range all {
		if under[n.before] {
			in.Held = n.before.String()
		}
		track, known := tracks[n.own.TriggerID]
		switch {
		case known && track.Overtakes(n.AlertNotification):
			in.Overtaken = fmt.Sprintf("%s was overtaken: people were told %s at %s", n.Transition, track.Told,
				input.FormatInstant(track.ToldAt))
		case !known && n.Transition != target.AlertResolved:
			in.Overtaken = fmt.Sprintf("%s is not told any more: the condition has ended since", n.Transition)
		default:
			left = append(left, n.AlertNotification)
		}
	}
	if len(left) == len(all) || len(left) == 0 {
		return in, nil
	}
	in.Overtaken, left[0].ID = "", ""
	left[0].Others = left[1:]
	var err error
	in.Payload, err = json.Marshal(left[0])
	return in, err
}

// underWay returns the runs that have to end before the next of their condition begins: those held by a node, and those
// not yet attempted, which wait for a previous one. A run that waits for its next attempt checks again before it.
func (s *Store) underWay(ctx context.Context, k *db.Keys) (map[run.Key]bool, error) {
	under := map[run.Key]bool{}
	if len(k.At) == 0 {
		return under, nil
	}
	// From $1 on: the keys
	read := s.db.Rows(0, 1, "", db.KeyColumns[:3]...) + ` SELECT r.scheduled_at, r.trigger_id, r.kind FROM b JOIN live_runs AS r ON` +
		db.OfBatch(s.db.Flavor) + ` WHERE r.attempt = 0 OR r.state IN ('claimed', 'running')`
	found, err := db.Collect(ctx, s.db.Read, dispatch.ScanRunKey, read, s.db.Batch(k.At, k.Trigger, k.Kind)...)
	for _, key := range found {
		under[key] = true
	}
	return under, err
}
