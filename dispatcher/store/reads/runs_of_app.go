package reads

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

// The history has no index of apps: it would cost each fire an entry, only for one list. The runs of an app are found
// job by job, in a span of time that begins short and ends with the page: so the list reads about as many rows as it
// shows, and searches the index of a day once for each job that the app has or had. Runs of other apps in the same days
// cost nothing.

const (
	// firstSpan is the span of the first search, and each search goes spanGrowth times as far back as all before it:
	// for a steady app a list reads at most that many times what it needs. A search looks into the index once for each
	// job, so for an app with many jobs few searches matter more than few rows.
	firstSpan  = time.Minute
	spanGrowth = 16
	// lastSpan exceeds the longest possible retention: a search that far back has no lower bound.
	lastSpan = 15 * 365 * 24 * time.Hour
)

// runsOfApp returns a page of the runs of all jobs of an app. For states of unfinished runs it does not read the
// history; runs that failed permanently have their own index.
func (s *Store) runsOfApp(ctx context.Context, query dispatcher.RunQuery, of db.Conditions) ([]run.Run, error) {
	app := run.AppID(query.App)
	if slices.Contains(repeat.DeadLetterStates, query.State) {
		return s.deadOfApp(ctx, query, of, 0, false)
	}
	claimed, err := s.ClaimedNow(ctx)
	if err != nil {
		return nil, err
	}
	many, err := s.HasManyJobs(ctx, app, s.Walks.Jobs)
	if err != nil {
		return nil, err
	}
	if slices.Contains(dispatcher.LiveStates, query.State) {
		list, args := UnendedOfApp(of, claimed, app, many, latestRuns+` LIMIT `+strconv.Itoa(query.Page.Limit))
		return db.Collect(ctx, s.db.Read, scanRun, RunQuery(list), args...)
	}
	look := func(w db.Conditions, most int) ([]run.Run, error) {
		list, args := s.JobsQuery(w, claimed, app, many, most)
		return db.Collect(ctx, s.db.Read, scanRun, list, args...)
	}
	var found walked
	if many {
		if found, err = s.walkRuns(ctx, query, of, claimed); err != nil {
			return nil, err
		}
	}
	return s.lookBack(ctx, query, of, found, look)
}

// addApp adds the condition that a run r, one of few unfinished ones, belongs to an app. For an app with many jobs it
// is checked row by row: otherwise SQLite would search for runs of each job.
func addApp(w *db.Conditions, app int64, many bool) {
	if many {
		w.Add(ofAppID, app)
	} else {
		w.Add("r.job_id IN (SELECT id FROM jobs WHERE app_id = %s)", app)
	}
}

// UnendedOfApp is a query for the unfinished runs of an app that meet conditions. limit orders and limits them.
func UnendedOfApp(w db.Conditions, claimed string, app int64, many bool, limit string) (query string, args []any) {
	addApp(&w, app, many)
	of := func(runs string) string { return `SELECT * FROM (` + runs + `) AS r WHERE 1 = 1` + w.Text + limit }
	return `SELECT * FROM (SELECT * FROM (` + of(db.UnendedRuns) + `) AS live UNION ALL SELECT * FROM (` + of(claimed) + `) AS claimed) AS r` +
		limit, w.Args
}

// look finds runs of an app, job by job, that meet conditions, latest first and at most so many.
type look func(w db.Conditions, most int) ([]run.Run, error)

// lookBack returns a page of the runs of an app: those that a walk found, then those of look, in growing spans of time.
func (s *Store) lookBack(ctx context.Context, query dispatcher.RunQuery, of db.Conditions, found walked, look look) ([]run.Run, error) {
	page, span := found.runs, cmp.Or(found.span, firstSpan)
	if found.all || len(page) == query.Page.Limit {
		return page, nil
	}
	if found.rest != nil {
		of.Add("r.scheduled_at < %s", *found.rest)
		query.To = db.Instant(*found.rest - 1)
	}
	latest, err := s.latestInstant(ctx, query)
	if err != nil {
		return nil, err
	}
	for before := time.Duration(0); ; before, span = span, span*spanGrowth {
		w, from := of, latest.Add(-span)
		if before > 0 {
			w.Add("r.scheduled_at < %s", latest.Add(-before).UnixMilli())
		}
		last := span >= lastSpan || from.Before(query.From)
		if !last {
			w.Add("r.scheduled_at >= %s", from.UnixMilli())
		}
		further, err := look(w, query.Page.Limit-len(page))
		if err != nil {
			return nil, fmt.Errorf("look for runs of app %s, of which %d are found, back to %s; name a job, or an earlier time "+
				"to look back from: %w", input.Echo(query.App), len(page)-len(found.runs), input.FormatInstant(from), err)
		}
		page = append(page, further...)
		if last || len(page) == query.Page.Limit {
			return page, nil
		}
	}
}

