package definitions

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

const appColumns = `name, description, owner_enabled, retention, defaults, bounds, longer_names, external_id, revision, created_at,
	updated_at, importing_until IS NOT NULL`

func scanApp(row db.Scanner) (access.App, error) {
	var app access.App
	var stored, longer string
	var defaults *string
	err := row.Scan(&app.Name, &app.Description, &app.Enabled, db.DurationColumn(&app.Retention), &defaults, &stored, &longer,
		&app.AWSExternalID, &app.Revision, db.InstantColumn(&app.CreatedAt), db.InstantColumn(&app.UpdatedAt), &app.Importing)
	if err != nil {
		return app, err
	}
	app.Defaults, err = readDefaults(app.Name, defaults)
	if err == nil {
		app.Bounds, err = ReadBounds(app.Name, stored, longer)
	}
	if err != nil { // an unreadable app hides no others, and can be deleted or repaired
		app.Close(err)
	}
	return app, nil
}

// readDefaults returns the defaults for the jobs of an app; nil: none.
func readDefaults(app string, stored *string) (*dispatcher.JobDefaults, error) {
	if stored == nil {
		return nil, nil
	}
	var defaults dispatcher.JobDefaults
	if err := json.Unmarshal([]byte(*stored), &defaults); err != nil {
		return nil, fmt.Errorf("app %s: stored defaults: %w", app, err)
	}
	return &defaults, nil
}

// writtenDefaults returns the column for readDefaults.
func writtenDefaults(app access.App) (*string, error) {
	defaults := app.Defaults.Normal()
	if defaults == nil {
		return nil, nil
	}
	text, err := json.Marshal(defaults)
	return new(string(text)), err
}

// JobDefaults returns the defaults for the jobs of an app; nil: none, or the app does not exist.
func (s *Store) JobDefaults(ctx context.Context, app string) (*dispatcher.JobDefaults, error) {
	// $1 id
	const read = `SELECT defaults FROM apps WHERE id = $1 AND deleted_at IS NULL`
	var stored *string
	if _, err := db.ReadRow(ctx, s.db.Read, []any{&stored}, read, run.AppID(app)); err != nil {
		return nil, err
	}
	return readDefaults(app, stored)
}

// ReadBounds returns the bounds of an app with their defaults. longer are the names that begin with its own.
func ReadBounds(app, stored, longer string) (*target.Bounds, error) {
	var given target.Bounds
	if err := json.Unmarshal([]byte(stored), &given); err != nil {
		return nil, fmt.Errorf("app %s: stored bounds: %w", app, err)
	}
	all := given.WithDefaults(app)
	if given.Secrets == nil && longer != "" {
		all.Reserve(strings.Split(longer, ","))
	}
	return &all, nil
}

// newExternalID draws the external id of an app.
func newExternalID() string { return "carillon-" + strings.ToLower(rand.Text()) }

// App returns an app by its name.
func (s *Store) App(ctx context.Context, name string) (access.App, error) {
	return ReadApp(ctx, s.db.Read, name, "")
}

// AppWithUsage takes four statements more than App.
func (s *Store) AppWithUsage(ctx context.Context, name string) (access.App, error) {
	return s.shownApp(ctx, s.db.Read, name)
}

// shownApp returns an app with its pauses and its use of quotas.
func (s *Store) shownApp(ctx context.Context, q db.Querier, name string) (access.App, error) {
	app, err := ReadApp(ctx, q, name, "")
	if err != nil {
		return app, err
	}
	if app.Pauses, err = heldPauses(ctx, q, name); err != nil {
		return app, err
	}
	usage, err := s.usage(ctx, q, name)
	app.Usage = &usage
	return app, err
}

// FindApp is ReadApp for a readable app.
func FindApp(ctx context.Context, q db.Querier, name, lock string) (access.App, error) {
	app, err := ReadApp(ctx, q, name, lock)
	if err == nil {
		err = app.Err
	}
	return app, err
}

// ReadApp returns ErrNotFound if the app does not exist. lock is a flavor's lock, or empty. The app may be unreadable.
func ReadApp(ctx context.Context, q db.Querier, name, lock string) (access.App, error) {
	// $1 id
	app, found, err := db.First(ctx, q, scanApp, `SELECT `+appColumns+` FROM apps WHERE id = $1 AND deleted_at IS NULL`+lock,
		run.AppID(name))
	return app, db.OrNotFound(found, err, "app", name)
}

// LockApp locks an app for a change and returns it. The app may be unreadable. ErrConflict: another change imports it.
func LockApp(ctx context.Context, t *dispatch.Tx, name string) (access.App, error) {
	app, err := ReadApp(ctx, t, name, t.ForUpdate())
	if err == nil && app.Importing && !t.Importing {
		err = importGoesOn(name)
	}
	return app, err
}

