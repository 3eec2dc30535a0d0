package definitions

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// encodeAlert returns the JSON in an alert's row: the whole declaration except its description. The values of its
// secrets are stored with the attached job.
func encodeAlert(spec alert.Spec) (string, error) {
	text, err := json.Marshal(struct {
		alert.Spec
		Description struct{} `json:"description,omitzero"`
	}{Spec: spec})
	return string(text), err
}

// AlertColumns are the columns of an alert AS a without the name of its app.
const AlertColumns = `a.name, a.description, a.definition, a.muted, a.revision, a.created_at, a.updated_at`

// countFiring counts the firing conditions of an alert AS a.
const countFiring = `(SELECT COUNT(*) FROM alert_states AS s WHERE s.alert_id = a.id AND s.firing)`

// ScanAlert returns the scan function for alerts of an app. Text that this version does not understand is an error.
func ScanAlert(app string) func(db.Scanner) (alert.Alert, error) {
	return func(row db.Scanner) (alert.Alert, error) {
		a := alert.Alert{App: app}
		var text string
		var muted *string
		err := row.Scan(&a.Name, &a.Description, &text, &muted, &a.Revision, db.InstantColumn(&a.CreatedAt), db.InstantColumn(&a.UpdatedAt))
		if err != nil {
			return a, err
		}
		spec := a.Spec
		if err := json.Unmarshal([]byte(text), &spec); err != nil {
			return a, db.AsUnreadable(fmt.Errorf("alert %s/%s: stored definition: %w", app, a.Name, err))
		}
		a.Spec = spec
		if muted != nil {
			if err := json.Unmarshal([]byte(*muted), &a.Muted); err != nil {
				return a, db.AsUnreadable(fmt.Errorf("alert %s/%s: stored mute: %w", app, a.Name, err))
			}
		}
		return a, nil
	}
}

// scanShownAlert is ScanAlert for rows that end with countFiring.
func scanShownAlert(app string) func(db.Scanner) (alert.Alert, error) {
	return func(row db.Scanner) (alert.Alert, error) {
		firing := 0
		a, err := ScanAlert(app)(db.WiderRow{Scanner: row, After: []any{&firing}})
		a.Firing = firing
		return a, err
	}
}

// Alert returns an alert by its name, with its warnings.
func (s *Store) Alert(ctx context.Context, app, name string) (alert.Alert, error) {
	alert, err := FindAlert(ctx, s.db.Read, app, name, "")
	if err == nil {
		alert.Warnings, err = s.alertWarnings(ctx, s.db.Read, alert)
	}
	return alert, err
}

// FindAlert returns ErrNotFound if the alert does not exist. lock is a flavor's lock, or empty.
func FindAlert(ctx context.Context, q db.Querier, app, name, lock string) (alert.Alert, error) {
	alert, why, err := readAlert(ctx, q, app, name, lock)
	if err == nil {
		err = why
	}
	return alert, err
}

// readAlert is FindAlert for an alert that may be unreadable; why is then the reason.
func readAlert(ctx context.Context, q db.Querier, app, name, lock string) (a alert.Alert, why, err error) {
	// $1 id
	const one = `SELECT ` + AlertColumns + `, ` + countFiring + ` FROM alerts AS a WHERE a.id = $1 AND a.deleted_at IS NULL`
	scan := db.EvenUnreadable(scanShownAlert(app), func(_ *alert.Alert, is error) { why = is })
	a, found, err := db.First(ctx, q, scan, one+db.LockOf(lock, "a"), dispatcher.AlertID(app, name))
	return a, why, db.OrNotFound(found, err, "alert", app+"/"+name)
}

// Alerts returns a page of the alerts of an app, by name.
func (s *Store) Alerts(ctx context.Context, app string, page input.Page) ([]alert.Alert, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	if _, err := ReadApp(ctx, s.db.Read, app, ""); err != nil {
		return nil, err
	}
	// $1 app, $2 last name of the page before, $3 limit
	const list = `SELECT ` + AlertColumns + `, ` + countFiring + ` FROM alerts AS a
		WHERE a.app_id = $1 AND a.name > $2 AND a.deleted_at IS NULL ORDER BY a.name LIMIT $3`
	// An unreadable alert must not hide the others.
	shown := db.EvenUnreadable(scanShownAlert(app), func(a *alert.Alert, why error) { a.Description = why.Error() })
	return db.Collect(ctx, s.db.Read, shown, list, run.AppID(app), page.Cursor, page.Limit)
}

