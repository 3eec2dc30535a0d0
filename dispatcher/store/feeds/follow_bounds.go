package feeds

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/backoff"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/definitions"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Followers of a run take waiting places of their app, and count towards the bounds of their chain from its first run.
// An end without free places is set aside until there are some. A follower beyond the bounds of its chain is not tried
// again: it is recorded as failed, without an attempt, so that users see it and may retry it.

// following has the results of some ends.
type following struct {
	runs    []dispatch.QueuedRun
	refused []unqueuedRun
	aside   []*dispatch.PendingEnd // with the problem
	rooms   map[string]*followRoom
}

// unqueuedRun is a run that was refused.
type unqueuedRun struct {
	dispatch.QueuedRun
	app, why string
	reason   dispatch.SkipReason
}

// followRoom is the remaining room of an app for followers of its runs.
type followRoom struct {
	quotas         target.Quotas
	waiting, added int64
	setAside       int64 // ends; counted if no place is left
	full           bool  // it keeps as many bytes as allowed
}

// roomOf returns the room of an app, which is read once.
func roomOf(ctx context.Context, t *dispatch.Tx, f *following, name string) (*followRoom, error) {
	if room, known := f.rooms[name]; known {
		return room, nil
	}
	app, err := definitions.FindApp(ctx, t, name, "")
	if err != nil {
		return nil, err
	}
	room := &followRoom{quotas: app.Bounds.Quotas}
	if room.waiting, err = definitions.WaitingRunsOf(ctx, t, name, room.quotas.WaitingRuns); err != nil {
		return nil, err
	}
	if room.waiting >= int64(room.quotas.WaitingRuns) {
		// $1 app, $2 limit
		const count = `SELECT COUNT(*) FROM (SELECT 1 FROM pending_ends AS e WHERE e.app_id = $1 AND e.try_at > 0 LIMIT $2) AS aside`
		room.setAside, _, err = db.First(ctx, t, db.ScanInt, count, run.AppID(name), room.quotas.WaitingRuns+1)
		if err != nil {
			return nil, fmt.Errorf("count the ends of app %s that are set aside: %w", name, err)
		}
	}
	kept, err := definitions.BytesKept(ctx, t, name, db.Day(t.At.UnixMilli()))
	room.full = kept >= room.quotas.BytesKept
	f.rooms[name] = room
	return room, err
}

// skip refuses the deliveries to the destinations of deleted alerts, and returns the other runs of the followers.
func (f *following) skip(e *dispatch.PendingEnd, followers []presentFollower, runs []dispatch.QueuedRun) (rest []dispatch.QueuedRun) {
	for i, p := range followers {
		if p.deletedAt == nil {
			rest = append(rest, runs[i])
			continue
		}
		f.refused = append(f.refused, unqueuedRun{QueuedRun: runs[i], app: e.App, reason: dispatch.SkipAlert, why: fmt.Sprintf(
			"alert %s was deleted at %s, and %s of job %s names it; create it again, or take its name out", p.alert,
			input.FormatInstant(*p.deletedAt), e.Event(), e.Job)})
	}
	return rest
}

func (f *following) take(room *followRoom, e *dispatch.PendingEnd, runs []dispatch.QueuedRun, link error) {
	reason := dispatch.SkipChain
	waiting, most := room.waiting+room.added, room.quotas.WaitingRuns
	if link == nil && waiting >= int64(most) && room.setAside > int64(most) { // else it can be set aside, now or later
		link, reason = target.WaitingRunsReached(e.App, waiting, most), dispatch.SkipWaiting
	}
	switch {
	case link != nil:
		for _, run := range runs {
			f.refused = append(f.refused, unqueuedRun{QueuedRun: run, app: e.App, why: "not queued: " + link.Error(), reason: reason})
		}
	case room.waiting+room.added >= int64(room.quotas.WaitingRuns):
		e.Problem = target.WaitingRunsReached(e.App, room.waiting+room.added, room.quotas.WaitingRuns).Message
		f.aside = append(f.aside, e)
		room.setAside++
	default:
		room.added += int64(len(runs))
		f.runs = append(f.runs, runs...)
	}
}

