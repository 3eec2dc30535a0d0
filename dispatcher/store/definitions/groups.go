package definitions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// GroupColumns are the columns of a group without the name of its app.
const GroupColumns = `name, description, definition, revision, created_at, updated_at, removal_requested_at`

// ScanGroup returns the scan function for groups of an app. Text that this version does not understand is an error.
func ScanGroup(app string) func(db.Scanner) (target.EndpointGroup, error) {
	return func(row db.Scanner) (target.EndpointGroup, error) {
		g := target.EndpointGroup{App: app}
		var text string
		err := row.Scan(&g.Name, &g.Description, &text, &g.Revision, db.InstantColumn(&g.CreatedAt), db.InstantColumn(&g.UpdatedAt),
			db.OptionalColumn(&g.RemovalRequestedAt))
		if err != nil {
			return g, err
		}
		spec := g.EndpointGroupSpec
		if err := json.Unmarshal([]byte(text), &spec); err != nil {
			return g, db.AsUnreadable(fmt.Errorf("group %s/%s: stored definition: %w", app, g.Name, err))
		}
		g.EndpointGroupSpec = spec
		return g, nil
	}
}

// Group returns a group by its name.
func (s *Store) Group(ctx context.Context, app, name string) (target.EndpointGroup, error) {
	return findGroup(ctx, s.db.Read, app, name, "")
}

// findGroup returns ErrNotFound if the group does not exist. lock is a flavor's lock, or empty.
func findGroup(ctx context.Context, q db.Querier, app, name, lock string) (target.EndpointGroup, error) {
	group, why, err := readGroup(ctx, q, app, name, lock)
	if err == nil {
		err = why
	}
	return group, err
}

// readGroup is findGroup for a group that may be unreadable; why is then the reason.
func readGroup(ctx context.Context, q db.Querier, app, name, lock string) (group target.EndpointGroup, why, err error) {
	// $1 id
	const one = `SELECT ` + GroupColumns + ` FROM endpoint_groups WHERE id = $1 AND deleted_at IS NULL`
	scan := db.EvenUnreadable(ScanGroup(app), func(_ *target.EndpointGroup, is error) { why = is })
	group, found, err := db.First(ctx, q, scan, one+lock, run.GroupID(app, name))
	return group, why, db.OrNotFound(found, err, "group", app+"/"+name)
}

// Groups returns a page of the groups of an app, by name.
func (s *Store) Groups(ctx context.Context, app string, page input.Page) ([]target.EndpointGroup, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	if _, err := ReadApp(ctx, s.db.Read, app, ""); err != nil {
		return nil, err
	}
	// $1 app, $2 last name of the page before, $3 limit
	const list = `SELECT ` + GroupColumns + ` FROM endpoint_groups
		WHERE app_id = $1 AND name > $2 AND deleted_at IS NULL ORDER BY name LIMIT $3`
	// An unreadable group must not hide the others.
	shown := db.EvenUnreadable(ScanGroup(app), func(g *target.EndpointGroup, why error) { g.Description = why.Error() })
	return db.CollectPage(ctx, s.db.Read, page, shown, nil, list, run.AppID(app), page.Cursor, page.Limit)
}

// allGroups returns all groups of an app, by name.
func allGroups(ctx context.Context, q db.Querier, app string) ([]target.EndpointGroup, error) {
	// $1 app
	const list = `SELECT ` + GroupColumns + ` FROM endpoint_groups WHERE app_id = $1 AND deleted_at IS NULL ORDER BY name`
	return db.Collect(ctx, q, ScanGroup(app), list, run.AppID(app))
}

// groupBefore is the state that a PUT of a group depends on, with the values for the audit log.
type groupBefore struct {
	target.GroupBefore
	values *target.EndpointGroup // Old with the values of its secrets
}

// PutGroup creates or replaces a group. It returns the group as stored, and whether it was created. A group put
// unchanged stays as it is.
func (s *Store) PutGroup(ctx context.Context, group target.EndpointGroup, change input.Change) (target.EndpointGroup, bool, error) {
	if err := group.Validate(); err != nil {
		return target.EndpointGroup{}, false, err
	}
	stored, before, err := Redefine(ctx, s, change, Redefinition[groupBefore, target.EndpointGroup, target.EndpointGroup]{
		Load: func(ctx context.Context, from Source) (groupBefore, error) {
			return s.loadGroup(ctx, from, group, change)
		},
		Unchanged: func(b groupBefore) (target.EndpointGroup, bool) { return b.Unchanged(group) },
		Decide:    func(b groupBefore, _ time.Time) (target.EndpointGroup, error) { return b.Put(group) },
		Write: func(ctx context.Context, t *dispatch.Tx, b groupBefore, decided target.EndpointGroup) (target.EndpointGroup, error) {
			stored, err := s.writeGroup(ctx, t, b.Old, decided)
			if err != nil {
				return stored, err
			}
			t.Notify(dispatcher.Notification{App: group.App, Group: group.Name})
			return stored, auditGroup(ctx, t, dispatch.AuditEntry{Action: "put", App: group.App, Subject: "group " + group.Name,
				Revision: stored.Revision},
				b.values, replacedValues(stored, decided, b.values))
		},
	})
	return stored, err == nil && before.Old == nil, err
}

