package reads

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/definitions"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

// ClaimedNow is dispatch.ClaimedRuns for the days of the currently claimed fires. It leaves out fires of other days
// that are claimed later, as if the list had been read before.
func (s *Store) ClaimedNow(ctx context.Context) (string, error) {
	span := `SELECT min(f.scheduled_at), max(f.scheduled_at) FROM (` + s.db.ClaimedFires() + `) AS f`
	var first, last *int64
	if _, err := db.ReadRow(ctx, s.db.Read, []any{&first, &last}, span); err != nil {
		return "", err
	}
	from, to := int64(0), int64(0)
	if first != nil {
		from, to = db.Day(*first), db.Day(*last)+db.DayMillis
	}
	within := func(name string) string {
		return fmt.Sprintf(` AND %s.scheduled_at >= %d AND %[1]s.scheduled_at < %[3]d`, name, from, to)
	}
	return dispatch.ClaimedRuns(s.db.Flavor, within("f"), within("o")), nil
}

// latestRuns orders runs, the latest scheduled first.
const latestRuns = ` ORDER BY r.scheduled_at DESC, r.trigger_id DESC, r.kind DESC`

// RunQuery completes a query for rows of runs, named r, with the names of the runs.
func RunQuery(picked string) string {
	return `SELECT CASE WHEN a.installation <> '' THEN a.installation ELSE i.id END, a.salt, a.name, j.name, coalesce(t.name, ''),
			coalesce(nullif(j.origin, ''), j.name), coalesce(nullif(t.origin, ''), t.name, ''), r.scheduled_at, r.trigger_id,
			r.kind, abs(r.revision), r.state, r.attempt, r.node, r.claimed_at, r.started_at, r.ended_at,
			r.next_attempt_at, r.http_status, r.class, r.error, r.waits_for,
			r.waits_at, r.probe_at, r.callback, r.waited,
			CASE WHEN a.enabled OR r.ended_at IS NOT NULL OR a.deleted_at IS NOT NULL THEN '' ELSE a.bounds END, m.from_at, m.to_at, m.count
		FROM (` + picked + `) AS r
		JOIN jobs AS j ON j.id = r.job_id JOIN apps AS a ON a.id = j.app_id LEFT JOIN triggers AS t ON t.id = r.trigger_id
		LEFT JOIN misfires AS m ON m.job_id = CASE WHEN r.kind % 16 = 3 THEN r.job_id END AND m.from_at <= r.scheduled_at
			AND m.trigger_id = r.trigger_id AND m.catch_up = r.scheduled_at
		CROSS JOIN installation AS i` + latestRuns
}

func scanRun(row db.Scanner) (run.Run, error) {
	var r run.Run
	var of run.Origin
	var salt run.Salt
	var key run.Key
	var node run.NodeID
	var from, to, missed *int64
	var held string
	var callback *string
	err := row.Scan(&of.Installation, &salt, &r.App, &r.Job, &r.Trigger, &of.Job, &of.Trigger, db.InstantColumn(&key.ScheduledAt),
		&key.TriggerID, db.KindColumn(&key), &r.Revision, &r.State, &r.Attempt, &node, db.OptionalColumn(&r.ClaimedAt),
		db.OptionalColumn(&r.StartedAt), db.OptionalColumn(&r.EndedAt), db.OptionalColumn(&r.NextAttemptAt), &r.HTTPStatus,
		&r.Class, &r.Error, &r.WaitsFor, &r.WaitsForEndpoint, db.OptionalColumn(&r.ProbeAt), &callback, &r.Waited, &held, &from, &to, &missed)
	if err != nil {
		return r, err
	}
	r.ID, r.Kind, r.ScheduledAt = key.String(), key.Kind, key.ScheduledAt
	of.App = r.App
	r.EventID = key.EventOf(salt.EventID(of, r.ScheduledAt, r.Kind))
	r.TraceID = run.TraceOf(of.Installation, r.ID).String()
	if key.Shard > 0 {
		r.Parent, r.Shard = key.Parent().String(), &run.Shard{Index: key.Shard - 1}
	}
	if held != "" && (r.State == run.Queued || r.State == run.Retrying) {
		r.Held = "app " + r.App + " is disabled"
		// An app with unreadable bounds hides no run.
		if bounds, err := definitions.ReadBounds(r.App, held, ""); err == nil && bounds.Suspended {
			r.Held = access.App{Name: r.App, AppSpec: access.AppSpec{Bounds: bounds}}.SuspendedMessage()
		}
	}
	if r.State == run.WaitingCallback && callback != nil {
		showCallback(&r, *callback)
	}
	showNode(&r, node)
	if from != nil && to != nil && missed != nil {
		r.Missed = &run.MissedRange{From: db.Instant(*from), To: db.Instant(*to), Count: int(*missed)}
	}
	return r, nil
}