// failRefused inserts refused runs into the history, unless their key exists.
func failRefused(ctx context.Context, t *dispatch.Tx, refused []unqueuedRun) error {
	if len(refused) == 0 {
		return nil
	}
	k, jobs, revisions := db.NewKeys(len(refused)), make([]int64, 0, len(refused)), make([]int64, 0, len(refused))
	var states, classes, why []string
	for _, one := range db.SortedBy(refused, func(r unqueuedRun) run.Key { return r.Key }) {
		state, class := run.Failed, run.ClassBounds
		if one.reason == dispatch.SkipAlert {
			state, class = run.Skipped, ""
		}
		k.Add(one.Key, 0, 0)
		jobs, revisions = append(jobs, one.JobID), append(revisions, one.Revision)
		states, classes, why = append(states, string(state)), append(classes, string(class)), append(why, dispatch.Storable(one.why))
	}
	// $1 now, from $2 on: the runs
	insert := t.Rows(0, 2, "", append(db.KeyColumns[:3:3],
		db.Col("job_id", db.Bigint), db.Col("revision", db.Bigint), db.Col("state", db.Text), db.Col("class", db.Text),
		db.Col("why", db.Text))...) + `
		INSERT INTO runs (scheduled_at, trigger_id, kind, job_id, revision, node, ended_at, attempt, http_status, state, class, error)
		SELECT b.scheduled_at, b.trigger_id, b.kind, b.job_id, b.revision, 0, CAST($1 AS BIGINT), 0, 0, b.state, b.class, b.why FROM b
		WHERE NOT EXISTS (SELECT 1 FROM live_runs AS r WHERE r.scheduled_at = b.scheduled_at AND r.trigger_id = b.trigger_id
			AND r.kind = b.kind) ON CONFLICT DO NOTHING RETURNING scheduled_at, trigger_id, kind`
	added, err := db.Collect(ctx, t, dispatch.ScanRunKey, insert,
		append([]any{t.At.UnixMilli()}, t.Batch(k.At, k.Trigger, k.Kind, jobs, revisions, states, classes, why)...)...)
	if err != nil {
		return fmt.Errorf("record %d runs that were not queued: %w", len(refused), err)
	}
	there := make(map[run.Key]bool, len(added))
	for _, key := range added {
		there[key] = true
	}
	var inputs []dispatch.QueuedRun
	for _, one := range refused {
		if there[one.Key] {
			inputs = append(inputs, one.QueuedRun)
			t.Skipped = append(t.Skipped, dispatch.Skipped{App: one.app, Reason: one.reason})
		}
	}
	return dispatch.WriteInputs(ctx, t, inputs)
}

// placePauses are the pauses before an end without waiting places is tried again.
var placePauses = backoff.Pauses{First: 10 * time.Second, Most: 5 * time.Minute}

// setEndsAside sets aside ends without waiting places. They count as judged, so that no alert waits for them.
func setEndsAside(ctx context.Context, t *dispatch.Tx, ends []*dispatch.PendingEnd) (shown []dispatcher.SetAside, err error) {
	told := map[string]bool{}
	for _, end := range ends {
		end.Judged = true
		if _, err := noteAside(ctx, t, end, placePauses); err != nil {
			return nil, fmt.Errorf("set the end of run %s aside: %w", end.Key, err)
		}
		if !told[end.App] {
			told[end.App] = true
			shown = append(shown, end.SetAside())
		}
	}
	return shown, nil
}