// loadGroup reads the state that a PUT of a group depends on. Jobs that name a group queue at the row of the app, too.
func (s *Store) loadGroup(ctx context.Context, from Source, group target.EndpointGroup, by input.Change) (b groupBefore, err error) {
	app, err := from.app(ctx, group.App)
	if err != nil {
		return b, err
	}
	b.Bounds, b.Keys = app.Bounds, s.keys != nil
	old, _, err := readGroup(ctx, from, group.App, group.Name, from.Lock) // a PUT replaces an unreadable group
	if b.Old, err = replaced(by, old, old.Revision, err); err != nil {
		return b, err
	}
	if b.Old == nil {
		// $1 app
		const count = `SELECT COUNT(*) FROM endpoint_groups WHERE app_id = $1 AND deleted_at IS NULL`
		groups, _, err := db.First(ctx, from, db.ScanInt, count, run.AppID(group.App))
		b.Groups = int(groups)
		return b, err
	}
	if from.tx != nil {
		b.values, err = s.groupWithValues(ctx, from, b.Old)
	}
	return b, err
}

// writeGroup writes a group, its secrets and the endpoints that it declares, and returns it as stored.
func (s *Store) writeGroup(ctx context.Context, t *dispatch.Tx, old *target.EndpointGroup,
	group target.EndpointGroup) (stored target.EndpointGroup, err error) {
	var before map[string]target.Secret
	if old != nil {
		before = target.Secrets(*old)
	}
	given, sealed := s.sealSecrets(ownerGroup(group))
	group = target.WithSecrets(group, given)
	// The whole declaration except its description.
	definition, err := json.Marshal(struct {
		target.EndpointGroupSpec
		Description struct{} `json:"description,omitzero"`
		EjectAfter  int      `json:"eject_after,omitempty"`
	}{EndpointGroupSpec: group.EndpointGroupSpec, EjectAfter: group.EjectAfter})
	if err != nil {
		return stored, err
	}
	// $1 id, $2 app, $3 name, $4 description, $5 definition, $6 now, $7 when its certificate ends, $8 whether it has names. A
	// deleted group's revision goes on.
	const put = `INSERT INTO endpoint_groups (id, app_id, name, description, definition, certificate_ends_at, by_name, revision,
			created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $7, $8, 1, $6, $6)
		ON CONFLICT (id) DO UPDATE SET description = excluded.description, definition = excluded.definition,
			certificate_ends_at = excluded.certificate_ends_at, by_name = excluded.by_name,
			revision = endpoint_groups.revision + 1, updated_at = excluded.updated_at, deleted_at = NULL, removal_requested_at = NULL,
			created_at = CASE WHEN endpoint_groups.deleted_at IS NULL THEN endpoint_groups.created_at ELSE excluded.created_at END
		RETURNING ` + GroupColumns
	owner := ownerGroup(group)
	stored, _, err = db.First(ctx, t, ScanGroup(group.App), put, owner.id, run.AppID(group.App), group.Name, group.Description,
		string(definition), t.At.UnixMilli(), db.OrNullAt(group.TLS.CertificateEnd()), len(group.DNS) > 0)
	if err == nil {
		err = writeSecrets(ctx, t, before, owner, sealed)
	}
	if err == nil {
		err = declareEndpoints(ctx, t, group)
	}
	if err != nil {
		return stored, fmt.Errorf("put group %s/%s: %w", group.App, group.Name, err)
	}
	return stored, nil
}

// DeleteGroup deletes a group that no job names, with its endpoints.
func (s *Store) DeleteGroup(ctx context.Context, app, name string, change input.Change) error {
	_, err := s.deleteGroup(ctx, app, name, false, change)
	return err
}

// DeleteGroupWhenUnused deletes a group, or marks it for deletion when no job names it any more.
func (s *Store) DeleteGroupWhenUnused(ctx context.Context, app, name string, change input.Change) (*target.EndpointGroup, error) {
	return s.deleteGroup(ctx, app, name, true, change)
}

func (s *Store) deleteGroup(ctx context.Context, app, name string, wait bool, by input.Change) (marked *target.EndpointGroup, err error) {
	err = s.dispatch.Change(ctx, by, func(ctx context.Context, t *dispatch.Tx) error {
		marked = nil
		if _, err := LockApp(ctx, t, app); err != nil {
			return err
		}
		group, _, err := readGroup(ctx, t, app, name, t.ForUpdate())
		if err == nil {
			err = t.Allow(group.Revision)
		}
		if err != nil {
			return err
		}
		err = jobsOfGroup(ctx, t, group)
		if errors.Is(err, dispatcher.ErrInUse) && wait {
			marked, err = markGroup(ctx, t, group)
			return err
		}
		if err == nil {
			err = s.dropGroup(ctx, t, group)
		}
		return err
	})
	return marked, err
}

