package definitions

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Endpoints that a group declares have rows next to those that registered, so that a node reads all with one query, and
// a drain is stored in one place. A heartbeat is one UPDATE: the row contains its lifetime, and a group that no longer
// accepts the endpoint has removed the row.

const endpointColumns = `id, url, weight, backup, labels, source, draining, registered_at, expires_at`

func scanEndpoint(row db.Scanner) (e target.Endpoint, err error) {
	err = row.Scan(&e.ID, &e.URL, &e.Weight, &e.Backup, db.LabelsColumn(&e.Labels), &e.Source, &e.Draining, db.InstantColumn(&e.RegisteredAt),
		db.OptionalColumn(&e.ExpiresAt))
	return e, err
}

// Endpoints returns a page of the endpoints of a group at now, by id.
func (s *Store) Endpoints(ctx context.Context, app, group string, now time.Time, page input.Page) ([]target.Endpoint, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	if _, err := findGroup(ctx, s.db.Read, app, group, ""); err != nil {
		return nil, err
	}
	now, err := s.db.OrClock(ctx, now)
	if err != nil {
		return nil, err
	}
	return liveEndpoints(ctx, s.db.Read, run.GroupID(app, group), now, page)
}

// liveEndpoints returns a page of the endpoints of a group at now, by id.
func liveEndpoints(ctx context.Context, q db.Querier, group int64, now time.Time, page input.Page) ([]target.Endpoint, error) {
	// $1 group, $2 now, $3 last id of the page before, $4 limit
	const list = `SELECT ` + endpointColumns + ` FROM endpoints
		WHERE group_id = $1 AND id > $3 AND (expires_at IS NULL OR expires_at > $2) ORDER BY id LIMIT $4`
	return db.Collect(ctx, q, scanEndpoint, list, group, now.UnixMilli(), page.Cursor, page.Limit)
}

// GroupVersion returns a group with the values of its secrets, and its endpoints at now.
func (s *Store) GroupVersion(ctx context.Context, app, name string, now time.Time) (version target.GroupVersion, err error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	group, err := findGroup(ctx, s.db.Read, app, name, "")
	if err != nil {
		return version, err
	}
	opened, err := s.groupWithValues(ctx, s.db.Read, &group)
	if err == nil {
		version.EndpointGroup = *opened
		now, err = s.db.OrClock(ctx, now)
	}
	if err == nil {
		version.Live, err = liveEndpoints(ctx, s.db.Read, run.GroupID(app, name), now, input.Page{Limit: target.MaxEndpoints})
	}
	return version, err
}

// RegisterEndpoint adds an endpoint to a group, or renews it.
func (s *Store) RegisterEndpoint(ctx context.Context, app, group string, endpoint target.Endpoint,
	change input.Change) (stored target.Endpoint, created bool, err error) {
	endpoint.StaticEndpoint = endpoint.Resolved()
	stored, renewed, err := s.renewEndpoint(ctx, run.GroupID(app, group), endpoint, change.Now)
	if err != nil || renewed {
		return stored, false, err
	}
	if change.Now, err = s.db.OrClock(ctx, change.Now); err != nil {
		return stored, false, err
	}
	stored, before, err := Redefine(ctx, s, change, Redefinition[dispatcher.EndpointBefore, target.EndpointGroup, target.Endpoint]{
		// Registrations of one group queue at its row, so that two cannot both take the last place.
		Load: func(ctx context.Context, from Source) (b dispatcher.EndpointBefore, err error) {
			if b.Group, err = findGroup(ctx, from, app, group, from.Lock); err != nil {
				return b, err
			}
			owner, err := FindApp(ctx, from, app, "")
			if err != nil {
				return b, err
			}
			b.Bounds = owner.Bounds
			// The endpoints that the group has now, without this one. $1 group, $2 id, $3 now
			const count = `SELECT COUNT(*), COUNT(CASE WHEN id = $2 THEN 1 END) > 0 FROM endpoints
				WHERE group_id = $1 AND (expires_at IS NULL OR expires_at > $3)`
			_, err = db.ReadRow(ctx, from, []any{&b.Others, &b.There}, count, run.GroupID(app, group), endpoint.ID, change.Now.UnixMilli())
			if b.There {
				b.Others--
			}
			return b, err
		},
		Decide: func(b dispatcher.EndpointBefore, _ time.Time) (target.EndpointGroup, error) {
			return b.Group, b.Register(endpoint)
		},
		Write: func(ctx context.Context, t *dispatch.Tx, _ dispatcher.EndpointBefore, into target.EndpointGroup) (target.Endpoint, error) {
			stored, err := writeRegistered(ctx, t, into, endpoint)
			if err != nil {
				return stored, fmt.Errorf("register endpoint %s of group %s/%s: %w", endpoint.ID, app, group, err)
			}
			t.Notify(dispatcher.Notification{App: app, Group: group})
			return stored, nil
		},
	})
	return stored, err == nil && !before.There, err
}