func allAlerts(ctx context.Context, q db.Querier, app string, scan func(db.Scanner) (alert.Alert, error)) ([]alert.Alert, error) {
	// $1 app
	const list = `SELECT ` + AlertColumns + ` FROM alerts AS a WHERE a.app_id = $1 AND a.deleted_at IS NULL ORDER BY a.name`
	return db.Collect(ctx, q, scan, list, run.AppID(app))
}

// AlertDestinations returns the names of the destinations of the alerts of an app, by alert.
func AlertDestinations(ctx context.Context, q db.Querier, app string) (map[string]string, error) {
	all, err := allAlerts(ctx, q, app, db.EvenUnreadable(ScanAlert(app), func(*alert.Alert, error) {}))
	names := make(map[string]string, len(all))
	for _, a := range all {
		names[a.Name] = a.Destination.Name()
	}
	return names, err
}

// alertBefore is the state that a PUT of an alert depends on, with the values for the audit log.
type alertBefore struct {
	alert.Before
	values *alert.Alert // Old with the values of its secrets
}

// PutAlert creates or replaces an alert. It returns the alert as stored, and whether it was created. An alert put
// unchanged stays as it is.
func (s *Store) PutAlert(ctx context.Context, a alert.Alert, change input.Change) (alert.Alert, bool, error) {
	if err := a.Validate(); err != nil {
		return alert.Alert{}, false, err
	}
	stored, before, err := Redefine(ctx, s, change, Redefinition[alertBefore, alert.Change, alert.Alert]{
		Load:      func(ctx context.Context, from Source) (alertBefore, error) { return s.loadAlert(ctx, from, a, change) },
		Unchanged: func(b alertBefore) (alert.Alert, bool) { return b.Unchanged(a) },
		Decide:    func(b alertBefore, now time.Time) (alert.Change, error) { return b.Put(a, now) },
		Write: func(ctx context.Context, t *dispatch.Tx, b alertBefore, decided alert.Change) (alert.Alert, error) {
			stored, err := s.writeAlert(ctx, t, decided)
			if err != nil {
				return stored, err
			}
			if err := followAlertsOf(ctx, t, stored.App); err != nil {
				return stored, err
			}
			after := replacedValues(stored, decided.Alert, b.values)
			// The states of jobs that it no longer selects have ended.
			if stored, err = FindAlert(ctx, t, stored.App, stored.Name, ""); err != nil {
				return stored, err
			}
			stored.Warnings = b.Warnings
			return stored, auditAlert(ctx, t, dispatch.AuditEntry{Action: "put", App: a.App, Subject: "alert " + a.Name, Revision: stored.Revision},
				b.values, after)
		},
	})
	return stored, err == nil && before.Old == nil, err
}

// loadAlert reads the state that a PUT of an alert depends on.
func (s *Store) loadAlert(ctx context.Context, from Source, a alert.Alert, by input.Change) (b alertBefore, err error) {
	app, err := from.app(ctx, a.App)
	if err != nil {
		return b, err
	}
	b.Bounds, b.Defaults, b.Keys = app.Bounds, app.Defaults, s.keys != nil
	old, _, err := readAlert(ctx, from, a.App, a.Name, from.Lock) // a PUT replaces an unreadable alert
	if b.Old, err = replaced(by, old, old.Revision, err); err != nil {
		return b, err
	}
	if b.Warnings, err = s.alertWarnings(ctx, from, a); err != nil {
		return b, err
	}
	if b.Attached, err = loadAttached(ctx, from, a.Attached().Key()); err != nil {
		return b, err
	}
	if b.Old == nil {
		// $1 app
		const count = `SELECT COUNT(*) FROM alerts WHERE app_id = $1 AND deleted_at IS NULL`
		alerts, _, err := db.First(ctx, from, db.ScanInt, count, run.AppID(a.App))
		b.Alerts = int(alerts)
		return b, err
	}
	if from.tx != nil {
		b.values, err = s.alertWithValues(ctx, from, b.Old)
	}
	return b, err
}