// latestInstant returns where a list starts to look back. Later scheduled runs belong to the first search, too.
func (s *Store) latestInstant(ctx context.Context, query dispatcher.RunQuery) (time.Time, error) {
	latest, err := s.db.Now(ctx, s.db.Read)
	if err != nil {
		return latest, err
	}
	if !query.To.IsZero() && query.To.Before(latest) {
		latest = query.To
	}
	if query.Page.Cursor != "" {
		if key, err := run.ParseKey(query.Page.Cursor); err == nil && key.ScheduledAt.Before(latest) {
			latest = key.ScheduledAt
		}
	}
	return latest, nil
}

// ofJobs begins a query with the ids of the jobs j that meet a condition as b. PostgreSQL expects few of them, so it
// searches an index for each and never reads the history of all.
func (s *Store) ofJobs(condition string) string {
	return `WITH b AS MATERIALIZED (SELECT j.id FROM jobs AS j WHERE ` + condition + s.db.SeemingFew(`j.id`) + ` ORDER BY j.id)`
}

// JobsQuery returns a query for the latest runs of an app, job by job, that meet conditions, and its parameters.
func (s *Store) JobsQuery(w db.Conditions, claimed string, app int64, many bool, most int) (string, []any) {
	ofApp := w
	addApp(&ofApp, app, many)
	limit := latestRuns + ` LIMIT ` + strconv.Itoa(most)
	ended := s.ofJobs(`j.app_id = $`+strconv.Itoa(len(ofApp.Args))) + s.db.EndedOfEach(w.Text, limit)
	return RunQuery(unionOfRuns(ended, claimed, ofApp.Text, limit)), ofApp.Args
}

// Fires returns the scheduled runs of a job between two instants, for verify.
func (s *Store) Fires(ctx context.Context, job int64, from, to time.Time, limit int) ([]run.Key, error) {
	// $1 job, $2 from, $3 to
	const of = ` AS r WHERE r.job_id = $1 AND r.scheduled_at >= $2 AND r.scheduled_at <= $3 AND r.kind = 1`
	first := ` ORDER BY r.scheduled_at, r.trigger_id LIMIT ` + strconv.Itoa(limit)
	claimed, err := s.ClaimedNow(ctx)
	if err != nil {
		return nil, err
	}
	var list string
	for i, runs := range []string{db.EndedRuns, db.UnendedRuns, claimed} {
		if i > 0 {
			list += ` UNION ALL `
		}
		list += `SELECT * FROM (SELECT r.scheduled_at, r.trigger_id FROM (` + runs + `)` + of + first + `) AS part` + strconv.Itoa(i)
	}
	return db.Collect(ctx, s.db.Read, func(row db.Scanner) (run.Key, error) {
		key := run.Key{Kind: run.KindSchedule}
		err := row.Scan(db.InstantColumn(&key.ScheduledAt), &key.TriggerID)
		return key, err
	}, `SELECT * FROM (`+list+`) AS r`+first, job, from.UnixMilli(), to.UnixMilli())
}

// The reads for a strip. The history has no index of triggers: the latest fires of a trigger are searched among a
// bounded number of the latest runs of its job, and all others are looked up by their keys.

// lookedThrough is how many runs of a job are searched for those of one trigger.
const lookedThrough = 2000

// LatestFires returns the scheduled times of a trigger's runs among the latest runs of its job, latest first.
func (s *Store) LatestFires(ctx context.Context, job, trigger int64, from, to time.Time, limit int) ([]time.Time, error) {
	// $1 job, $2 trigger, $3 from, $4 to
	const (
		within = ` r.job_id = $1 AND r.scheduled_at >= $3 AND r.scheduled_at <= $4`
		fires  = ` AS r WHERE r.trigger_id = $2 AND r.kind = 1`
	)
	look := ` ORDER BY r.scheduled_at DESC LIMIT ` + strconv.Itoa(lookedThrough)
	ended := `SELECT r.scheduled_at, r.trigger_id, r.kind FROM runs AS r WHERE` + within + look
	live := `SELECT r.scheduled_at, r.trigger_id, r.kind FROM live_runs AS r WHERE r.job_id = $1 AND r.scheduled_at + 0 >= $3
		AND r.scheduled_at + 0 <= $4 ORDER BY r.scheduled_at + 0 DESC LIMIT ` + strconv.Itoa(lookedThrough)
	claimed := `SELECT f.scheduled_at FROM (` + s.db.ClaimedFires() + `) AS f WHERE f.job_id = $1 AND f.trigger_id = $2
		AND f.scheduled_at >= $3 AND f.scheduled_at <= $4`
	list := `SELECT r.scheduled_at FROM (SELECT r.scheduled_at FROM (` + ended + `)` + fires +
		` UNION SELECT r.scheduled_at FROM (` + live + `)` + fires + ` UNION ` + claimed + `) AS r ORDER BY r.scheduled_at DESC LIMIT ` +
		strconv.Itoa(limit)
	return db.ReadRows(ctx, s.db.Read, func(at *time.Time) []any { return []any{db.InstantColumn(at)} },
		list, job, trigger, from.UnixMilli(), to.UnixMilli())
}