// renewEndpoint extends the lifetime of a registered endpoint; renewed is false if no row equals it.
func (s *Store) renewEndpoint(ctx context.Context, group int64, e target.Endpoint,
	now time.Time) (stored target.Endpoint, renewed bool, err error) {
	ctx, cancel := db.Bound(ctx, db.HeartbeatTimeout)
	defer cancel()
	// $1 now, from $2 on: db.IDColumns; then id, url, weight, backup, labels
	args := append([]any{db.OrZero(now)}, s.db.Batch([]int64{group})...)
	add := func(value any) string {
		args = append(args, value)
		return fmt.Sprintf("$%d", len(args))
	}
	renew := s.db.Rows(1, 2, "", db.IDColumns...) + ` UPDATE endpoints SET expires_at = (SELECT now FROM n) + expire_after
		WHERE group_id = (SELECT id FROM b) AND id = ` + add(e.ID) + ` AND source = 'registered' AND expires_at > (SELECT now FROM n)
			AND url = ` + add(e.URL) + ` AND weight = ` + add(e.Weight) + ` AND backup = ` + add(e.Backup) + ` AND labels = ` +
		add(e.Labels.String()) + `
		RETURNING ` + endpointColumns
	return db.First(ctx, s.db.Write, scanEndpoint, renew, args...)
}

// writeRegistered writes the row of a registering endpoint. An expired endpoint begins again, whether it has been
// removed or not.
func writeRegistered(ctx context.Context, t *dispatch.Tx, group target.EndpointGroup, e target.Endpoint) (target.Endpoint, error) {
	// $1 group, $2 id, $3 url, $4 weight, $5 backup, $6 labels, $7 now, $8 milliseconds that it stays
	const put = `INSERT INTO endpoints (group_id, id, url, weight, backup, labels, source, draining, registered_at, expire_after, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, 'registered', FALSE, $7, $8, CAST($7 AS BIGINT) + $8)
		ON CONFLICT (group_id, id) DO UPDATE SET url = excluded.url, weight = excluded.weight, backup = excluded.backup,
			labels = excluded.labels, expire_after = excluded.expire_after, expires_at = excluded.expires_at,
			draining = endpoints.draining AND endpoints.expires_at > $7,
			registered_at = CASE WHEN endpoints.expires_at > $7 THEN endpoints.registered_at ELSE excluded.registered_at END
		RETURNING ` + endpointColumns
	stored, _, err := db.First(ctx, t, scanEndpoint, put, run.GroupID(group.App, group.Name), e.ID, e.URL, e.Weight, e.Backup,
		e.Labels.String(), t.At.UnixMilli(), db.ToMillis(group.Registration.ExpireAfter))
	return stored, err
}

// DeregisterEndpoint removes an endpoint that registered itself.
func (s *Store) DeregisterEndpoint(ctx context.Context, app, group, id string, change input.Change) error {
	return s.dispatch.Change(ctx, change, func(ctx context.Context, t *dispatch.Tx) error {
		// $1 group, $2 id
		const remove = `DELETE FROM endpoints WHERE group_id = $1 AND id = $2 AND source = 'registered'`
		removed, err := db.Affect(ctx, t, remove, run.GroupID(app, group), id)
		if err == nil && removed == 0 {
			err = dispatcher.NotFound("registered endpoint", app+"/"+group+"/"+id)
		}
		if err == nil {
			err = noteLeft(ctx, t, []int64{run.GroupID(app, group)})
		}
		t.Notify(dispatcher.Notification{App: app, Group: group})
		return err
	})
}