// Apps returns a page of apps, by name.
func (s *Store) Apps(ctx context.Context, page input.Page) ([]access.App, error) {
	// $1 last name of the page before, $2 limit
	const list = `SELECT ` + appColumns + ` FROM apps WHERE name > $1 AND deleted_at IS NULL ORDER BY name LIMIT $2`
	return db.Collect(ctx, s.db.Read, scanApp, list, page.Cursor, page.Limit)
}

// PutApp creates or replaces an app. It returns it as stored, and whether it was created. An app put unchanged stays as
// it is.
func (s *Store) PutApp(ctx context.Context, app access.App, change input.Change) (access.App, bool, error) {
	if err := app.Validate(); err != nil {
		return access.App{}, false, err
	}
	stored, before, err := Redefine(ctx, s, change, Redefinition[access.AppBefore, access.AppChange, access.App]{
		Load: func(ctx context.Context, from Source) (access.AppBefore, error) {
			b, err := s.loadApp(ctx, from, app.Name)
			if err == nil {
				err = dispatch.Allow(change, b.Revision)
			}
			return b, err
		},
		Unchanged: func(b access.AppBefore) (access.App, bool) { return b.Unchanged(app) },
		Decide:    func(b access.AppBefore, now time.Time) (access.AppChange, error) { return b.Put(app, change, now) },
		Write: func(ctx context.Context, t *dispatch.Tx, b access.AppBefore, decided access.AppChange) (access.App, error) {
			return s.writePutApp(ctx, t, b, app, decided)
		},
	})
	return stored, err == nil && before.Revision == 0, err
}

// loadApp reads the state that a PUT of an app depends on. A transaction locks the app; if the app is new, others that
// are created or deleted wait.
func (s *Store) loadApp(ctx context.Context, from Source, name string) (b access.AppBefore, err error) {
	b.Enabled = true
	var importing bool
	var stored string
	// $1 id. A deleted app keeps its bounds.
	const read = `SELECT CASE WHEN deleted_at IS NULL THEN revision ELSE 0 END, deleted_at IS NOT NULL OR enabled,
		importing_until IS NOT NULL, bounds FROM apps WHERE id = $1`
	found, err := db.ReadRow(ctx, from, []any{&b.Revision, &b.Enabled, &importing, &stored}, read+from.Lock, run.AppID(name))
	if err == nil && importing {
		err = importGoesOn(name)
	}
	if err != nil {
		return b, err
	}
	if found {
		if err := json.Unmarshal([]byte(stored), &b.Bounds); err != nil {
			b.Bounds, b.Unreadable = target.Bounds{}, fmt.Errorf("app %s: stored bounds: %w", name, err)
		}
	}
	if b.Revision == 0 {
		if b.Names, err = appNames(ctx, from); err != nil {
			return b, err
		}
		b.Usage, err = s.usage(ctx, from, name)
		return b, err
	}
	shown, err := s.shownApp(ctx, from, name)
	b.Stored = &shown
	if err == nil {
		b.Usage = *shown.Usage
	}
	return b, err
}

func (s *Store) writePutApp(ctx context.Context, t *dispatch.Tx, b access.AppBefore, app access.App, c access.AppChange) (
	stored access.App, err error) {
	defaults, err := writtenDefaults(app)
	if err != nil {
		return stored, err
	}
	breaks, err := s.broken(ctx, t, app.Name, b.Bounds, c.Bounds)
	if err != nil {
		return stored, err
	}
	// Only the key excludes two writers that both found no app.
	expected := b.Revision
	if !t.By.IfAbsent && t.By.IfRevision == 0 {
		expected = -1
	}
	// $1 id, $2 name, $3 description, $4 enabled, $5 now, $6 the revision the app must have: 0
	// for none, -1 for any, $7 what its owner wants, $8 retention, $9 bounds, $10 external id of a new app, $11 defaults,
	// $12 salt of a new app. A deleted app's revision goes on, and it keeps its salt: its history has ids made with it. What a
	// shorter retention has removed does not come back with a longer one.
	const put = `INSERT INTO apps (id, name, description, enabled, owner_enabled, retention, bounds, external_id, defaults,
			salt, revision, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $7, $8, $9, $10, CAST($11 AS TEXT), $12, 1, $5, $5)
		ON CONFLICT (id) DO UPDATE SET description = excluded.description, enabled = excluded.enabled,
			owner_enabled = excluded.owner_enabled, bounds = excluded.bounds, defaults = excluded.defaults,
			history_from = CASE WHEN excluded.retention > apps.retention AND $5 - apps.retention > apps.history_from
				THEN $5 - apps.retention ELSE apps.history_from END,
			retention = excluded.retention, revision = apps.revision + 1, updated_at = excluded.updated_at, deleted_at = NULL,
			created_at = CASE WHEN apps.deleted_at IS NULL THEN apps.created_at ELSE excluded.created_at END,
			switched_to = CASE WHEN apps.enabled <> excluded.enabled THEN 0 ELSE apps.switched_to END
		WHERE CASE WHEN apps.deleted_at IS NULL THEN apps.revision ELSE 0 END = $6 OR $6 = -1
		RETURNING ` + appColumns
	stored, found, err := db.First(ctx, t, scanApp, put,
		run.AppID(app.Name), app.Name, app.Description, c.Enabled, t.At.UnixMilli(), expected,
		app.Enabled, cmp.Or(app.Retention, input.DefaultRetention).Std().Milliseconds(), db.JSONColumn(c.Bounds), newExternalID(), defaults,
		[]byte(run.NewSalt()))
	if err == nil && !found {
		err = dispatcher.ErrPrecondition
	}
	if err != nil {
		return stored, err
	}
	stored.Breaks, stored.Usage = breaks, &b.Usage
	if b.Stored != nil {
		stored.Pauses = b.Stored.Pauses
	}
	return stored, afterPutApp(ctx, t, stored, b, c)
}

