package feeds

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/definitions"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// followerKey returns the key of a follower of the end. It is the same however often the end is recorded.
func followerKey(e *dispatch.PendingEnd, f dispatcher.Follower) run.Key {
	return dispatcher.FollowerKey(e.Salt, e.Key, e.Event(), f.ID, f.Kind)
}

// earliestEnds are the earliest ends that are not set aside.
// $1 limit, $2 lower bound, $3 now
const earliestEnds = `SELECT * FROM pending_ends WHERE ended_at >= $2 AND try_at <= $3
	ORDER BY ended_at, trigger_id, scheduled_at, kind LIMIT $1`

// oneEnd is an end by its key.
// $1 ended, $2 trigger, $3 scheduled instant, $4 kind
const oneEnd = `SELECT * FROM pending_ends WHERE ended_at = $1 AND trigger_id = $2 AND scheduled_at = $3 AND kind = $4`

// mayFollow counts the pending ends, up to a limit, if they may be followed now.
// $1 lower bound, $2 limit
const mayFollow = `SELECT count(*) FROM (SELECT 1 AS one FROM pending_ends WHERE ended_at >= $1 AND ` + dispatch.NoRollback +
	` LIMIT $2) AS e`

// FollowEnds removes pending ends and queues their followers.
func (s *Store) FollowEnds(ctx context.Context, query dispatcher.FollowQuery) (done dispatcher.FollowedEnds, err error) {
	// The query runs without a transaction because it mostly finds none.
	page, found, err := s.pageOf(ctx, query)
	if err == nil && found {
		done, err = s.followPage(ctx, &page)
	}
	if err != nil {
		return dispatcher.FollowedEnds{}, fmt.Errorf("follow the ends of runs: %w", err)
	}
	return done, nil
}

// followPage follows the ends of a page, and skips those that another node takes.
func (s *Store) followPage(ctx context.Context, page *endsPage) (done dispatcher.FollowedEnds, err error) {
	err = s.dispatch.Change(ctx, input.Change{Now: page.Now}, func(ctx context.Context, t *dispatch.Tx) error {
		ends, err := page.read(ctx, t.Flavor, t, t.LockRows(db.LockToDelete+db.SkipLockedRows), t.At)
		if err == nil {
			done, err = s.followEnds(ctx, t, ends)
			done.More = page.more(ends)
		}
		return err
	})
	if s.dispatch.OfStored(ctx, err) {
		return s.followSingly(ctx, page)
	}
	return done, err
}

func (s *Store) followEnds(ctx context.Context, t *dispatch.Tx, ends []dispatch.PendingEnd) (done dispatcher.FollowedEnds, err error) {
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
	queued, err := dispatch.QueueRuns(ctx, t, f.runs)
	if err == nil {
		err = failRefused(ctx, t, f.refused)
	}
	if err != nil {
		return done, err
	}
	notified, err := s.judgeEnds(ctx, t, ends, causes)
	if err != nil {
		return done, err
	}
	if done.SetAside, err = setEndsAside(ctx, t, f.aside); err != nil {
		return done, err
	}
	done.Queued = len(queued) + notified
	for _, name := range db.SortedKeys(f.rooms) { // last, because it locks the rows of apps
		if err := definitions.AddWaiting(ctx, t, name, f.rooms[name].added); err != nil {
			return done, err
		}
	}
	return done, nil
}

func removePending(ctx context.Context, t *dispatch.Tx, ends []dispatch.PendingEnd) error {
	var ended, trigger, at []int64
	var kind []int32
	for _, e := range ends {
		ended, trigger, at = append(ended, e.EndedAt.UnixMilli()), append(trigger, e.Key.TriggerID), append(at, e.Key.ScheduledAt.UnixMilli())
		kind = append(kind, int32(e.Key.Kind.Code()))
	}
	// From $1 on: the key
	remove := t.Rows(0, 1, "", db.Col("ended_at", db.Bigint), db.Col("trigger_id", db.Bigint), db.Col("scheduled_at", db.Bigint),
		db.Col("kind", db.Integer)) + ` DELETE FROM pending_ends
		WHERE (ended_at, trigger_id, scheduled_at, kind) IN (SELECT b.ended_at, b.trigger_id, b.scheduled_at, b.kind FROM b)`
	return t.Exec(ctx, remove, t.Batch(ended, trigger, at, kind)...)
}