// DrainEndpoint sets or lifts an operator's drain of an endpoint.
func (s *Store) DrainEndpoint(ctx context.Context, app, group, id string, draining bool,
	change input.Change) (stored target.Endpoint, err error) {
	err = s.dispatch.Change(ctx, change, func(ctx context.Context, t *dispatch.Tx) error {
		declared, err := findGroup(ctx, t, app, group, "")
		if err != nil {
			return err
		}
		key := run.GroupID(app, group)
		// $1 group, $2 id, $3 now
		const one = `SELECT ` + endpointColumns + ` FROM endpoints WHERE group_id = $1 AND id = $2 AND (expires_at IS NULL OR expires_at > $3)`
		var found bool
		stored, found, err = db.First(ctx, t, scanEndpoint, one+t.ForUpdate(), key, id, t.At.UnixMilli())
		err = db.OrNotFound(found, err, "endpoint", app+"/"+group+"/"+id)
		if err != nil || stored.Draining == draining {
			return err
		}
		// $1 group, $2 id, $3 draining
		const drain = `UPDATE endpoints SET draining = $3 WHERE group_id = $1 AND id = $2`
		if err := t.Exec(ctx, drain, key, id, draining); err != nil {
			return err
		}
		stored.Draining = draining
		t.Notify(dispatcher.Notification{App: app, Group: group})
		action := map[bool]string{true: "drain", false: "resume"}[draining]
		return t.Audit(ctx, action, app, "group "+group+" endpoint "+id, declared.Revision)
	})
	return stored, err
}

// declareEndpoints updates the rows of a group's endpoints: declared endpoints get rows and keep their drain and their
// age; endpoints that the group no longer declares or accepts are removed.
func declareEndpoints(ctx context.Context, t *dispatch.Tx, group target.EndpointGroup) error {
	key := run.GroupID(group.App, group.Name)
	// $1 group
	const all = `SELECT ` + endpointColumns + ` FROM endpoints WHERE group_id = $1 ORDER BY id`
	there, err := db.Collect(ctx, t, scanEndpoint, all+t.ForUpdate(), key)
	if err != nil {
		return err
	}
	registered := 0
	var gone []string
	for _, e := range there {
		switch _, declared := group.Endpoints[e.ID]; {
		case declared:
		case e.Source == target.EndpointRegistered && e.ExpiresAt.After(t.At) && group.Registration != nil &&
			group.Registration.CheckEndpoint(e.StaticEndpoint) == nil:
			registered++
		default:
			gone = append(gone, e.ID)
		}
	}
	if n := len(group.Endpoints); n > 0 && n+registered > target.MaxEndpoints {
		return input.Problems{{Path: "/endpoints", Code: input.CodeTooMany, Message: fmt.Sprintf(
			"group would have %d endpoints with the %d that are registered; the maximum is %d", n+registered, registered, target.MaxEndpoints)}}
	}
	if len(gone) > 0 {
		// $1 group, from $2 on: the ids
		remove := t.Rows(0, 2, "", db.Col("id", db.Text)) + ` DELETE FROM endpoints WHERE group_id = $1 AND id IN (SELECT id FROM b)`
		if err := t.Exec(ctx, remove, append([]any{key}, t.Batch(gone)...)...); err != nil {
			return err
		}
	}
	if err := writeDeclared(ctx, t, key, group.Endpoints); err != nil || group.Registration == nil {
		return err
	}
	// $1 group, $2 milliseconds. What is registered already stays as long as it was to, and then by the new time.
	const lasts = `UPDATE endpoints SET expire_after = $2 WHERE group_id = $1 AND source = 'registered' AND expire_after <> $2`
	return t.Exec(ctx, lasts, key, db.ToMillis(group.Registration.ExpireAfter))
}

// writeDeclared writes the rows of endpoints that a group declares. They replace registered endpoints with the same id.
func writeDeclared(ctx context.Context, t *dispatch.Tx, group int64, endpoints map[string]target.StaticEndpoint) error {
	if len(endpoints) == 0 {
		return nil
	}
	ids := db.SortedKeys(endpoints)
	urls, weights, labels := make([]string, len(ids)), make([]int32, len(ids)), make([]string, len(ids))
	backups := make([]bool, len(ids))
	for i, id := range ids {
		e := endpoints[id]
		urls[i], weights[i], backups[i], labels[i] = e.URL, int32(e.Weight), e.Backup, e.Labels.String()
	}
	// $1 group, $2 now, from $3 on: the columns of b
	put := t.Rows(0, 3, "", db.Col("id", db.Text), db.Col("url", db.Text), db.Col("weight", db.Integer), db.Col("backup", db.Boolean),
		db.Col("labels", db.Text)) + ` INSERT INTO endpoints (group_id, id, url, weight, backup, labels, source, registered_at)
		SELECT $1, b.id, b.url, b.weight, b.backup, b.labels, 'static', $2 FROM b WHERE 1 = 1
		ON CONFLICT (group_id, id) DO UPDATE SET url = excluded.url, weight = excluded.weight, backup = excluded.backup,
			labels = excluded.labels, source = excluded.source, expires_at = NULL, expire_after = 0`
	return t.Exec(ctx, put, append([]any{group, t.At.UnixMilli()}, t.Batch(ids, urls, weights, backups, labels)...)...)
}