// shardsOfEnds returns how many shards the ended runs had, for jobs that call groups.
func shardsOfEnds(ctx context.Context, t *dispatch.Tx, ends []dispatch.PendingEnd) (map[run.Key]int, error) {
	var keys []run.Key
	for _, e := range ends {
		if e.Group && e.Key.Kind != "" && e.Follows != 0 {
			keys = append(keys, e.Key)
		}
	}
	shards := map[run.Key]int{}
	for _, key := range keys {
		endpoints, _, err := dispatch.EndpointsOf(ctx, t, key)
		if err != nil {
			return nil, err
		}
		shards[key] = len(endpoints)
	}
	return shards, nil
}

func (f *following) without(ends []dispatch.PendingEnd) []dispatch.PendingEnd {
	if len(f.aside) == 0 {
		return ends
	}
	aside := make(map[*dispatch.PendingEnd]bool, len(f.aside))
	for _, e := range f.aside {
		aside[e] = true
	}
	var rest []dispatch.PendingEnd
	for i := range ends {
		if !aside[&ends[i]] {
			rest = append(rest, ends[i])
		}
	}
	return rest
}

// One query by time reads all pending ends while they are few. Otherwise the apps take turns, so that followers and
// alerts of one app do not wait for another, however many of its runs have ended.

// afterColumns are the positions up to which a node has read the ends of apps.
var afterColumns = []db.Column{db.Col("app", db.Bigint), db.Col("after_end", db.Bigint)}

// freshEnds and triedEnds select the pending ends e of an app a that are not set aside, and those to be tried again.
// $2 lower bound, $3 now
const (
	freshEnds = `e.app_id = a.app AND e.try_at = 0 AND e.ended_at >= a.from_end`
	triedEnds = `e.app_id = a.app AND e.try_at > 0 AND e.try_at <= $3 AND e.ended_at >= $2`
)