// causesOf returns the causes of ended runs, as far as backfills and chains need them.
func causesOf(ctx context.Context, t *dispatch.Tx, ends []dispatch.PendingEnd) (map[run.Key]*run.Cause, error) {
	var keys []run.Key
	for _, e := range ends {
		if e.Key.Kind == run.KindBackfill || e.Key.Kind == run.KindChain {
			keys = append(keys, e.Key)
		}
	}
	inputs, err := dispatch.InputsOf(ctx, t.Flavor, t, keys)
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

// runsThatFollow returns the results of some ends, from the current followers of the jobs.
func runsThatFollow(ctx context.Context, t *dispatch.Tx, ends []dispatch.PendingEnd, causes map[run.Key]*run.Cause) (
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
		followers := all[followed{e.JobID, e.Event().Mask()}]
		// The same run may have failed, been retried and failed again meanwhile.
		followers = slices.DeleteFunc(slices.Clone(followers), func(p presentFollower) bool { return seen[followerKey(e, p.Follower)] })
		if len(followers) == 0 {
			continue
		}
		for _, p := range followers {
			seen[followerKey(e, p.Follower)] = true
		}
		room, err := roomOf(ctx, t, &f, e.App)
		if err != nil {
			return f, err
		}
		link, refused := room.quotas.Link(causes[e.Key], shards[e.Key], len(followers))
		cause := run.Cause{Depth: link.Depth, MayFollow: link.MayFollow}
		if of := causes[e.Key]; of != nil {
			cause.Backfill = of.Backfill
		}
		runs, err := room.runs(ctx, t, e, followers, cause)
		if err != nil {
			return f, err
		}
		f.take(room, e, f.skip(e, followers, runs), refused)
	}
	return f, nil
}

// runs returns the runs of the followers of an end, with their inputs. The chain and the backfill of their cause are
// known.
func (r *followRoom) runs(ctx context.Context, t *dispatch.Tx, e *dispatch.PendingEnd, followers []presentFollower,
	cause run.Cause) ([]dispatch.QueuedRun, error) {
	document, err := documentOf(ctx, t, e)
	if err != nil {
		return nil, fmt.Errorf("what followers of run %s get: %w", e.Key, err)
	}
	cause.Run, cause.On, cause.State = document.Parent.Run, string(document.Event), document.Parent.State
	cause.Class, cause.Error = document.Parent.Class, document.Parent.Error
	runs := make([]dispatch.QueuedRun, len(followers))
	for i, p := range followers {
		input := &run.Input{Cause: &cause, Missed: e.Missed()}
		if p.Result {
			if input.Payload, err = r.payload(ctx, t, e, document, p.alert); err != nil {
				return nil, err
			}
		}
		runs[i] = dispatch.QueuedRun{Key: followerKey(e, p.Follower), JobID: p.ID, Revision: p.revision, Input: input}
	}
	return runs, nil
}

// followed is an event of a job.
type followed struct {
	Job   int64
	Event run.FollowMask
}

// presentFollower is a follower with its current revision. alert is empty unless it delivers to the destination of an
// alert, which may be deleted.
type presentFollower struct {
	dispatcher.Follower
	revision  int64
	alert     string
	deletedAt *time.Time
}

