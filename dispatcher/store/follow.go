package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// pendingEnd is the end of a run, or a decision about missed fires, that has yet to be followed.
type pendingEnd struct {
	key        run.Key // of missed fires, the kind is empty and the instant the first
	jobID      int64
	appID      int64 // of the job
	endedAt    time.Time
	startedAt  *time.Time
	attempt    int
	httpStatus int
	state      run.State // of missed fires: empty
	class      run.Class
	reason     string
	// How often it could not be followed, why, and when it is tried again; 0: at once.
	tries   int
	problem string
	tryAt   int64
	// judged tells that alerts know of it already, and group that its job calls a group.
	judged, group bool
	salt          run.Salt // of the app
	// What the job and the trigger are called now. follows is 0 if the job is deleted.
	app, job, trigger string
	follows           run.FollowMask
}

// event returns which event of the job it is.
func (e *pendingEnd) event() run.FollowEvent {
	switch e.state {
	case "":
		return run.OnMisfire
	case run.Succeeded:
		return run.OnSuccess
	}
	return run.OnFailure
}

// run returns the id of the run that ended; empty: fires were missed.
func (e *pendingEnd) run() string {
	if e.key.Kind == "" {
		return ""
	}
	return e.key.String()
}

// missed returns the id that the first of missed fires would have as a run; empty: a run ended.
func (e *pendingEnd) missed() string {
	if e.key.Kind != "" {
		return ""
	}
	return run.Key{TriggerID: e.key.TriggerID, ScheduledAt: e.key.ScheduledAt, Kind: run.KindSchedule}.String()
}

// followerKey returns the key of a run that follows the end: the same however often the end is recorded.
func followerKey(e *pendingEnd, f dispatcher.Follower) run.Key {
	return dispatcher.FollowerKey(e.salt, e.key, e.event(), f.ID, f.Kind)
}

// pendingEnds returns the pending ends that a query chooses, which is of pending_ends alone.
func pendingEnds(chosen string) string {
	return `SELECT e.ended_at, e.trigger_id, e.scheduled_at, e.kind, e.job_id, e.app_id, e.attempt, e.started_at, e.http_status, e.state,
			e.class, e.error, e.tries, e.problem, e.try_at, e.judged, coalesce(j.target_group, '') <> '',
			coalesce(a.name, ''), a.salt, coalesce(j.name, ''), coalesce(t.name, ''),
			CASE WHEN j.deleted_at IS NULL THEN coalesce(j.follows, 0) ELSE 0 END
		FROM (` + chosen + `) AS e
		LEFT JOIN jobs AS j ON j.id = e.job_id LEFT JOIN apps AS a ON a.id = j.app_id LEFT JOIN triggers AS t ON t.id = e.trigger_id
		ORDER BY e.ended_at, e.trigger_id, e.scheduled_at, e.kind`
}

// earliestEnds are the earliest that are not set aside.
// $1 limit, $2 lower bound, $3 now
const earliestEnds = `SELECT * FROM pending_ends WHERE ended_at >= $2 AND try_at <= $3
	ORDER BY ended_at, trigger_id, scheduled_at, kind LIMIT $1`

// oneEnd is an end by its key.
// $1 ended, $2 trigger, $3 scheduled instant, $4 kind
const oneEnd = `SELECT * FROM pending_ends WHERE ended_at = $1 AND trigger_id = $2 AND scheduled_at = $3 AND kind = $4`

func scanPendingEnd(row db.Scanner) (e pendingEnd, err error) {
	var kind int
	err = row.Scan(db.InstantColumn(&e.endedAt), &e.key.TriggerID, db.InstantColumn(&e.key.ScheduledAt), &kind, &e.jobID, &e.appID, &e.attempt,
		db.OptionalColumn(&e.startedAt), &e.httpStatus, &e.state, &e.class, &e.reason, &e.tries,
		&e.problem, &e.tryAt, &e.judged, &e.group, &e.app, (*[]byte)(&e.salt), &e.job, &e.trigger, &e.follows)
	e.key.Kind, _ = run.KindOfCode(byte(kind))
	return e, err
}

// mayFollow counts the pending ends, as far as a limit, if they may be followed now.
// $1 lower bound, $2 limit
const mayFollow = `SELECT count(*) FROM (SELECT 1 AS one FROM pending_ends WHERE ended_at >= $1 AND ` + noRollback + ` LIMIT $2) AS e`

// FollowEnds removes pending ends and queues what follows them.
func (s *Store) FollowEnds(ctx context.Context, query dispatcher.FollowQuery) (done dispatcher.FollowedEnds, err error) {
	// Mostly there are none, and no transaction is needed to find that out.
	page, found, err := s.pageOf(ctx, query)
	if err == nil && found {
		done, err = s.followPage(ctx, &page)
	}
	if err != nil {
		return dispatcher.FollowedEnds{}, fmt.Errorf("follow the ends of runs: %w", err)
	}
	return done, nil
}