// endsByTurns chooses pending ends of all apps in equal shares, and locks them. The index
// pending_ends_app leads from app to app, and to the first ends of each. Ends that were set aside have their own share:
// they neither delay later ends nor wait until all of these are followed.
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
		WHERE a.earliest IS NOT NULL AND ` + dispatch.NoRollback + ` ORDER BY a.earliest LIMIT $1)
	` + f.EachFirstEnds(freshEnds, freshOrder, lock) + ` UNION ALL ` + f.EachFirstEnds(triedEnds, triedOrder, lock)
}

// endsPage is a query for a page of pending ends.
type endsPage struct {
	dispatcher.FollowQuery
	byTurns bool
}

// pageOf returns the query for a page of ends, and whether there are any ends for it. A page after another one, given
// by After, takes turns.
func (s *Store) pageOf(ctx context.Context, query dispatcher.FollowQuery) (page endsPage, found bool, err error) {
	if len(query.After) > 0 {
		return endsPage{query, true}, true, nil
	}
	ends, _, err := db.First(ctx, s.db.Read, db.ScanInt, mayFollow, db.OrZero(query.From), query.Limit+1)
	return endsPage{query, ends > int64(query.Limit)}, ends > 0, err
}

// read returns the ends of the page at a time. lock is empty, or locks them.
func (p *endsPage) read(ctx context.Context, f db.Flavor, q db.Querier, lock string, now time.Time) ([]dispatch.PendingEnd, error) {
	query, args := earliestEnds+lock, []any{p.Limit, db.OrZero(p.From), now.UnixMilli()}
	if p.byTurns {
		var app, after []int64
		for _, id := range slices.Sorted(maps.Keys(p.After)) {
			app, after = append(app, id), append(after, p.After[id].UnixMilli())
		}
		query, args = endsByTurns(f, lock), append(args, f.Batch(app, after)...)
	}
	return db.Collect(ctx, q, dispatch.ScanPendingEnd, dispatch.PendingEnds(query), args...)
}

// more reports whether there may be more ends than those of the page.
func (p *endsPage) more(ends []dispatch.PendingEnd) bool {
	return p.byTurns && len(ends) > 0 || len(ends) == p.Limit
}

// latestEnds returns the latest end of each app, without those that were set aside before.
func latestEnds(ends []dispatch.PendingEnd) map[int64]time.Time {
	latest := map[int64]time.Time{}
	for _, e := range ends {
		if e.TryAt == 0 {
			latest[e.AppID] = e.EndedAt // they are in this order
		}
	}
	return latest
}

// An end that cannot be followed, because of its stored data, its job or an alert, must not block all later ends. So
// the ends of a failed page are followed one by one, and an end that fails alone is set aside until it is tried again.

// followSingly follows each end of a page in its own transaction.
func (s *Store) followSingly(ctx context.Context, page *endsPage) (all dispatcher.FollowedEnds, err error) {
	now := page.Now
	if now.IsZero() {
		if now, err = s.db.Now(ctx, s.db.Read); err != nil {
			return all, err
		}
	}
	ends, err := page.read(ctx, s.db.Flavor, s.db.Read, "", now)
	if err != nil {
		return all, err
	}
	all.More, all.Latest = page.more(ends), latestEnds(ends)
	for _, end := range ends {
		one, err := s.followOne(ctx, &end, page.Now)
		if err != nil && !s.dispatch.OfStored(ctx, err) {
			return all, err
		}
		if err != nil {
			if one.SetAside, err = s.setEndAside(ctx, &end, err, page.Now); err != nil {
				return all, err
			}
		}
		all.Ends, all.Queued = all.Ends+one.Ends, all.Queued+one.Queued
		all.SetAside = append(all.SetAside, one.SetAside...)
	}
	return all, nil
}

// followOne follows an end, unless another node has followed it or is doing so.
func (s *Store) followOne(ctx context.Context, end *dispatch.PendingEnd, now time.Time) (done dispatcher.FollowedEnds, err error) {
	err = s.dispatch.Change(ctx, input.Change{Now: now}, func(ctx context.Context, t *dispatch.Tx) error {
		ends, err := db.Collect(ctx, t, dispatch.ScanPendingEnd, dispatch.PendingEnds(oneEnd+t.LockRows(db.LockToDelete+db.SkipLockedRows)),
			end.KeyArgs()...)
		if err == nil {
			done, err = s.followEnds(ctx, t, ends)
		}
		return err
	})
	if err != nil {
		return dispatcher.FollowedEnds{}, err
	}
	return done, nil
}

// setEndAside sets aside an end that could not be followed; none: another node has followed it meanwhile.
func (s *Store) setEndAside(ctx context.Context, end *dispatch.PendingEnd, why error, now time.Time) (aside []dispatcher.SetAside,
	err error) {
	end.Problem = dispatch.ProblemOf(why)
	tries := end.Tries
	err = s.dispatch.Change(ctx, input.Change{Now: now}, func(ctx context.Context, t *dispatch.Tx) error {
		aside, end.Tries = nil, tries
		there, err := noteAside(ctx, t, end, dispatch.AsidePauses)
		if there {
			aside = append(aside, end.SetAside())
		}
		return err
	})
	for _, one := range aside {
		s.dispatch.Asides.Report(ctx, one)
	}
	return aside, err
}

// noteAside notes that an end is set aside with its problem, and reports whether it is still pending.
func noteAside(ctx context.Context, t *dispatch.Tx, end *dispatch.PendingEnd, pauses backoff.Pauses) (bool, error) {
	end.Tries++
	end.TryAt = t.At.Add(pauses.After(end.Tries)).UnixMilli()
	// $1 to $4: the key, $5 tries, $6 when it is tried again, $7 problem, $8 whether alerts have had it
	const note = `UPDATE pending_ends SET tries = $5, try_at = $6, problem = $7, judged = $8
		WHERE ended_at = $1 AND trigger_id = $2 AND scheduled_at = $3 AND kind = $4`
	n, err := t.Affect(ctx, note, append(end.KeyArgs(), end.Tries, end.TryAt, end.Problem, end.Judged)...)
	return n > 0, err
}