func findFollowersOfEnds(ctx context.Context, t *dispatch.Tx, ends []dispatch.PendingEnd) (map[followed][]presentFollower, error) {
	ids := map[int64]bool{}
	for _, e := range ends {
		if e.Follows != 0 {
			ids[e.JobID] = true
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	// From $1 on: the jobs
	query := t.Rows(0, 1, "", db.IDColumns...) + ` SELECT f.job_id, f.event, f.follower_id, f.kind, f.result, j.revision,
			coalesce(a.name, ''), j.deleted_at
		FROM b JOIN followers AS f ON f.job_id = b.id JOIN jobs AS j ON j.id = f.follower_id
		LEFT JOIN alerts AS a ON a.id = j.part_of WHERE j.deleted_at IS NULL OR a.id IS NOT NULL
		ORDER BY f.job_id, f.event, f.follower_id`
	rows, err := db.Collect(ctx, t, func(row db.Scanner) (f presentFollower, err error) {
		f.Follower, err = definitions.ScanFollower(db.WiderRow{Scanner: row,
			After: []any{&f.revision, &f.alert, db.OptionalColumn(&f.deletedAt)}})
		return f, err
	}, query, t.Batch(slices.Sorted(maps.Keys(ids)))...)
	all := map[followed][]presentFollower{}
	for _, f := range rows {
		of := followed{f.Job, f.Event}
		all[of] = append(all[of], f)
	}
	return all, err
}

// documentOf returns the document about an end for its followers, without the result.
func documentOf(ctx context.Context, t *dispatch.Tx, e *dispatch.PendingEnd) (dispatcher.FollowDocument, error) {
	document := dispatcher.FollowDocument{Event: e.Event(), Parent: dispatcher.FollowedRun{
		Run: e.Run(), App: e.App, Job: e.Job, Trigger: e.Trigger, ScheduledAt: e.Key.ScheduledAt, State: e.State, Class: e.Class,
		Error: e.Reason, HTTPStatus: e.HTTPStatus, Attempts: e.Attempt, EndedAt: e.EndedAt,
	}}
	if document.Event != run.OnMisfire {
		return document, nil
	}
	// $1 first missed fire, $2 trigger
	const misfires = `SELECT m.to_at, m.count, m.decision, m.reason, m.catch_up FROM misfires AS m
		WHERE m.from_at = $1 AND m.trigger_id = $2`
	p := &document.Parent
	p.Missed = &run.MissedRange{From: e.Key.ScheduledAt}
	var catchUp *time.Time
	_, err := db.ReadRow(ctx, t, []any{db.InstantColumn(&p.Missed.To), &p.Missed.Count, &p.Decision, &p.Reason, db.OptionalColumn(&catchUp)},
		misfires, e.Key.ScheduledAt.UnixMilli(), e.Key.TriggerID)
	if catchUp != nil {
		p.Run = run.Key{TriggerID: e.Key.TriggerID, ScheduledAt: *catchUp, Kind: run.KindCatchUp}.String()
	}
	return document, err
}

// payload returns a document with the stored response of the latest attempt, unless its app has no room for it: as a
// notification if it is for the destination of an alert.
func (r *followRoom) payload(ctx context.Context, t *dispatch.Tx, e *dispatch.PendingEnd, document dispatcher.FollowDocument,
	alert string) (json.RawMessage, error) {
	var response *run.Response
	if r.full {
		document.ResultOmitted = target.BytesKeptReached(e.App, r.quotas.BytesKept)
	} else if e.Attempt > 0 {
		// $1 scheduled instant, $2 trigger, $3 kind, $4 attempt
		const kept = `SELECT response FROM responses WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3 AND attempt = $4`
		_, err := db.ReadRow(ctx, t, []any{db.JSONColumn(&response)}, kept, append(dispatch.KeyArgs(e.Key), e.Attempt)...)
		if err != nil {
			return nil, fmt.Errorf("read the response of run %s: %w", e.Key, err)
		}
	}
	if alert == "" {
		return document.Encode(response)
	}
	n := document.Notification(alert)
	if response != nil {
		n.Response = definitions.ShownResponse(*response)
	}
	// $1 job
	const ofJob = `SELECT j.description, j.runbook_url, j.labels FROM jobs AS j WHERE j.id = $1`
	if _, err := db.ReadRow(ctx, t, []any{&n.JobDescription, &n.RunbookURL, db.LabelsColumn(&n.Labels)}, ofJob, e.JobID); err != nil {
		return nil, err
	}
	return json.Marshal(n)
}

// judgeEnds applies ends of runs, and decisions about missed fires, to the alerts of their jobs, in order. It returns
// how many notifications it queued. Runs of backfills, and their followers, are left out.
func (s *Store) judgeEnds(ctx context.Context, t *dispatch.Tx, ends []dispatch.PendingEnd, causes map[run.Key]*run.Cause) (int, error) {
	var ids []int64
	leftOut := func(e *dispatch.PendingEnd) bool {
		return e.Judged || e.Follows&run.FollowsAlerts == 0 || e.Key.Kind == run.KindBackfill || causes[e.Key].OfBackfill()
	}
	var retried []run.Key
	for i := range ends {
		if leftOut(&ends[i]) {
			continue
		}
		ids = append(ids, ends[i].JobID)
		if ends[i].Attempt > 1 {
			retried = append(retried, ends[i].Key)
		}
	}
	if len(ids) == 0 {
		return 0, nil
	}
	j, err := definitions.Judge(ctx, t, ids)
	if err != nil {
		return 0, err
	}
	firsts, err := dispatch.FirstStarts(ctx, t, t, retried)
	if err != nil {
		return 0, err
	}
	for i := range ends {
		e := &ends[i]
		job := j.Jobs[e.JobID]
		if job == nil || job.Deleted || leftOut(e) {
			continue
		}
		end, err := s.endOf(ctx, j, job, e, firsts)
		if err != nil {
			return 0, err
		}
		j.After(job, end)
	}
	return j.Finish(ctx)
}

// endOf is what alerts of a job judge by; firsts are when the first attempts of runs began.
func (s *Store) endOf(ctx context.Context, j *definitions.Judgement, job *definitions.JudgedJob, e *dispatch.PendingEnd,
	firsts map[run.Key]time.Time) (alert.End, error) {
	end := alert.End{Key: e.Key, Trigger: e.Trigger, State: e.State, Class: e.Class, Error: e.Reason, Attempt: e.Attempt,
		EndedAt: e.EndedAt}
	if e.StartedAt != nil {
		end.StartedAt = *e.StartedAt
		if first, ok := firsts[e.Key]; ok {
			end.StartedAt = first
		}
		if err := noteOwed(ctx, j, job, &end); err != nil {
			return end, err
		}
	}
	if e.Event() == run.OnMisfire {
		document, err := documentOf(ctx, j.Tx, e)
		if err != nil {
			return end, fmt.Errorf("read missed fires: %w", err)
		}
		end.Missed, end.Error = max(document.Parent.Missed.Count, 1), document.Parent.Reason
		if end.Held, err = s.heldFires(ctx, j, e, document.Parent.Missed.To); err != nil {
			return end, fmt.Errorf("read what held missed fires: %w", err)
		}
	}
	return end, nil
}