// writeAlert writes an alert and its attached job, and returns it as stored.
func (s *Store) writeAlert(ctx context.Context, t *dispatch.Tx, c alert.Change) (alert.Alert, error) {
	alert, attached := c.Alert, c.Attached.Job
	id := dispatcher.AlertID(alert.App, alert.Name)
	target, err := s.writeAttached(ctx, t, id, c.Attached)
	if err != nil {
		return alert, err
	}
	alert.Destination = *target.Alert
	definition, err := encodeAlert(alert.Spec)
	if err != nil {
		return alert, err
	}
	// $1 id, $2 app, $3 name, $4 description, $5 definition, $6 now, $7 attached job, $8 severity. A deleted alert's revision goes
	// on, but not its mute.
	const put = `INSERT INTO alerts AS a (id, app_id, name, description, definition, job_id, severity, revision, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $7, $8, 1, $6, $6)
		ON CONFLICT (id) DO UPDATE SET description = excluded.description, definition = excluded.definition, severity = excluded.severity,
			revision = a.revision + 1, updated_at = excluded.updated_at, deleted_at = NULL,
			created_at = CASE WHEN a.deleted_at IS NULL THEN a.created_at ELSE excluded.created_at END
		RETURNING name, description, definition, muted, revision, created_at, updated_at`
	stored, _, err := db.First(ctx, t, ScanAlert(alert.App), put, id, run.AppID(alert.App), alert.Name, alert.Description,
		definition, t.At.UnixMilli(), attached.Key(), alert.Severity().Rank())
	if err != nil {
		return stored, fmt.Errorf("put alert %s/%s: %w", alert.App, alert.Name, err)
	}
	return stored, nil
}

// DeleteAlert deletes an alert with its states.
func (s *Store) DeleteAlert(ctx context.Context, app, name string, change input.Change) error {
	return s.dispatch.Change(ctx, change, func(ctx context.Context, t *dispatch.Tx) error {
		if _, err := LockApp(ctx, t, app); err != nil {
			return err
		}
		alert, _, err := readAlert(ctx, t, app, name, t.ForUpdate())
		if err == nil {
			err = t.Allow(alert.Revision)
		}
		if err != nil {
			return err
		}
		before, err := s.alertWithValues(ctx, t, &alert)
		if err != nil {
			return err
		}
		if err := removeAlert(ctx, t, alert); err != nil {
			return fmt.Errorf("delete alert %s/%s: %w", app, name, err)
		}
		return auditAlert(ctx, t, dispatch.AuditEntry{Action: "delete", App: app, Subject: "alert " + name, Revision: alert.Revision}, before,
			nil)
	})
}

func removeAlert(ctx context.Context, t *dispatch.Tx, alert alert.Alert) error {
	id := dispatcher.AlertID(alert.App, alert.Name)
	// $1 alert
	if err := t.Exec(ctx, `DELETE FROM alert_states WHERE alert_id = $1`, id); err != nil {
		return err
	}
	if err := deleteAttached(ctx, t, alert.Attached().Key()); err != nil {
		return err
	}
	// $1 now, $2 alert
	const remove = `UPDATE alerts SET deleted_at = $1, updated_at = $1, muted = NULL WHERE id = $2`
	if err := t.Exec(ctx, remove, t.At.UnixMilli(), id); err != nil {
		return err
	}
	return followAlertsOf(ctx, t, alert.App)
}

// alertWithValues returns a copy of an alert with the values of its stored secrets that the keys can open; nil if alert
// is nil.
func (s *Store) alertWithValues(ctx context.Context, q db.Querier, alert *alert.Alert) (*alert.Alert, error) {
	if alert == nil {
		return nil, nil
	}
	attached := []dispatcher.JobVersion{{Job: alert.Attached()}}
	if err := s.openSecrets(ctx, q, attached); err != nil {
		return nil, err
	}
	opened := *alert
	opened.Destination = *attached[0].Target.Alert
	return &opened, nil
}

// auditAlert adds a change of an alert to the audit log, with hashes for its secrets. before or after may be nil.
func auditAlert(ctx context.Context, t *dispatch.Tx, c dispatch.AuditEntry, before, after *alert.Alert) error {
	return auditSides(ctx, t, c, [2]*alert.Alert{before, after}, func(alert *alert.Alert) (any, error) {
		if alert == nil {
			return nil, nil
		}
		hashes, err := hashed(ctx, t, target.Secrets(alert.Destination))
		if err != nil {
			return nil, err
		}
		shown := *alert
		shown.Destination = target.WithSecrets(shown.Destination, hashes)
		parts, err := dispatch.PartsOf(target.ForWire(shown))
		dispatch.Without(parts, "revision", "created_at", "updated_at", "firing", "muted", "warnings")
		return parts, err
	})
}