// Runs returns a page of the latest runs, with the starts of their first attempts.
func (s *Store) Runs(ctx context.Context, query dispatcher.RunQuery) ([]run.Run, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	runs, err := s.latestRuns(ctx, query)
	if err == nil {
		err = dispatch.AddFirstStarts(ctx, s.db.Flavor, s.db.Read, runs)
	}
	return runs, err
}

// latestRuns reads the runs of a job or trigger by its job, and those of all apps by the primary key, backwards.
func (s *Store) latestRuns(ctx context.Context, query dispatcher.RunQuery) ([]run.Run, error) {
	of, err := s.IDsOf(ctx, query.App, query.Job, query.Trigger)
	if err != nil {
		return nil, err
	}
	w, err := RunConditions(query, of.trigger)
	if err != nil {
		return nil, err
	}
	switch {
	case query.Job != "":
		w.Add("r.job_id = %s", of.Job)
	case query.Parent != "" && query.App != "":
		w.Add("r.job_id IN (SELECT id FROM jobs WHERE app_id = %s)", run.AppID(query.App))
	case query.App != "":
		return s.runsOfApp(ctx, query, w)
	}
	limit := latestRuns + ` LIMIT ` + strconv.Itoa(query.Page.Limit)
	claimed, err := s.ClaimedNow(ctx)
	if err != nil {
		return nil, err
	}
	page := unionOfRuns(`SELECT * FROM (`+db.EndedRuns+`) AS r WHERE 1 = 1`+w.Text+limit, claimed, w.Text, limit)
	runs, err := db.Collect(ctx, s.db.Read, scanRun, RunQuery(page), w.Args...)
	if err == nil && query.Parent != "" {
		err = dispatch.AddEndpoints(ctx, s.db.Read, query.Parent, runs)
	}
	return runs, err
}

// unionOfRuns adds the other runs that meet conditions to a query for ended runs. limit orders and limits each of the
// three parts and the whole.
func unionOfRuns(ended, claimed, conditions, limit string) string {
	return `SELECT * FROM (
		SELECT * FROM (` + ended + `) AS ended UNION ALL
		SELECT * FROM (SELECT * FROM (` + db.UnendedRuns + `) AS r WHERE 1 = 1` + conditions + limit + `) AS live UNION ALL
		SELECT * FROM (SELECT * FROM (` + claimed + `) AS r WHERE 1 = 1` + conditions + limit + `) AS claimed
		) AS r` + limit
}

// RunConditions returns the conditions of a query except app and job. trigger is the key of its trigger.
func RunConditions(query dispatcher.RunQuery, trigger int64) (w db.Conditions, err error) {
	if query.Parent == "" {
		w.Text = " AND r.kind < 16" // no shards
	} else {
		of, err := run.ParseKey(query.Parent)
		if err != nil || of.Shard > 0 {
			return w, dispatcher.NotFound("run", query.Parent)
		}
		w.Add("r.scheduled_at = %s AND r.trigger_id = %s AND r.kind > %s AND r.kind %% 16 = %s", of.ScheduledAt.UnixMilli(), of.TriggerID,
			int64(of.Code()), int64(of.Code()))
	}
	if !query.From.IsZero() {
		w.Add("r.scheduled_at >= %s", query.From.UnixMilli())
	}
	if !query.To.IsZero() {
		w.Add("r.scheduled_at <= %s", query.To.UnixMilli())
	}
	if query.State != "" {
		w.Add("r.state = %s", string(query.State))
	}
	if query.Trigger != "" {
		w.Add("r.trigger_id = %s", trigger)
	}
	if query.Page.Cursor != "" {
		key, err := run.ParseKey(query.Page.Cursor)
		if err != nil {
			return w, fmt.Errorf("cursor %s: %w", input.Echo(query.Page.Cursor), err)
		}
		// The first condition is redundant, and lets PostgreSQL skip later days.
		w.Add("r.scheduled_at <= %s AND (r.scheduled_at, r.trigger_id, r.kind) < (%s, %s, %s)", key.ScheduledAt.UnixMilli(),
			key.ScheduledAt.UnixMilli(), key.TriggerID, int64(key.Code()))
	}
	return w, nil
}

