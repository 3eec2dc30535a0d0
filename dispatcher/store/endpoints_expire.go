package store

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// expiredEndpoint is an endpoint that did not register again in time.
type expiredEndpoint struct {
	group, app int64
	id         string
}

// item names the endpoint if it is set aside.
func (e expiredEndpoint) item() string {
	return "endpoint " + e.id + " of group " + strconv.FormatInt(e.group, 10)
}

// expiredEndpoints are those that are to be removed.
// $1 now, $2 limit
const expiredEndpoints = `SELECT e.group_id, coalesce(g.app_id, 0), e.id
	FROM (SELECT group_id, id FROM endpoints WHERE expires_at <= $1 ORDER BY group_id, id LIMIT $2) AS e
	LEFT JOIN endpoint_groups AS g ON g.id = e.group_id ORDER BY e.group_id, e.id`

// ExpireEndpoints removes endpoints that did not register again in time. One that cannot be removed is set aside. Mostly there are
// none, and no transaction is needed to find that out.
func (s *Store) ExpireEndpoints(ctx context.Context, limit int, now time.Time) (expired int, err error) {
	if now, err = s.db.OrClock(ctx, now); err != nil {
		return 0, err
	}
	most := limit + s.asides.count(dispatcher.WorkEndpoints)
	found, err := db.Collect(ctx, s.db.Read, func(row db.Scanner) (e expiredEndpoint, err error) {
		return e, row.Scan(&e.group, &e.app, &e.id)
	}, expiredEndpoints, now.UnixMilli(), most)
	if err == nil {
		found = withoutAsides(s, dispatcher.WorkEndpoints, found, expiredEndpoint.item, now)
		err = inParts(ctx, s, found[:min(len(found), limit)], func(part []expiredEndpoint) error {
			removed, err := s.removeExpired(ctx, part, now)
			expired += removed
			return err
		}, func(e expiredEndpoint, why error) error {
			return s.setAside(ctx, asideRow{work: dispatcher.WorkEndpoints, item: e.item(), app: e.app}, why, now)
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
	err = s.change(ctx, input.Change{Now: now}, func(ctx context.Context, t *tx) error {
		// $1 now, from $2 on: the endpoints. PostgreSQL looks at the outer condition again after a heartbeat that came first.
		remove := t.Rows(0, 2, "", db.Col("group_id", db.Bigint), db.Col("id", db.Text)) + ` DELETE FROM endpoints
			WHERE expires_at <= $1 AND (group_id, id) IN (SELECT b.group_id, b.id FROM b) RETURNING group_id`
		left, err := db.Collect(ctx, t, db.ScanInt, remove, append([]any{t.now.UnixMilli()}, t.Batch(groups, ids)...)...)
		if removed = len(left); err != nil || removed == 0 {
			return err
		}
		if err := noteLeft(ctx, t, left); err != nil {
			return err
		}
		return notifyGroups(ctx, t, left)
	})
	if err != nil {
		return 0, err
	}
	return removed, nil
}