// WriteMute stores an operator's mute of an alert; nil removes it.
func WriteMute(ctx context.Context, t *dispatch.Tx, alert alert.Alert, mute *alert.Mute) error {
	var encoded *string
	if mute != nil {
		text, err := json.Marshal(mute)
		if err != nil {
			return err
		}
		encoded = new(string(text))
	}
	// $1 alert, $2 mute
	return t.Exec(ctx, `UPDATE alerts SET muted = $2 WHERE id = $1`, dispatcher.AlertID(alert.App, alert.Name), encoded)
}

// alertWarnings returns the selectors of an alert that match no job. They are warnings: a job may be declared later.
func (s *Store) alertWarnings(ctx context.Context, q db.Querier, alert alert.Alert) (warnings input.Problems, err error) {
	if len(alert.Jobs) > 0 {
		// $1 app, from $2 on: names
		existing := s.db.Rows(0, 2, "", db.NameColumns...) + ` SELECT j.name FROM b JOIN jobs AS j ON j.name = b.name
			WHERE j.app_id = $1 AND j.part_of = 0 AND j.deleted_at IS NULL`
		names, err := db.Collect(ctx, q, db.ScanText, existing, append([]any{run.AppID(alert.App)}, s.db.Batch(alert.Jobs)...)...)
		if err != nil {
			return nil, fmt.Errorf("look for the jobs of alert %s/%s: %w", alert.App, alert.Name, err)
		}
		for i, name := range alert.Jobs {
			if !slices.Contains(names, name) {
				warnings.Add(input.Pointer("jobs", strconv.Itoa(i)), input.CodeAlertJobUnknown,
					"app %s has no job %s, so nobody is told of it until it is declared; declare it, or check the name",
					input.Echo(alert.App), input.Echo(name))
			}
		}
	}
	if len(alert.Labels) > 0 {
		args := StatementArgs{run.AppID(alert.App)}
		// $1 app, from $2 on: labels
		labelled := `SELECT 1 FROM jobs AS j WHERE j.app_id = $1 AND j.part_of = 0 AND j.deleted_at IS NULL` +
			WithLabels(alert.Labels, &args) + ` LIMIT 1`
		_, some, err := db.First(ctx, q, db.ScanInt, labelled, args...)
		if err != nil {
			return nil, fmt.Errorf("look for jobs with the labels of alert %s/%s: %w", alert.App, alert.Name, err)
		}
		if !some {
			warnings.Add("/labels", input.CodeAlertJobUnknown,
				"app %s has no job with %s; give a job these labels, or check their names and values", input.Echo(alert.App), alert.Labels)
		}
	}
	return warnings, nil
}

var (
	trackWritten = []db.Column{db.Col("id", db.Bigint), db.Col("alert_id", db.Bigint), db.Col("job_id", db.Bigint),
		db.Col("of_condition", db.Text),
		db.Col("firing", db.Integer),
		db.Col("armed", db.Integer), db.Col("kept_back", db.Integer), db.Col("check_at", db.Bigint), db.Col("track", db.Text)}
	eventWritten = []db.Column{db.Col("app_id", db.Bigint), db.Col("at", db.Bigint), db.Col("id", db.Bigint), db.Col("alert", db.Text),
		db.Col("job", db.Text),
		db.Col("event", db.Text)}
)

// flag is a boolean as a column of a batch.
func flag(is bool) int32 {
	if is {
		return 1
	}
	return 0
}