// followPage follows the ends of a page, and passes over those that another node takes.
func (s *Store) followPage(ctx context.Context, page *endsPage) (done dispatcher.FollowedEnds, err error) {
	err = s.change(ctx, input.Change{Now: page.Now}, func(ctx context.Context, t *tx) error {
		ends, err := page.read(ctx, t.Flavor, t, t.LockRows(db.LockToDelete+db.SkipLockedRows), t.now)
		if err == nil {
			done, err = followEnds(ctx, t, ends)
			done.More = page.more(ends)
		}
		return err
	})
	if s.ofStored(ctx, err) {
		return s.followSingly(ctx, page)
	}
	return done, err
}

// followEnds follows ends that are locked, and removes them.
func followEnds(ctx context.Context, t *tx, ends []pendingEnd) (done dispatcher.FollowedEnds, err error) {
	if len(ends) == 0 {
		return done, nil
	}
	done = dispatcher.FollowedEnds{Ends: len(ends), Latest: latestEnds(ends)}
	causes, err := causesOf(ctx, t, ends)
	if err != nil {
		return done, err
	}
	f, err := runsThatFollow(ctx, t, ends, causes)
	if err != nil {
		return done, err
	}
	if err := removePending(ctx, t, f.without(ends)); err != nil {
		return done, err
	}
	failpoint.Hit(failpoint.InFollow)
	queued, err := queueRuns(ctx, t, f.runs)
	if err == nil {
		err = failRefused(ctx, t, f.refused)
	}
	if err != nil {
		return done, err
	}
	notified, err := judgeEnds(ctx, t, ends, causes)
	if err != nil {
		return done, err
	}
	if done.SetAside, err = setEndsAside(ctx, t, f.aside); err != nil {
		return done, err
	}
	done.Queued = len(queued) + notified
	return done, f.countAdded(ctx, t)
}

// removePending removes pending ends that are locked.
func removePending(ctx context.Context, t *tx, ends []pendingEnd) error {
	var ended, trigger, at []int64
	var kind []int32
	for _, e := range ends {
		ended, trigger, at = append(ended, e.endedAt.UnixMilli()), append(trigger, e.key.TriggerID), append(at, e.key.ScheduledAt.UnixMilli())
		kind = append(kind, int32(e.key.Kind.Code()))
	}
	// From $1 on: the key
	remove := t.Rows(0, 1, "", db.Col("ended_at", db.Bigint), db.Col("trigger_id", db.Bigint), db.Col("scheduled_at", db.Bigint),
		db.Col("kind", db.Integer)) + ` DELETE FROM pending_ends
		WHERE (ended_at, trigger_id, scheduled_at, kind) IN (SELECT b.ended_at, b.trigger_id, b.scheduled_at, b.kind FROM b)`
	_, err := t.ExecContext(ctx, remove, t.Batch(ended, trigger, at, kind)...)
	return err
}

// causesOf returns why runs exist that ended, as far as backfills and chains tell.
func causesOf(ctx context.Context, t *tx, ends []pendingEnd) (map[run.Key]*run.Cause, error) {
	var keys []run.Key
	for _, e := range ends {
		if e.key.Kind == run.KindBackfill || e.key.Kind == run.KindChain {
			keys = append(keys, e.key)
		}
	}
	inputs, err := inputsOf(ctx, t.Flavor, t, keys)
	if err != nil {
		return nil, err
	}
	causes := make(map[run.Key]*run.Cause, len(inputs))
	for key, input := range inputs {
		if input.Cause != nil {
			causes[key] = input.Cause
		}
	}
	return causes, nil
}

// runsThatFollow returns what becomes of some ends, as the jobs declare now what follows them.
func runsThatFollow(ctx context.Context, t *tx, ends []pendingEnd, causes map[run.Key]*run.Cause) (
	f following, err error,
) {
	f.rooms = map[string]*followRoom{}
	all, err := findFollowersOfEnds(ctx, t, ends)
	if err != nil || len(all) == 0 {
		return f, err
	}
	shards, err := shardsOfEnds(ctx, t, ends)
	if err != nil {
		return f, err
	}
	seen := map[run.Key]bool{}
	for i := range ends {
		e := &ends[i]
		followers := all[followed{e.jobID, e.event().Mask()}]
		// The same run may have failed, been retried and failed again meanwhile.
		followers = slices.DeleteFunc(slices.Clone(followers), func(p presentFollower) bool { return seen[followerKey(e, p.Follower)] })
		if len(followers) == 0 {
			continue
		}
		for _, p := range followers {
			seen[followerKey(e, p.Follower)] = true
		}
		room, err := roomOf(ctx, t, &f, e.app)
		if err != nil {
			return f, err
		}
		link, refused := room.quotas.Link(causes[e.key], shards[e.key], len(followers))
		runs, err := followersRuns(ctx, t, e, followers, room, link, causes[e.key])
		if err != nil {
			return f, err
		}
		f.take(room, e, runs, refused)
	}
	return f, nil
}

