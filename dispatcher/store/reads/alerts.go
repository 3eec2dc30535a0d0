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
	all, err := listAlertStates(ctx, q, w, query.Page.Limit)
	if err != nil {
		return nil, fmt.Errorf("read states of alerts: %w", err)
	}
	states := make([]alert.State, len(all))
	for i, one := range all {
		states[i] = one.State(one.alert, one.job, now)
		if err := s.addDelivery(ctx, q, one.KeyedTrack, &states[i]); err != nil {
			return nil, fmt.Errorf("read the notification of a state of an alert: %w", err)
		}
	}
	return states, nil
}

// shownAlertState is a state with the names that users know.
type shownAlertState struct {
	definitions.KeyedTrack
	alert alert.Alert
	job   string
}

// listAlertStates lists the states s of alerts a for jobs j that meet conditions.
func listAlertStates(ctx context.Context, q db.Querier, w db.Conditions, limit int) ([]shownAlertState, error) {
	list := `SELECT ` + definitions.TrackColumns + `, j.app, j.name, ` + definitions.AlertColumns +
		` FROM alerts AS a JOIN alert_states AS s ON s.alert_id = a.id
		JOIN jobs AS j ON j.id = s.job_id WHERE a.deleted_at IS NULL` + w.Text + `
		ORDER BY a.name, j.name, s.condition LIMIT ` + strconv.Itoa(limit)
	return db.Collect(ctx, q, func(row db.Scanner) (one shownAlertState, err error) {
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
}

// addDelivery adds to a state the outcome of its latest notification.
func (s *Store) addDelivery(ctx context.Context, q db.Querier, track definitions.KeyedTrack, state *alert.State) error {
	if track.Told == "" {
		return nil
	}
	key := run.Key{TriggerID: track.ID, ScheduledAt: track.ToldAt, Kind: run.KindAlert}
	state.Notification = &alert.Delivery{Run: key.String(), Transition: track.Told, At: track.ToldAt}
	// $1 scheduled instant, $2 trigger, $3 kind
	const run = `SELECT state, class, error FROM live_runs WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3
		UNION ALL SELECT coalesce(state, 'succeeded'), coalesce(class, ''), coalesce(error, '') FROM runs
			WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3`
	_, err := db.ReadRow(ctx, q, []any{&state.Notification.State, &state.Notification.Class, &state.Notification.Error}, run,
		dispatch.KeyArgs(key)[:3]...)
	return err
}