// NamedIDs are the ids of the job and trigger named in a query; 0: none is named.
type NamedIDs struct{ Job, trigger int64 }

// IDsOf returns the ids for names, or ErrNotFound if a non-empty name never existed. Deleted ones keep their names
// until they are purged.
func (s *Store) IDsOf(ctx context.Context, app, job, trigger string) (of NamedIDs, err error) {
	if app == "" {
		return of, nil
	}
	if job != "" { // its app exists, too
		of.Job, err = s.JobKey(ctx, app, job)
	}
	if job == "" || errors.Is(err, dispatcher.ErrNotFound) {
		// $1 id
		const apps = `SELECT id FROM apps WHERE id = $1`
		if _, wrong := s.idOf(ctx, "app", app, apps, run.AppID(app)); wrong != nil {
			return of, wrong
		}
	}
	if err != nil || trigger == "" {
		return of, err
	}
	// $1 job, $2 name
	const triggers = `SELECT id FROM triggers WHERE job_id = $1 AND name = $2`
	of.trigger, err = s.idOf(ctx, "trigger", app+"/"+job+"/"+trigger, triggers, of.Job, trigger)
	return of, err
}

// JobKey returns the id of a job, deleted or not.
func (s *Store) JobKey(ctx context.Context, app, name string) (int64, error) {
	// $1 app, $2 name
	const jobs = `SELECT id FROM jobs WHERE app_id = $1 AND name = $2`
	return s.idOf(ctx, "job", app+"/"+name, jobs, run.AppID(app), name)
}

// idOf returns the id found by a query, or ErrNotFound with the shown name.
func (s *Store) idOf(ctx context.Context, kind, shown, query string, args ...any) (int64, error) {
	id, found, err := db.First(ctx, s.db.Read, db.ScanInt, query, args...)
	return id, db.OrNotFound(found, err, kind, shown)
}

// Run returns a run with its attempts.
func (s *Store) Run(ctx context.Context, id string) (run.Run, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	r, err := s.FindRun(ctx, s.db.Read, id)
	if err != nil {
		return r, err
	}
	key, err := run.ParseKey(id)
	if err != nil {
		return r, err
	}
	return r, addFollowers(ctx, s.db.Read, s.db.Flavor, &r, key)
}

// OneRun is a query for the run of a key. In the history it reads one partition.
// $1 scheduled instant, $2 trigger, $3 kind
func OneRun(f db.Flavor) string {
	const is = ` AS r WHERE r.scheduled_at = $1 AND r.trigger_id = $2 AND r.kind = $3`
	return `SELECT * FROM (` + db.EndedRuns + `)` + is + ` UNION ALL SELECT * FROM (` + db.UnendedRuns + `)` + is +
		` UNION ALL SELECT * FROM (` + dispatch.ClaimedRuns(f, "", ` AND o.scheduled_at = $1`) + `)` + is
}

// FindRun returns a run, as RunOf does.
func (s *Store) FindRun(ctx context.Context, q db.Querier, id string) (run.Run, error) {
	return RunOf(ctx, s.db.Flavor, q, id)
}