// jobsOfGroup returns an ErrInUse that names a job, if the group is the target of one.
func jobsOfGroup(ctx context.Context, q db.Querier, group target.EndpointGroup) error {
	// $1 app, $2 group
	const users = `SELECT name, COUNT(*) OVER () FROM jobs
		WHERE app_id = $1 AND target_group = $2 AND target_group <> '' AND deleted_at IS NULL ORDER BY name LIMIT 1`
	var found dispatcher.Users
	_, err := db.ReadRow(ctx, q, []any{&found.First, &found.Count}, users, run.AppID(group.App), group.Name)
	if found.First = "job " + input.Echo(found.First); err == nil {
		err = found.Check("group", group.Name)
	}
	return err
}

// markGroup marks a group for deletion when it is unused.
func markGroup(ctx context.Context, t *dispatch.Tx, group target.EndpointGroup) (*target.EndpointGroup, error) {
	if group.RemovalRequestedAt != nil {
		return &group, nil
	}
	// $1 now, $2 group
	const mark = `UPDATE endpoint_groups SET removal_requested_at = $1, updated_at = $1, revision = revision + 1 WHERE id = $2
		RETURNING ` + GroupColumns
	stored, _, err := db.First(ctx, t, ScanGroup(group.App), mark, t.At.UnixMilli(), run.GroupID(group.App, group.Name))
	if err != nil {
		return nil, fmt.Errorf("mark group %s/%s: %w", group.App, group.Name, err)
	}
	return &stored, auditGroup(ctx, t, dispatch.AuditEntry{Action: "delete when unused", App: group.App, Subject: "group " + group.Name,
		Revision: stored.Revision}, &group, &stored)
}

// removeUnusedOf deletes the calendars and the group that a change of a job stopped using, if they are marked for
// deletion and unused. old is nil for a new job, and job for a deleted one. The change has locked the app.
func (s *Store) removeUnusedOf(ctx context.Context, t *dispatch.Tx, old, job *dispatcher.Job) error {
	if old == nil {
		return nil
	}
	if err := removeUnused(ctx, t, old.App, dropped(usedCalendars(old), usedCalendars(job))); err != nil {
		return err
	}
	name := old.Target.GroupName()
	if name == "" || job != nil && job.Target.GroupName() == name {
		return nil
	}
	group, _, err := readGroup(ctx, t, old.App, name, t.ForUpdate())
	if err != nil || group.RemovalRequestedAt == nil {
		if errors.Is(err, dispatcher.ErrNotFound) {
			return nil
		}
		return err
	}
	if err := jobsOfGroup(ctx, t, group); !errors.Is(err, dispatcher.ErrInUse) {
		return errors.Join(err, s.dropGroup(ctx, t, group))
	}
	return nil
}

// dropGroup deletes a group with its endpoints.
func (s *Store) dropGroup(ctx context.Context, t *dispatch.Tx, group target.EndpointGroup) error {
	before, err := s.groupWithValues(ctx, t, &group)
	if err != nil {
		return err
	}
	if err := removeGroup(ctx, t, run.GroupID(group.App, group.Name)); err != nil {
		return fmt.Errorf("delete group %s/%s: %w", group.App, group.Name, err)
	}
	t.Notify(dispatcher.Notification{App: group.App, Group: group.Name})
	return auditGroup(ctx, t, dispatch.AuditEntry{Action: "delete", App: group.App, Subject: "group " + group.Name,
		Revision: group.Revision}, before, nil)
}

func removeGroup(ctx context.Context, t *dispatch.Tx, id int64) error {
	// $1 group
	if err := t.Exec(ctx, `DELETE FROM endpoints WHERE group_id = $1`, id); err != nil {
		return err
	}
	if err := removeSecrets(ctx, t, id); err != nil {
		return err
	}
	// $1 now, $2 group. It holds no versions of secrets: nothing is stored.
	const remove = `UPDATE endpoint_groups SET deleted_at = $1, updated_at = $1, left_at = NULL, removal_requested_at = NULL,
		secret_versions = '{}' WHERE id = $2`
	return t.Exec(ctx, remove, t.At.UnixMilli(), id)
}

// groupWithValues returns a copy of a group with the values of its stored secrets that the keys can open; nil if group
// is nil.
func (s *Store) groupWithValues(ctx context.Context, q db.Querier, group *target.EndpointGroup) (*target.EndpointGroup, error) {
	if group == nil {
		return nil, nil
	}
	opened := *group
	owner := ownerGroup(opened)
	if !owner.hasStored() {
		return &opened, nil
	}
	secrets, err := s.openedSecrets(ctx, q, owner.table, []secretOwner{owner})
	opened = target.WithSecrets(opened, secrets[owner.id])
	return &opened, err
}
