package store

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// One look by time has all pending ends as long as there are few. Otherwise the apps take turns, so that however many runs of one app
// have ended, what follows the runs of others and their alerts wait for none of them.

// afterColumns are up to which ends of which apps a node has looked.
var afterColumns = []db.Column{db.Col("app", db.Bigint), db.Col("after_end", db.Bigint)}

// freshEnds and triedEnds tell the pending ends e of an app a that are not set aside, and those that were and are tried again.
// $2 lower bound, $3 now
const (
	freshEnds = `e.app_id = a.app AND e.try_at = 0 AND e.ended_at >= a.from_end`
	triedEnds = `e.app_id = a.app AND e.try_at > 0 AND e.try_at <= $3 AND e.ended_at >= $2`
)

// endsByTurns chooses pending ends of each app, of each as many as of any other that has as many, and locks them. The index
// pending_ends_app leads from app to app, and to the first ends of each. Those that were set aside have a share of their own: they
// neither keep back those that ended later, nor wait until all of these are followed.
// $1 limit, $2 lower bound, $3 now, from $4 on: afterColumns
func endsByTurns(f db.Flavor, lock string) string {
	const least = `SELECT min(e.app_id) FROM pending_ends AS e`
	const freshOrder = `e.ended_at, e.trigger_id, e.scheduled_at, e.kind`
	const triedOrder = `e.try_at, ` + freshOrder
	return f.Rows(3, 4, "", afterColumns...) + `, a AS MATERIALIZED (
		SELECT a.app, a.from_end, CASE WHEN count(*) OVER () > $1 THEN 1 ELSE $1 / count(*) OVER () END AS share
		FROM (SELECT a.app, a.from_end, coalesce((SELECT min(e.ended_at) FROM pending_ends AS e WHERE ` + freshEnds + `),
				(SELECT e.ended_at FROM pending_ends AS e WHERE ` + triedEnds + ` ORDER BY ` + triedOrder + ` LIMIT 1)) AS earliest
			FROM (SELECT s.app, coalesce(x.after_end, $2) AS from_end FROM (WITH RECURSIVE s (app) AS (
					` + least + ` UNION ALL SELECT (` + least + ` WHERE e.app_id > s.app) FROM s WHERE s.app IS NOT NULL
				) SELECT s.app FROM s WHERE s.app IS NOT NULL) AS s LEFT JOIN b AS x ON x.app = s.app) AS a) AS a
		WHERE a.earliest IS NOT NULL AND ` + noRollback + ` ORDER BY a.earliest LIMIT $1)
	` + f.EachFirstEnds(freshEnds, freshOrder, lock) + ` UNION ALL ` + f.EachFirstEnds(triedEnds, triedOrder, lock)
}

// endsPage is how a page of pending ends is chosen.
type endsPage struct {
	dispatcher.FollowQuery
	byTurns bool
}

// pageOf returns how a page of the ends of a query is chosen, and whether there is any end for it. A page behind another one, which
// After tells of, goes by turns.
func (s *Store) pageOf(ctx context.Context, query dispatcher.FollowQuery) (page endsPage, found bool, err error) {
	if len(query.After) > 0 {
		return endsPage{query, true}, true, nil
	}
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	ends, _, err := db.First(ctx, s.db.Read, db.ScanInt, mayFollow, db.OrZero(query.From), query.Limit+1)
	return endsPage{query, ends > int64(query.Limit)}, ends > 0, err
}

// read returns the ends of the page at a time. lock is empty, or locks them.
func (p *endsPage) read(ctx context.Context, f db.Flavor, q db.Querier, lock string, now time.Time) ([]pendingEnd, error) {
	query, args := earliestEnds+lock, []any{p.Limit, db.OrZero(p.From), now.UnixMilli()}
	if p.byTurns {
		var app, after []int64
		for _, id := range slices.Sorted(maps.Keys(p.After)) {
			app, after = append(app, id), append(after, p.After[id].UnixMilli())
		}
		query, args = endsByTurns(f, lock), append(args, f.Batch(app, after)...)
	}
	return db.Collect(ctx, q, scanPendingEnd, pendingEnds(query), args...)
}

// more tells whether there may be more ends than those of the page.
func (p *endsPage) more(ends []pendingEnd) bool {
	return p.byTurns && len(ends) > 0 || len(ends) == p.Limit
}

// latestEnds returns when the latest of some ends ended, by app, without those that were set aside before.
func latestEnds(ends []pendingEnd) map[int64]time.Time {
	latest := map[int64]time.Time{}
	for _, e := range ends {
		if e.tryAt == 0 {
			latest[e.appID] = e.endedAt // they are in this order
		}
	}
	return latest
}