// RunsAt returns the runs of some keys, latest first. It leaves out missing ones.
func (s *Store) RunsAt(ctx context.Context, keys []run.Key) ([]run.Run, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	claimed, err := s.ClaimedNow(ctx)
	if err != nil {
		return nil, err
	}
	const is = ` AS r WHERE (r.scheduled_at, r.trigger_id, r.kind) IN (SELECT b.scheduled_at, b.trigger_id, b.kind FROM b)`
	picked := s.endedOfKeys() + ` UNION ALL SELECT r.* FROM b CROSS JOIN (` + db.UnendedRuns +
		`) AS r WHERE ` + sameKey + ` UNION ALL SELECT * FROM (` + claimed + `)` + is
	runs, err := db.Collect(ctx, s.db.Read, scanRun, RunQuery(picked), s.keysBatch(keys)...)
	if err == nil {
		err = dispatch.AddFirstStarts(ctx, s.db.Flavor, s.db.Read, runs)
	}
	return runs, err
}

// sameKey is the condition that a run r has a key b.
const sameKey = `r.scheduled_at = b.scheduled_at AND r.trigger_id = b.trigger_id AND r.kind = b.kind`

// endedOfKeys begins a query with the keys of keysBatch as b, and selects their ended runs. PostgreSQL plans only for
// the days between the first and the last of them.
func (s *Store) endedOfKeys() string {
	// $1 first, $2 last instant, $3 on: the keys
	return s.db.Rows(0, 3, "", db.FireKeyColumns...) + s.db.EndedOfEachKey(`r.scheduled_at >= $1 AND r.scheduled_at <= $2 AND `+sameKey)
}

// keysBatch returns the parameters of endedOfKeys, for at least one key.
func (s *Store) keysBatch(keys []run.Key) []any {
	var at, trigger, kind []int64
	for _, key := range keys {
		at, trigger, kind = append(at, key.ScheduledAt.UnixMilli()), append(trigger, key.TriggerID), append(kind, int64(key.Code()))
	}
	return append([]any{slices.Min(at), slices.Max(at)}, s.db.Batch(at, trigger, kind)...)
}

// misfireQuery completes a query for rows of misfires for scanMisfire.
func misfireQuery(picked string) string {
	return `SELECT a.name, j.name, t.name, m.job_id, m.trigger_id, m.from_at, m.to_at, m.count, m.decision, m.reason, m.catch_up,
		m.node, m.decided_at
		FROM (` + picked + `) AS m JOIN jobs AS j ON j.id = m.job_id JOIN apps AS a ON a.id = j.app_id
		JOIN triggers AS t ON t.id = m.trigger_id`
}

// triggerThere is the condition that the trigger of a misfire r is not yet purged. Others have no name to show.
const triggerThere = `EXISTS (SELECT 1 FROM triggers AS t WHERE t.id = r.trigger_id)`

func scanMisfire(row db.Scanner) (dispatcher.Misfire, error) {
	var m dispatcher.Misfire
	var catchUp *time.Time
	var node run.NodeID
	err := row.Scan(&m.App, &m.Job, &m.Trigger, &m.JobID, &m.TriggerID, db.InstantColumn(&m.From), db.InstantColumn(&m.To), &m.Count,
		&m.Decision, &m.Reason, db.OptionalColumn(&catchUp), &node, db.InstantColumn(&m.DecidedAt))
	if catchUp != nil {
		m.Run = run.Key{TriggerID: m.TriggerID, ScheduledAt: *catchUp, Kind: run.KindCatchUp}.String()
	}
	if node != 0 {
		m.Node = &node
	}
	return m, err
}

