package reads

import (
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
	"github.com/carillon-dev/carillon/dispatcher/store/definitions"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

// AlertStates returns a page of the states of alerts of an app, by alert, job and condition.
func (s *Store) AlertStates(ctx context.Context, query alert.StateQuery) ([]alert.State, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	if _, err := definitions.ReadApp(ctx, s.db.Read, query.App, ""); err != nil {
		return nil, err
	}
	if query.Alert != "" {
		if _, err := definitions.FindAlert(ctx, s.db.Read, query.App, query.Alert, ""); err != nil {
			return nil, err
		}
	}
	now, err := s.db.OrClock(ctx, query.Now)
	if err != nil {
		return nil, err
	}
	return s.StatesOfAlerts(ctx, s.db.Read, query, now)
}

// StatesOfAlerts is AlertStates within a transaction.
func (s *Store) StatesOfAlerts(ctx context.Context, q db.Querier, query alert.StateQuery, now time.Time) (
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
	return s.listAlertStates(ctx, q, w, ` ORDER BY a.name, j.name, s.condition LIMIT `+strconv.Itoa(query.Page.Limit), now)
}

// shownAlertState is a state with the names that users know.
type shownAlertState struct {
	definitions.KeyedTrack
	alert alert.Alert
	job   string
}

// listAlertStates lists the states s of alerts a for jobs j that meet conditions. limit orders and limits them.
func (s *Store) listAlertStates(ctx context.Context, q db.Querier, w db.Conditions, limit string, now time.Time) ([]alert.State, error) {
	list := `SELECT ` + definitions.TrackColumns + `, j.app, j.name, ` + definitions.AlertColumns +
		` FROM alerts AS a JOIN alert_states AS s ON s.alert_id = a.id
		JOIN jobs AS j ON j.id = s.job_id WHERE a.deleted_at IS NULL` + w.Text + limit
	all, err := db.Collect(ctx, q, func(row db.Scanner) (one shownAlertState, err error) {
		var app, track string
		k := &one.KeyedTrack
		one.alert, err = definitions.ScanAlert("")(db.WiderRow{Scanner: row,
			Before: []any{&k.ID, &k.AlertID, &k.JobID, &k.Condition, &k.Firing, &track, &app, &one.job}})
		one.alert.App = app
		if err == nil {
			err = json.Unmarshal([]byte(track), &k.Track)
		}
		return one, err
	}, list, w.Args...)
	if err != nil {
		return nil, fmt.Errorf("read states of alerts: %w", err)
	}
	states := make([]alert.State, len(all))
	for i, one := range all {
		states[i] = one.State(one.alert, one.job, now)
	}
	return states, s.addDeliveries(ctx, q, all, states)
}

// addDeliveries adds to states the outcome of their latest notification.
func (s *Store) addDeliveries(ctx context.Context, q db.Querier, shown []shownAlertState, states []alert.State) error {
	keys := make([]run.Key, len(shown))
	for i, one := range shown {
		if one.Told != "" {
			keys[i] = DeliveryOf(run.Key{TriggerID: one.ID, ScheduledAt: one.ToldAt, Kind: run.KindAlert}, one.ToldIn)
		}
	}
	found, err := s.Deliveries(ctx, q, keys)
	if err != nil {
		return err
	}
	for i, one := range shown {
		if one.Told != "" {
			delivery := found[keys[i]]
			delivery.Transition, delivery.To = one.Told, one.alert.Destination.Name()
			states[i].Notification = &delivery
		}
	}
	return nil
}

// DeliveryOf returns the key of the run that delivers a notification, of its own or that of in.
func DeliveryOf(own run.Key, in string) run.Key {
	if key, err := run.ParseKey(in); err == nil {
		return key
	}
	return own
}

// Deliveries returns what became of notifications, by the keys of their runs; zero keys are left out.
func (s *Store) Deliveries(ctx context.Context, q db.Querier, keys []run.Key) (map[run.Key]alert.Delivery, error) {
	k, all := db.NewKeys(len(keys)), make(map[run.Key]alert.Delivery, len(keys))
	for _, key := range keys {
		if key.TriggerID != 0 {
			k.Add(key, 0, 0)
			all[key] = alert.Delivery{Run: key.String(), At: key.ScheduledAt}
		}
	}
	if len(k.At) == 0 {
		return all, nil
	}
	// From $1 on: the keys
	read := s.db.Rows(0, 1, "", db.KeyColumns[:3]...) + ` SELECT r.scheduled_at, r.trigger_id, r.kind, r.state, r.class, r.error
		FROM b JOIN live_runs AS r ON` + db.OfBatch(s.db.Flavor) + ` UNION ALL
		SELECT r.scheduled_at, r.trigger_id, r.kind, coalesce(r.state, 'succeeded'), coalesce(r.class, ''), coalesce(r.error, '')
		FROM b JOIN runs AS r ON` + db.OfBatch(s.db.Flavor)
	err := db.EachRow(ctx, q, func(row db.Scanner) error {
		var one alert.Delivery
		key, err := dispatch.ScanRunKey(db.WiderRow{Scanner: row, After: []any{&one.State, &one.Class, &one.Error}})
		one.Run, one.At = key.String(), key.ScheduledAt
		all[key] = one
		return err
	}, read, s.db.Batch(k.At, k.Trigger, k.Kind)...)
	if err != nil {
		return nil, fmt.Errorf("read what became of notifications of alerts: %w", err)
	}
	return all, nil
}