// RunOf returns a run with its attempts, or ErrNotFound. An error of the run lists unreadable parts: they do not
// prevent viewing or cancelling it.
func RunOf(ctx context.Context, f db.Flavor, q db.Querier, id string) (run.Run, error) {
	key, err := run.ParseKey(id)
	if err != nil {
		return run.Run{}, dispatcher.NotFound("run", id)
	}
	args := dispatch.KeyArgs(key)
	r, found, err := db.First(ctx, q, scanRun, RunQuery(OneRun(f)), args...)
	if err = db.OrNotFound(found, err, "run", id); err != nil {
		return r, err
	}
	var unread []error
	inputs, err := dispatch.InputsOf(ctx, f, q, []run.Key{key})
	for _, err := range []error{err, inputs[key].Err, dispatch.AddShards(ctx, q, &r, key), addQueue(ctx, q, &r, args)} {
		if db.IsUnreadable(err) {
			unread = append(unread, err)
		} else if err != nil {
			return r, err
		}
	}
	r.Payload, r.Cause = inputs[key].Payload, inputs[key].Cause
	if r.SlotWait != nil {
		if err := addSlotHolder(ctx, q, &r, args); err != nil {
			return r, err
		}
	}
	// $1 scheduled instant, $2 trigger, $3 kind
	const attempts = `SELECT attempt, node, state, started_at, ended_at, http_status, class, error, late_result
		FROM attempts WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3 ORDER BY attempt`
	scan := db.EvenUnreadable(scanAttempt, func(_ *run.Attempt, why error) { unread = append(unread, why) })
	if r.Attempts, err = db.Collect(ctx, q, scan, attempts, args...); err != nil {
		return r, err
	}
	listed := slices.ContainsFunc(r.Attempts, func(a run.Attempt) bool { return a.Attempt == r.Attempt })
	if !listed && r.Attempt != 0 && r.EndedAt != nil && r.StartedAt != nil && r.Node != nil { // its row has the latest
		r.Attempts = append(r.Attempts, run.Attempt{
			Attempt: r.Attempt, Node: *r.Node, State: r.State, StartedAt: *r.StartedAt, EndedAt: *r.EndedAt,
			HTTPStatus: r.HTTPStatus, Class: r.Class, Error: r.Error,
		})
	}
	if err := addResponses(ctx, q, &r, args, &unread); err != nil {
		return r, err
	}
	for _, why := range unread {
		r.Error = strings.TrimPrefix(r.Error+"; "+why.Error(), "; ")
	}
	return r, nil
}

// addQueue adds the place of a run among those that wait for a slot of its job, if it is one of them. A job lets at
// most dispatcher.MaxQueueLimit runs wait.
func addQueue(ctx context.Context, q db.Querier, r *run.Run, key []any) error {
	// $1 scheduled instant, $2 trigger, $3 kind
	const waiting = `SELECT count(*), coalesce(sum(CASE WHEN (r.scheduled_at, r.trigger_id, r.kind) <= ($1, $2, $3) THEN 1 ELSE 0 END), 0)
		FROM live_runs AS o JOIN live_runs AS r ON r.job_id = o.job_id AND r.node = -1 AND ` + db.NotParked + `
		WHERE o.scheduled_at = $1 AND o.trigger_id = $2 AND o.kind = $3 AND o.node = -1`
	if r.State != run.Queued {
		return nil
	}
	var place run.QueuePlace
	_, err := db.ReadRow(ctx, q, []any{&place.Of, &place.Place}, waiting, key...)
	if place.Of > 0 {
		r.Queue = &place
	}
	return err
}

func scanAttempt(row db.Scanner) (run.Attempt, error) {
	var a run.Attempt
	var late *string
	err := row.Scan(&a.Attempt, &a.Node, &a.State, db.InstantColumn(&a.StartedAt), db.InstantColumn(&a.EndedAt), &a.HTTPStatus,
		&a.Class, &a.Error, &late)
	if err != nil {
		return a, err
	}
	if late != nil {
		if err := json.Unmarshal([]byte(*late), &a.Late); err != nil {
			return a, db.AsUnreadable(fmt.Errorf("read the late result of attempt %d: %w", a.Attempt, err))
		}
	}
	return a, nil
}

// addResponses adds to the attempts of a run their stored responses, and to a run that waits for a callback the
// endpoint that accepted it. key is that of the run. Reasons for unreadable responses go to unread.
func addResponses(ctx context.Context, q db.Querier, one *run.Run, key []any, unread *[]error) error {
	// $1 scheduled instant, $2 trigger, $3 kind
	const kept = `SELECT attempt, response FROM responses WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3`
	type row struct {
		attempt  int
		response run.Response
	}
	rows, err := db.Collect(ctx, q, func(s db.Scanner) (r row, err error) {
		var text string
		if err = s.Scan(&r.attempt, &text); err != nil {
			return r, err
		}
		if err := json.Unmarshal([]byte(text), &r.response); err != nil {
			*unread = append(*unread, fmt.Errorf("read the response to attempt %d: %w", r.attempt, err))
		}
		return r, nil
	}, kept, key...)
	if err != nil {
		return fmt.Errorf("read responses: %w", err)
	}
	for _, r := range rows {
		for i := range one.Attempts {
			if one.Attempts[i].Attempt == r.attempt {
				one.Attempts[i].Response = &r.response
			}
		}
		if one.Callback != nil && one.Attempt == r.attempt {
			one.Callback.Endpoint = r.response.Endpoint
		}
	}
	return nil
}