// afterPutApp completes a change of an app: it notifies nodes and writes the audit log.
func afterPutApp(ctx context.Context, t *dispatch.Tx, stored access.App, b access.AppBefore, c access.AppChange) error {
	if c.Created {
		if err := reserveNames(ctx, t, stored.Name, append(slices.Clone(b.Names), stored.Name)); err != nil {
			return err
		}
	}
	t.Notify(dispatcher.Notification{App: stored.Name})
	// Claims follow at once: they read the app. The handler continues with the remaining clocks.
	if _, err := followApp(ctx, t, run.AppID(stored.Name), dispatch.FollowAtOnce); err != nil {
		return err
	}
	if c.Switched {
		action := map[bool]string{true: "enable", false: "disable"}[c.Enabled]
		if err := t.Audit(ctx, action, stored.Name, "app "+stored.Name, stored.Revision); err != nil {
			return err
		}
	}
	entry := dispatch.AuditEntry{Action: "put", App: stored.Name, Subject: "app " + stored.Name, Revision: stored.Revision}
	return auditApp(ctx, t, entry, b.Stored, &stored)
}

// mustBeEmpty returns ErrNotEmpty with the names of a few jobs, calendars, groups and alerts of an app, if it has any.
func mustBeEmpty(ctx context.Context, t *dispatch.Tx, app string) error {
	const most = 3
	// $1 id, $2 limit
	const content = `SELECT 'job "' || name || '"' FROM jobs WHERE app_id = $1 AND deleted_at IS NULL AND part_of = 0
		UNION ALL SELECT 'calendar "' || name || '"' FROM calendars WHERE app_id = $1 AND deleted_at IS NULL
		UNION ALL SELECT 'group "' || name || '"' FROM endpoint_groups WHERE app_id = $1 AND deleted_at IS NULL
		UNION ALL SELECT 'alert "' || name || '"' FROM alerts WHERE app_id = $1 AND deleted_at IS NULL LIMIT $2`
	found, err := db.Collect(ctx, t, db.ScanText, content, run.AppID(app), most+1)
	if err != nil || len(found) == 0 {
		return err
	}
	more := ""
	if len(found) > most {
		found, more = found[:most], " and more"
	}
	return fmt.Errorf("%s%s: %w", strings.Join(found, ", "), more, dispatcher.ErrNotEmpty)
}

// DeleteApp deletes an app without jobs, calendars, groups and alerts.
func (s *Store) DeleteApp(ctx context.Context, name string, change input.Change) error {
	return s.dispatch.Change(ctx, change, func(ctx context.Context, t *dispatch.Tx) error {
		app, err := LockApp(ctx, t, name)
		if err != nil {
			return err
		}
		if err := t.Allow(app.Revision); err != nil {
			return err
		}
		if err := mustBeEmpty(ctx, t, name); err != nil {
			return err
		}
		// $1 now, $2 id
		const remove = `UPDATE apps SET deleted_at = $1, updated_at = $1 WHERE id = $2`
		if err := t.Exec(ctx, remove, t.At.UnixMilli(), run.AppID(name)); err != nil {
			return err
		}
		if err := endPauses(ctx, t, name); err != nil {
			return err
		}
		apps, err := appNames(ctx, locked(t))
		if err == nil {
			err = reserveNames(ctx, t, name, apps)
		}
		if err != nil {
			return err
		}
		return auditApp(ctx, t, dispatch.AuditEntry{Action: "delete", App: name, Subject: "app " + name, Revision: app.Revision}, &app, nil)
	})
}
