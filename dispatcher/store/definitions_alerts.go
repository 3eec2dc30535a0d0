package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// encodeAlert returns what an alert's row holds as JSON: all that was declared, besides its description. The values of its
// secrets are those of the attached job.
func encodeAlert(spec alert.Spec) (string, error) {
	text, err := json.Marshal(struct {
		alert.Spec
		Description struct{} `json:"description,omitzero"`
	}{Spec: spec})
	return string(text), err
}

// alertColumns are an alert AS a without the name of its app.
const alertColumns = `a.name, a.description, a.definition, a.muted, a.revision, a.created_at, a.updated_at`

// countFiring is how many conditions of an alert AS a hold.
const countFiring = `(SELECT COUNT(*) FROM alert_states AS s WHERE s.alert_id = a.id AND s.firing)`

// scanAlert returns the scan function for alerts of an app. Text that this version does not understand is an error.
func scanAlert(app string) func(db.Scanner) (alert.Alert, error) {
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

// scanShownAlert is scanAlert for rows that end with countFiring.
func scanShownAlert(app string) func(db.Scanner) (alert.Alert, error) {
	return func(row db.Scanner) (alert.Alert, error) {
		firing := 0
		a, err := scanAlert(app)(db.WiderRow{Scanner: row, After: []any{&firing}})
		a.Firing = firing
		return a, err
	}
}

// Alert returns an alert by its name, with its warnings.
func (s *Store) Alert(ctx context.Context, app, name string) (alert.Alert, error) {
	alert, err := findAlert(ctx, s.Read, app, name, "")
	if err == nil {
		err = s.addAlertWarnings(ctx, s.Read, &alert)
	}
	return alert, err
}

// findAlert returns ErrNotFound if there is no such alert. lock is a flavor's lock, or empty.
func findAlert(ctx context.Context, q db.Querier, app, name, lock string) (alert.Alert, error) {
	alert, why, err := readAlert(ctx, q, app, name, lock)
	if err == nil {
		err = why
	}
	return alert, err
}

// readAlert is findAlert of an alert that may be one that cannot be read; why says so.
func readAlert(ctx context.Context, q db.Querier, app, name, lock string) (a alert.Alert, why, err error) {
	// $1 id
	const one = `SELECT ` + alertColumns + `, ` + countFiring + ` FROM alerts AS a WHERE a.id = $1 AND a.deleted_at IS NULL`
	scan := db.EvenUnreadable(scanShownAlert(app), func(_ *alert.Alert, is error) { why = is })
	a, found, err := db.First(ctx, q, scan, one+db.LockOf(lock, "a"), dispatcher.AlertID(app, name))
	if err == nil && !found {
		err = dispatcher.NotFound("alert", app+"/"+name)
	}
	return a, why, err
}

// Alerts returns a page of the alerts of an app, by name.
func (s *Store) Alerts(ctx context.Context, app string, page input.Page) ([]alert.Alert, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	if _, err := readApp(ctx, s.Read, app, ""); err != nil {
		return nil, err
	}
	// $1 app, $2 last name of the page before, $3 limit
	const list = `SELECT ` + alertColumns + `, ` + countFiring + ` FROM alerts AS a
		WHERE a.app_id = $1 AND a.name > $2 AND a.deleted_at IS NULL ORDER BY a.name LIMIT $3`
	// One that cannot be read must not hide the others.
	shown := db.EvenUnreadable(scanShownAlert(app), func(a *alert.Alert, why error) { a.Description = why.Error() })
	return db.Collect(ctx, s.Read, shown, list, run.AppID(app), page.Cursor, page.Limit)
}

// allAlerts returns all alerts of an app, by name.
func allAlerts(ctx context.Context, q db.Querier, app string) ([]alert.Alert, error) {
	// $1 app
	const list = `SELECT ` + alertColumns + ` FROM alerts AS a WHERE a.app_id = $1 AND a.deleted_at IS NULL ORDER BY a.name`
	return db.Collect(ctx, q, scanAlert(app), list, run.AppID(app))
}

// PutAlert creates or replaces an alert. It returns the alert as stored, and whether it was created. An alert that is put as
// it is stored stays as it is.
func (s *Store) PutAlert(ctx context.Context, alert alert.Alert,
	change input.Change) (stored alert.Alert, created bool, err error) {
	if err := alert.Validate(); err != nil {
		return stored, false, err
	}
	if same, is := s.unchangedAlert(ctx, alert, change); is {
		return same, false, nil
	}
	alert = alert.Resolved()
	err = s.change(ctx, change, func(ctx context.Context, t *tx) error {
		// Writers of one app's alerts queue at its row, as do those of its jobs.
		app, err := lockReadableApp(ctx, t, alert.App)
		if err != nil {
			return err
		}
		old, err := replacedAlert(ctx, t, app, alert)
		if err != nil {
			return err
		}
		created = old == nil
		before, err := s.alertWithValues(ctx, t, old)
		if err != nil {
			return err
		}
		if stored, err = s.writeAlert(ctx, t, app, alert); err != nil {
			return err
		}
		if err := followAlertsOf(ctx, t, stored.App); err != nil {
			return err
		}
		if stored, err = findAlert(ctx, t, stored.App, stored.Name, ""); err != nil {
			return err
		}
		if err := s.addAlertWarnings(ctx, t, &stored); err != nil {
			return err
		}
		after, err := s.alertWithValues(ctx, t, &stored)
		if err != nil {
			return err
		}
		return auditAlert(ctx, t, auditEntry{action: "put", app: alert.App, subject: "alert " + alert.Name, revision: stored.Revision},
			before, after)
	})
	return stored, created, err
}

// unchangedAlert returns an alert as it is if a PUT leaves it so. What is outside the bounds of its app is refused also then.
func (s *Store) unchangedAlert(ctx context.Context, alert alert.Alert, change input.Change) (alert.Alert, bool) {
	stored, err := s.Alert(ctx, alert.App, alert.Name)
	if err != nil || allow(change, stored.Revision) != nil || !stored.Declares(alert) {
		return stored, false
	}
	owner, err := findApp(ctx, s.Read, alert.App, "")
	return stored, err == nil && owner.Bounds.CheckDestination(alert.App, alert.Destination) == nil
}

// replacedAlert returns the alert that a PUT replaces, or nil. It refuses one that is outside the bounds of its app, or that
// is one too many.
func replacedAlert(ctx context.Context, t *tx, app access.App, a alert.Alert) (*alert.Alert, error) {
	old, err := findAlert(ctx, t, app.Name, a.Name, t.ForUpdate())
	exists := err == nil
	if err != nil && !errors.Is(err, dispatcher.ErrNotFound) {
		return nil, err
	}
	if err := t.allow(old.Revision); err != nil {
		return nil, err
	}
	var problems input.Problems
	problems.AddError("/destination", app.Bounds.CheckDestination(app.Name, a.Destination))
	if exists {
		return &old, problems.Err()
	}
	// $1 app
	const count = `SELECT COUNT(*) FROM alerts WHERE app_id = $1 AND deleted_at IS NULL`
	alerts, _, err := db.First(ctx, t, db.ScanInt, count, run.AppID(app.Name))
	if err != nil {
		return nil, err
	}
	if alerts >= alert.Max {
		problems.Add("", input.CodeTooMany, "app %s has %d alerts already, which is the maximum; delete one that is not used",
			app.Name, alert.Max)
	}
	return nil, problems.Err()
}

// writeAlert writes an alert and its attached job, and returns it as stored.
func (s *Store) writeAlert(ctx context.Context, t *tx, app access.App, alert alert.Alert) (alert.Alert, error) {
	id, attached := dispatcher.AlertID(alert.App, alert.Name), alert.Attached()
	target, err := s.putAttached(ctx, t, id, attached, app)
	if err != nil {
		return alert, inAlert(err)
	}
	alert.Destination = *target.Alert
	definition, err := encodeAlert(alert.Spec)
	if err != nil {
		return alert, err
	}
	// $1 id, $2 app, $3 name, $4 description, $5 definition, $6 now, $7 attached job. A deleted alert's revision goes on, but
	// not its mute.
	const put = `INSERT INTO alerts AS a (id, app_id, name, description, definition, job_id, revision, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $7, 1, $6, $6)
		ON CONFLICT (id) DO UPDATE SET description = excluded.description, definition = excluded.definition,
			revision = a.revision + 1, updated_at = excluded.updated_at, deleted_at = NULL,
			created_at = CASE WHEN a.deleted_at IS NULL THEN a.created_at ELSE excluded.created_at END
		RETURNING name, description, definition, muted, revision, created_at, updated_at`
	stored, _, err := db.First(ctx, t, scanAlert(alert.App), put, id, run.AppID(alert.App), alert.Name, alert.Description,
		definition, t.now.UnixMilli(), attached.Key())
	if err != nil {
		return stored, fmt.Errorf("put alert %s/%s: %w", alert.App, alert.Name, err)
	}
	return stored, nil
}

// inAlert turns the JSON pointers of problems of an attached job into those in its alert.
func inAlert(err error) error {
	var problems input.Problems
	if !errors.As(err, &problems) {
		return err
	}
	moved := make(input.Problems, len(problems))
	for i, p := range problems {
		p.Path = cmp.Or(strings.Replace(p.Path, "/target/alert", "/destination", 1), "/destination")
		moved[i] = p
	}
	return moved
}

// DeleteAlert deletes an alert with its states.
func (s *Store) DeleteAlert(ctx context.Context, app, name string, change input.Change) error {
	return s.change(ctx, change, func(ctx context.Context, t *tx) error {
		if _, err := lockApp(ctx, t, app); err != nil {
			return err
		}
		alert, _, err := readAlert(ctx, t, app, name, t.ForUpdate())
		if err == nil {
			err = t.allow(alert.Revision)
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
		return auditAlert(ctx, t, auditEntry{action: "delete", app: app, subject: "alert " + name, revision: alert.Revision}, before, nil)
	})
}

func removeAlert(ctx context.Context, t *tx, alert alert.Alert) error {
	id := dispatcher.AlertID(alert.App, alert.Name)
	// $1 alert
	if _, err := t.ExecContext(ctx, `DELETE FROM alert_states WHERE alert_id = $1`, id); err != nil {
		return err
	}
	if err := deleteAttached(ctx, t, alert.Attached().Key()); err != nil {
		return err
	}
	// $1 now, $2 alert
	const remove = `UPDATE alerts SET deleted_at = $1, updated_at = $1, muted = NULL WHERE id = $2`
	if _, err := t.ExecContext(ctx, remove, t.now.UnixMilli(), id); err != nil {
		return err
	}
	return followAlertsOf(ctx, t, alert.App)
}

// alertWithValues returns a copy of an alert with the values of its stored secrets, as far as the keys open them; nil if alert
// is.
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

// auditAlert adds a change of an alert to the audit log. Values of secrets are replaced by hashes.
func auditAlert(ctx context.Context, t *tx, c auditEntry, before, after *alert.Alert) error {
	for _, side := range []struct {
		alert *alert.Alert
		into  *any
	}{{before, &c.before}, {after, &c.after}} {
		if side.alert == nil {
			continue
		}
		hashes, err := hashed(ctx, t, target.Secrets(side.alert.Destination))
		if err != nil {
			return fmt.Errorf("audit %s %s: %w", c.action, c.subject, err)
		}
		shown := *side.alert
		shown.Destination = target.WithSecrets(shown.Destination, hashes)
		parts, err := partsOf(target.ForWire(shown))
		if err != nil {
			return fmt.Errorf("audit %s %s: %w", c.action, c.subject, err)
		}
		without(parts, "revision", "created_at", "updated_at", "firing", "muted", "warnings")
		*side.into = parts
	}
	return t.auditChange(ctx, c)
}