// showNode adds the node of a run, or that it waits for a slot.
func showNode(r *run.Run, node run.NodeID) {
	if node > 0 {
		r.Node = &node
	} else if node < 0 && r.State == run.Queued {
		r.SlotWait = &run.SlotWait{}
	}
}

// showCallback adds the readable parts of its note to a waiting run: an unreadable note hides no other run.
func showCallback(r *run.Run, text string) {
	n, err := dispatch.ReadCallbackNote(text)
	if err != nil {
		r.Error = "what is stored of the accepted attempt cannot be read: " + err.Error()
	}
	r.Callback = &run.CallbackState{
		Deadline: db.Zeroable(r.NextAttemptAt), HeartbeatAt: db.Optional(n.Heartbeat), Progress: n.Progress, Percent: n.Percent,
	}
	if n.Accepted > 0 {
		r.Callback.AcceptedAt = db.Instant(n.Accepted)
	}
	r.NextAttemptAt = nil
}

// takenSlots selects slots s that runs have, with the run r and the node o. A slot of an ended run on a dead node counts
// as free, and so does that of an endpoint between two attempts.
const takenSlots = ` FROM slots AS s LEFT JOIN nodes AS o ON o.id = s.node AND o.state <> 'dead'
		LEFT JOIN live_runs AS r ON r.scheduled_at = s.scheduled_at AND r.trigger_id = s.trigger_id AND r.kind = s.kind
	WHERE s.node >= 0 AND (r.job_id IS NOT NULL AND (s.endpoint = '' OR r.state <> 'retrying') OR o.id IS NOT NULL)`

// addSlotHolder adds to a run that waits for a slot the run that has it, of several the one that has had it for longest.
func addSlotHolder(ctx context.Context, q db.Querier, one *run.Run, key []any) error {
	// $1 scheduled instant, $2 trigger, $3 kind, $4 endpoint
	const holder = `SELECT s.scheduled_at, s.trigger_id, s.kind, s.since` + takenSlots + ` AND s.endpoint = $4 AND s.job_id =
		(SELECT job_id FROM live_runs WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3) ORDER BY s.since, s.scheduled_at LIMIT 1`
	var of run.Key
	var since time.Time
	found, err := db.ReadRow(ctx, q, db.KeyRefs(&of, db.InstantColumn(&since)), holder, append(key, one.WaitsForEndpoint)...)
	if err != nil {
		return fmt.Errorf("read the slot that it waits for: %w", err)
	}
	if found {
		*one.SlotWait = run.SlotWait{Run: of.String(), Since: &since}
	}
	return nil
}

// Slots returns the taken slots of a job.
func (s *Store) Slots(ctx context.Context, app, job string) ([]dispatcher.Slot, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	of, err := s.IDsOf(ctx, app, job, "")
	if err != nil {
		return nil, err
	}
	// $1 job
	const list = `SELECT s.scheduled_at, s.trigger_id, s.kind, s.endpoint, coalesce(o.id, 0), s.since, r.job_id IS NULL` + takenSlots +
		` AND s.job_id = $1 ORDER BY s.scheduled_at, s.trigger_id, s.kind, s.endpoint`
	return db.Collect(ctx, s.db.Read, func(row db.Scanner) (slot dispatcher.Slot, err error) {
		var key run.Key
		var node run.NodeID
		err = row.Scan(db.KeyRefs(&key, &slot.Endpoint, &node, db.InstantColumn(&slot.Since), &slot.Ended)...)
		slot.Run = key.String()
		if node != 0 {
			slot.Node = &node
		}
		return slot, err
	}, list, of.Job)
}