// noteLeft notes that registered endpoints of groups expired or left.
func noteLeft(ctx context.Context, t *dispatch.Tx, groups []int64) error {
	// $1 now, from $2 on: the ids
	note := t.Rows(0, 2, "", db.IDColumns...) + ` UPDATE endpoint_groups SET left_at = $1 WHERE id IN (SELECT id FROM b)`
	return t.Exec(ctx, note, append([]any{t.At.UnixMilli()}, t.Batch(groups)...)...)
}

// expiredEndpoint is an endpoint that did not register again in time.
type expiredEndpoint struct {
	group, app int64
	id         string
}

// item names the endpoint if it is set aside.
func (e expiredEndpoint) item() string {
	return "endpoint " + e.id + " of group " + strconv.FormatInt(e.group, 10)
}

// expiredEndpoints selects expired endpoints.
// $1 now, $2 limit
const expiredEndpoints = `SELECT e.group_id, coalesce(g.app_id, 0), e.id
	FROM (SELECT group_id, id FROM endpoints WHERE expires_at <= $1 ORDER BY group_id, id LIMIT $2) AS e
	LEFT JOIN endpoint_groups AS g ON g.id = e.group_id ORDER BY e.group_id, e.id`

// ExpireEndpoints removes endpoints that did not register again in time. One that cannot be removed is set aside. The
// query runs without a transaction because it mostly finds none.
func (s *Store) ExpireEndpoints(ctx context.Context, limit int, now time.Time) (expired int, err error) {
	if now, err = s.db.OrClock(ctx, now); err != nil {
		return 0, err
	}
	most := limit + s.dispatch.Asides.Count(dispatcher.WorkEndpoints)
	found, err := db.ReadRows(ctx, s.db.Read, func(e *expiredEndpoint) []any { return []any{&e.group, &e.app, &e.id} },
		expiredEndpoints, now.UnixMilli(), most)
	if err == nil {
		found = dispatch.WithoutAsides(s.dispatch.Asides, dispatcher.WorkEndpoints, found, expiredEndpoint.item, now)
		err = dispatch.InParts(ctx, s.dispatch.OfStored, found[:min(len(found), limit)], func(part []expiredEndpoint) error {
			removed, err := s.removeExpired(ctx, part, now)
			expired += removed
			return err
		}, func(e expiredEndpoint, why error) error {
			return s.dispatch.SetAside(ctx, dispatch.AsideRow{Work: dispatcher.WorkEndpoints, Item: e.item(), App: e.app}, why, now)
		})
	}
	if err != nil {
		return expired, fmt.Errorf("remove endpoints that expired: %w", err)
	}
	return expired, nil
}

// removeExpired removes endpoints, unless they registered again meanwhile, and returns how many it removed.
func (s *Store) removeExpired(ctx context.Context, endpoints []expiredEndpoint, now time.Time) (removed int, err error) {
	var groups []int64
	var ids []string
	for _, e := range endpoints {
		groups, ids = append(groups, e.group), append(ids, e.id)
	}
	err = s.dispatch.Change(ctx, input.Change{Now: now}, func(ctx context.Context, t *dispatch.Tx) error {
		// $1 now, from $2 on: the endpoints. PostgreSQL looks at the outer condition again after a heartbeat that came first.
		remove := t.Rows(0, 2, "", db.Col("group_id", db.Bigint), db.Col("id", db.Text)) + ` DELETE FROM endpoints
			WHERE expires_at <= $1 AND (group_id, id) IN (SELECT b.group_id, b.id FROM b) RETURNING group_id`
		left, err := db.Collect(ctx, t, db.ScanInt, remove, append([]any{t.At.UnixMilli()}, t.Batch(groups, ids)...)...)
		if removed = len(left); err != nil || removed == 0 {
			return err
		}
		if err := noteLeft(ctx, t, left); err != nil {
			return err
		}
		// From $1 on: the ids
		names := t.Rows(0, 1, "", db.IDColumns...) + ` SELECT DISTINCT a.name, g.name FROM b
			JOIN endpoint_groups AS g ON g.id = b.id JOIN apps AS a ON a.id = g.app_id`
		return db.EachRow(ctx, t, func(row db.Scanner) error {
			var n dispatcher.Notification
			err := row.Scan(&n.App, &n.Group)
			t.Notify(n)
			return err
		}, names, t.Batch(left)...)
	})
	if err != nil {
		return 0, err
	}
	return removed, nil
}