// followersRuns returns the runs of the followers of an end, with what they are given.
func followersRuns(ctx context.Context, t *tx, e *pendingEnd, followers []presentFollower, room *followRoom, link run.ChainLink,
	of *run.Cause) ([]queuedRun, error) {
	document, err := documentOf(ctx, t, e)
	if err != nil {
		return nil, fmt.Errorf("what followers of run %s get: %w", e.key, err)
	}
	cause := &run.Cause{Run: document.Parent.Run, On: string(document.Event), State: document.Parent.State,
		Class: document.Parent.Class, Error: document.Parent.Error, Depth: link.Depth, MayFollow: link.MayFollow}
	if of != nil {
		cause.Backfill = of.Backfill
	}
	var encoded json.RawMessage
	runs := make([]queuedRun, len(followers))
	for i, p := range followers {
		input := &run.Input{Cause: cause, Missed: e.missed()}
		if p.Result {
			if encoded == nil {
				if encoded, err = encodeDocument(ctx, t, e, document, room); err != nil {
					return nil, err
				}
			}
			input.Payload = encoded
		}
		runs[i] = queuedRun{Key: followerKey(e, p.Follower), jobID: p.ID, revision: p.revision, input: input}
	}
	return runs, nil
}

// followed is an event of a job.
type followed struct {
	job   int64
	event run.FollowMask
}

// presentFollower is a follower, at the revision that it has now.
type presentFollower struct {
	dispatcher.Follower
	revision int64
}

// findFollowersOfEnds returns what follows the jobs of some ends.
func findFollowersOfEnds(ctx context.Context, t *tx, ends []pendingEnd) (map[followed][]presentFollower, error) {
	ids := map[int64]bool{}
	for _, e := range ends {
		if e.follows != 0 {
			ids[e.jobID] = true
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	// From $1 on: the jobs
	query := t.Rows(0, 1, "", db.IDColumns...) + ` SELECT f.job_id, f.event, f.follower_id, f.kind, f.result, j.revision
		FROM b JOIN followers AS f ON f.job_id = b.id JOIN jobs AS j ON j.id = f.follower_id AND j.deleted_at IS NULL
		ORDER BY f.job_id, f.event, f.follower_id`
	rows, err := db.Collect(ctx, t, func(row db.Scanner) (f presentFollower, err error) {
		f.Follower, err = scanFollower(db.WiderRow{Scanner: row, After: []any{&f.revision}})
		return f, err
	}, query, t.Batch(slices.Sorted(maps.Keys(ids)))...)
	all := map[followed][]presentFollower{}
	for _, f := range rows {
		of := followed{f.Job, f.Event}
		all[of] = append(all[of], f)
	}
	return all, err
}

// documentOf returns what followers get of an end, without the result.
func documentOf(ctx context.Context, t *tx, e *pendingEnd) (dispatcher.FollowDocument, error) {
	document := dispatcher.FollowDocument{Event: e.event(), Parent: dispatcher.FollowedRun{
		Run: e.run(), App: e.app, Job: e.job, Trigger: e.trigger, ScheduledAt: e.key.ScheduledAt, State: e.state, Class: e.class,
		Error: e.reason, HTTPStatus: e.httpStatus, Attempts: e.attempt, EndedAt: e.endedAt,
	}}
	if document.Event != run.OnMisfire {
		return document, nil
	}
	// $1 first missed fire, $2 trigger
	const misfires = `SELECT m.to_at, m.count, m.decision, m.reason, m.catch_up FROM misfires AS m
		WHERE m.from_at = $1 AND m.trigger_id = $2`
	p := &document.Parent
	p.Missed = &run.MissedRange{From: e.key.ScheduledAt}
	_, _, err := db.First(ctx, t, func(row db.Scanner) (struct{}, error) {
		var catchUp *time.Time
		err := row.Scan(db.InstantColumn(&p.Missed.To), &p.Missed.Count, &p.Decision, &p.Reason, db.OptionalColumn(&catchUp))
		if catchUp != nil {
			p.Run = run.Key{TriggerID: e.key.TriggerID, ScheduledAt: *catchUp, Kind: run.KindCatchUp}.String()
		}
		return struct{}{}, err
	}, misfires, e.key.ScheduledAt.UnixMilli(), e.key.TriggerID)
	return document, err
}

// encodeDocument returns a document with the response that is stored of the latest attempt, unless its app has no room for it.
func encodeDocument(ctx context.Context, t *tx, e *pendingEnd, document dispatcher.FollowDocument, room *followRoom) (
	json.RawMessage, error,
) {
	if room.full {
		document.ResultOmitted = target.BytesKeptReached(e.app, room.quotas.BytesKept)
		return document.Encode(nil)
	}
	var response *run.Response
	if e.attempt > 0 {
		// $1 scheduled instant, $2 trigger, $3 kind, $4 attempt
		const kept = `SELECT response FROM responses WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3 AND attempt = $4`
		text, found, err := db.First(ctx, t, db.ScanText, kept, append(keyArgs(e.key), e.attempt)...)
		if err == nil && found {
			err = json.Unmarshal([]byte(text), &response)
		}
		if err != nil {
			return nil, fmt.Errorf("read the response of run %s: %w", e.key, err)
		}
	}
	return document.Encode(response)
}