// Misfires returns a page of the decisions about missed fires, latest first.
func (s *Store) Misfires(ctx context.Context, query dispatcher.RunQuery) ([]dispatcher.Misfire, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	of, err := s.IDsOf(ctx, query.App, query.Job, query.Trigger)
	if err != nil {
		return nil, err
	}
	w, err := misfireConditions(query)
	if err != nil {
		return nil, err
	}
	if query.Job != "" {
		w.Add("r.job_id = %s", of.Job)
	}
	if query.Trigger != "" {
		w.Add("r.trigger_id = %s", of.trigger)
	}
	if query.App != "" && query.Job == "" {
		return s.misfiresOfApp(ctx, query, w)
	}
	return s.latestMisfires(ctx, w, query.Page.Limit)
}

// misfireConditions returns the conditions of a query except app and job.
func misfireConditions(query dispatcher.RunQuery) (w db.Conditions, err error) {
	w.Add("r.from_at >= %s", int64(math.MinInt64)) // for db.LatestOfEach
	if !query.From.IsZero() {
		w.Add("r.to_at >= %s", query.From.UnixMilli())
	}
	if !query.To.IsZero() {
		w.Add("r.from_at <= %s", query.To.UnixMilli())
	}
	if query.Page.Cursor != "" {
		key, err := run.ParseKey(query.Page.Cursor)
		if err != nil {
			return w, fmt.Errorf("cursor %s: %w", input.Echo(query.Page.Cursor), err)
		}
		w.Add("(r.from_at, r.trigger_id) < (%s, %s)", key.ScheduledAt.UnixMilli(), key.TriggerID)
	}
	return w, nil
}

// latestFirst orders misfires r like lists, limited to a page.
func latestFirst(limit int) string {
	return ` ORDER BY r.from_at DESC, r.trigger_id DESC LIMIT ` + strconv.Itoa(limit)
}

func (s *Store) latestMisfires(ctx context.Context, w db.Conditions, limit int) ([]dispatcher.Misfire, error) {
	picked := `SELECT r.* FROM misfires AS r WHERE ` + triggerThere + w.Text + latestFirst(limit)
	return db.Collect(ctx, s.db.Read, scanMisfire, misfireQuery(picked)+` ORDER BY m.from_at DESC, m.trigger_id DESC`, w.Args...)
}

// misfiresOfApp returns the latest misfires of an app. Like the lists of runs, it walks through the misfires of all
// apps if the app has many jobs, and reads earlier ones job by job.
func (s *Store) misfiresOfApp(ctx context.Context, query dispatcher.RunQuery, w db.Conditions) ([]dispatcher.Misfire, error) {
	app := run.AppID(query.App)
	many, err := s.HasManyJobs(ctx, app, s.Walks.Jobs)
	if err != nil {
		return nil, err
	}
	if !many {
		return s.misfiresOfJobs(ctx, app, w, query.Page.Limit)
	}
	end, err := s.walkEnd(ctx, w, s.Walks.Rows, `r.from_at`, `misfires AS r WHERE 1 = 1`)
	if err != nil {
		return nil, err
	}
	past := w
	if end != nil {
		past.Add("r.from_at >= %s", *end)
	}
	past.Add(ofAppID, app)
	page, err := s.latestMisfires(ctx, past, query.Page.Limit)
	if err != nil || end == nil || len(page) == query.Page.Limit {
		return page, err
	}
	w.Add("r.from_at < %s", *end)
	further, err := s.misfiresOfJobs(ctx, app, w, query.Page.Limit-len(page))
	return append(page, further...), err
}

func (s *Store) misfiresOfJobs(ctx context.Context, app int64, of db.Conditions, limit int) ([]dispatcher.Misfire, error) {
	// $1 app
	jobs, err := db.Collect(ctx, s.db.Read, db.ScanInt, `SELECT id FROM jobs WHERE app_id = $1 ORDER BY id`, app)
	if err != nil || len(jobs) == 0 {
		return nil, err
	}
	picked := s.db.Rows(0, len(of.Args)+1, "", db.IDColumns...) + ` SELECT r.* FROM (` +
		s.db.LatestOfEach(`r.*`, `misfires`, `r.from_at`, triggerThere+of.Text, limit) + `) AS r` + latestFirst(limit)
	return db.Collect(ctx, s.db.Read, scanMisfire, misfireQuery(picked)+` ORDER BY m.from_at DESC, m.trigger_id DESC`,
		append(of.Args[:len(of.Args):len(of.Args)], s.db.Batch(jobs)...)...)
}