// writeTracks writes the changed tracks and deletes the removed ones.
func (j *Judgement) writeTracks(ctx context.Context) error {
	var gone, ids, alerts, jobs []int64
	var firing, armed, kept []int32
	var check []*int64
	var conditions, texts []string
	for _, id := range slices.Sorted(maps.Keys(j.changed)) {
		track, there := j.Tracks[id]
		if !there {
			gone = append(gone, id)
			continue
		}
		encoded, err := json.Marshal(track)
		if err != nil {
			return err
		}
		rule := alert.Rule{}
		if alert := j.Alerts[track.AlertID]; alert != nil {
			rule, _ = alert.RuleOf(track.Condition, j.At)
		}
		ids, alerts, jobs = append(ids, id), append(alerts, track.AlertID), append(jobs, track.JobID)
		firing, armed, kept = append(firing, flag(track.Firing)), append(armed, flag(track.Armed())), append(kept, flag(track.KeptBack()))
		check = append(check, db.OrNull(track.CheckAt(rule)))
		conditions, texts = append(conditions, string(track.Condition)), append(texts, dispatch.Storable(string(encoded)))
	}
	if len(gone) > 0 {
		// From $1 on: ids
		remove := `DELETE FROM alert_states WHERE id` + j.In(1)
		if err := j.Exec(ctx, remove, dispatch.List(j.Tx, gone)); err != nil {
			return err
		}
	}
	if len(ids) == 0 {
		return nil
	}
	// From $1 on: trackWritten
	put := j.Rows(0, 1, "", trackWritten...) + ` INSERT INTO alert_states
			(id, alert_id, job_id, condition, firing, armed, kept_back, check_at, track)
		SELECT b.id, b.alert_id, b.job_id, b.of_condition, b.firing = 1, b.armed = 1, b.kept_back = 1, b.check_at, b.track FROM b WHERE 1 = 1
		ON CONFLICT (id) DO UPDATE SET firing = excluded.firing, armed = excluded.armed, kept_back = excluded.kept_back,
			check_at = excluded.check_at, track = excluded.track`
	return j.Exec(ctx, put, j.Batch(ids, alerts, jobs, conditions, firing, armed, kept, check, texts)...)
}

// writeEvents adds the transitions to the history.
func (j *Judgement) writeEvents(ctx context.Context) error {
	if len(j.made) == 0 {
		return nil
	}
	var apps, at, ids []int64
	var alerts, jobs, events []string
	for _, m := range j.made {
		seen := m.Observation
		var in *alert.Delivery
		if m.in != m.key() {
			in = &alert.Delivery{Run: m.in.String()}
		}
		encoded, err := json.Marshal(alert.Event{Notification: in, Condition: m.track.Condition, Transition: m.Transition, Sequence: m.Sequence,
			Count: m.Count, EventRun: alert.EventRun{Run: seen.Run, Class: seen.Class, Error: seen.Error}, Kept: m.Kept, By: m.By,
			Reason: m.Reason})
		if err != nil {
			return err
		}
		apps, at, ids = append(apps, m.job.AppID), append(at, m.At.UnixMilli()), append(ids, m.id)
		alerts, jobs, events = append(alerts, m.alert.Name), append(jobs, m.job.Name), append(events, dispatch.Storable(string(encoded)))
	}
	// From $1 on: eventWritten
	put := j.Rows(0, 1, "", eventWritten...) + ` INSERT INTO alert_events (app_id, at, id, alert, job, event)
		SELECT b.app_id, b.at, b.id, b.alert, b.job, b.event FROM b WHERE 1 = 1 ON CONFLICT DO NOTHING`
	return j.Exec(ctx, put, j.Batch(apps, at, ids, alerts, jobs, events)...)
}

// notification returns the notification of a transition.
func (m madeTransition) notification(d details) target.AlertNotification {
	seen := m.Observation
	n := target.AlertNotification{
		App: m.job.App, Alert: m.alert.Name, Job: m.job.Name, Condition: m.track.Condition, Transition: m.Transition, At: m.At, Since: m.Since,
		Count: m.Count, Run: m.track.Run, Class: m.track.Class, Error: m.track.Error, LateBy: input.Duration(seen.LateBy),
		Response: d.responses[seen.Run], LastSuccess: optional(d.successes[m.job.ID].At), DeclaredAt: optional(d.successes[m.job.ID].DeclaredAt),
		Description: m.alert.Description, JobDescription: m.job.description, RunbookURL: m.job.runbookURL, Labels: m.job.Labels,
		Sequence: m.Sequence, By: m.By, Reason: m.Reason, Previous: m.AfterIn,
	}
	if m.Transition == target.AlertResolved {
		n.Run, n.Class, n.Error, n.LastSuccess, n.DeclaredAt = seen.Run, seen.Class, seen.Error, nil, nil
	}
	if key, err := run.ParseKey(n.Run); err == nil {
		n.ScheduledAt, n.Trigger = &key.ScheduledAt, d.triggers[n.Run]
	} else if !seen.ScheduledAt.IsZero() {
		n.ScheduledAt, n.Trigger = &seen.ScheduledAt, seen.Trigger
	}
	return n
}

// optional returns nil for a zero time.
func optional(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}
