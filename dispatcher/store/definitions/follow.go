package definitions

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// encodeFollowers returns the content of jobs.followers.
func encodeFollowers(job dispatcher.Job) (string, error) {
	if job.FollowMask() == 0 {
		return "", nil
	}
	encoded, err := json.Marshal(job.JobFollows)
	return string(encoded), err
}

// decodeFollowers reads the followers of a job, which most jobs lack.
func (j *JobRow) decodeFollowers() error {
	j.JobFollows = dispatcher.JobFollows{}
	if j.followers == "" {
		return nil
	}
	var all dispatcher.JobFollows
	if err := json.Unmarshal([]byte(j.followers), &all); err != nil {
		return fmt.Errorf("followers: %w", err)
	}
	j.JobFollows = all
	return nil
}

// loadFollows reads the followers of a job, if it declares any, and the jobs that these lead to. b has the keys of the
// jobs that it names.
func (s *Store) loadFollows(ctx context.Context, q db.Querier, job dispatcher.Job, b *dispatcher.JobBefore) (err error) {
	if job.FollowMask() == 0 {
		return nil
	}
	b.Attached = map[run.FollowEvent]dispatcher.AttachedBefore{}
	level := []int64{job.Key()}
	for event, follow := range job.EachFollow() {
		if follow.Target() == nil {
			continue
		}
		id := job.Attached(event).Key()
		if b.Attached[event], err = loadAttached(ctx, q, id); err != nil {
			return err
		}
		level = append(level, id)
	}
	b.Follows.Names, b.Follows.After = map[int64]string{}, map[int64][]dispatcher.Follower{}
	b.Follows.Leaders = map[int64][]dispatcher.Leader{}
	for name, id := range b.Follows.IDs {
		b.Follows.Names[id] = name
		level = append(level, id)
	}
	if err := s.readAfter(ctx, q, b.Follows, job, level); err != nil {
		return fmt.Errorf("read what follows job %s/%s: %w", job.App, job.Name, err)
	}
	// $1 awaited key
	const awaited = `SELECT 1 FROM followers WHERE follower_id = $1 LIMIT 1`
	if _, b.Follows.Awaited, err = db.First(ctx, q, db.ScanInt, awaited, dispatcher.AwaitedKey(job.App, job.Name)); err != nil {
		return err
	}
	if !b.Follows.Grows(job) {
		return nil
	}
	if err := s.readLeaders(ctx, q, b.Follows, job); err != nil {
		return fmt.Errorf("read what leads to job %s/%s: %w", job.App, job.Name, err)
	}
	return nil
}

// mostFollowersRead bounds the followers that are read for a job. A change that leads to as many is refused: the
// present and the new followers are at most MostFollowing jobs each, with three deliveries.
const mostFollowersRead = 8 * dispatcher.MostFollowing

// readAfter adds the followers of jobs to a graph, direct and indirect. Those that await the name of job lead to it.
func (s *Store) readAfter(ctx context.Context, q db.Querier, g dispatcher.FollowGraph, job dispatcher.Job, level []int64) error {
	// From $1 on: the ids
	after := s.db.Rows(0, 1, "", db.IDColumns...) + ` SELECT f.job_id, f.event, f.follower_id, f.kind, f.result, coalesce(j.name, '')
		FROM b JOIN followers AS f ON f.job_id = b.id LEFT JOIN jobs AS j ON j.id = f.follower_id
		ORDER BY f.job_id, f.event, f.follower_id`
	seen := map[int64]bool{}
	for len(level) > 0 && len(seen) < mostFollowersRead {
		level = slices.Compact(slices.Sorted(slices.Values(level)))
		for _, id := range level {
			seen[id] = true
		}
		rows, err := db.Collect(ctx, q, func(row db.Scanner) (f dispatcher.Follower, err error) {
			var name string
			f, err = ScanFollower(db.WiderRow{Scanner: row, After: []any{&name}})
			if f.ID == dispatcher.AwaitedKey(job.App, job.Name) {
				f.ID = job.Key()
			}
			g.Names[f.ID] = cmp.Or(g.Names[f.ID], name)
			return f, err
		}, after, s.db.Batch(level)...)
		if err != nil {
			return err
		}
		level = level[:0]
		for _, one := range rows {
			if g.After[one.Job] = append(g.After[one.Job], one); !seen[one.ID] {
				level = append(level, one.ID)
			}
		}
	}
	return nil
}

// ScanFollower reads a row of followers.
func ScanFollower(row db.Scanner) (f dispatcher.Follower, err error) {
	var kind int
	err = row.Scan(&f.Job, &f.Event, &f.ID, &kind, &f.Result)
	f.Kind, _ = run.KindOfCode(byte(kind))
	return f, err
}

// readLeaders adds to a graph the jobs that lead to a job, directly and through others.
func (s *Store) readLeaders(ctx context.Context, q db.Querier, g dispatcher.FollowGraph, job dispatcher.Job) error {
	awaited := dispatcher.AwaitedKey(job.App, job.Name)
	// From $1 on: the ids
	leaders := s.db.Rows(0, 1, "", db.IDColumns...) + ` SELECT f.job_id, f.follower_id, (SELECT count(*) FROM followers AS g
			WHERE g.job_id = f.job_id AND g.event = f.event), j.name
		FROM b JOIN followers AS f ON f.follower_id = b.id JOIN jobs AS j ON j.id = f.job_id ORDER BY f.job_id, f.follower_id`
	for level := []int64{job.Key(), awaited}; len(level) > 0; {
		rows, err := db.Collect(ctx, q, func(row db.Scanner) (l dispatcher.Leader, err error) {
			var name string
			err = row.Scan(&l.Job, &l.Follower, &l.Count, &name)
			if g.Names[l.Job] = name; l.Follower == awaited {
				l.Follower = job.Key()
			}
			return l, err
		}, leaders, s.db.Batch(level)...)
		if err != nil {
			return err
		}
		for _, id := range level {
			g.Leaders[id] = []dispatcher.Leader{} // marks it as read
		}
		level = level[:0]
		for _, one := range rows {
			g.Leaders[one.Follower] = append(g.Leaders[one.Follower], one)
			if _, read := g.Leaders[one.Job]; !read {
				level = append(level, one.Job)
			}
		}
		level = slices.Compact(slices.Sorted(slices.Values(level)))
	}
	return nil
}

func (s *Store) idsOfJobs(ctx context.Context, q db.Querier, app string, names []string) (map[string]int64, error) {
	if len(names) == 0 {
		return nil, nil
	}
	// $1 app, from $2 on: names. No job that users declare has the name of an attached one.
	query := s.db.Rows(0, 2, "", db.NameColumns...) + ` SELECT j.name, j.id FROM b JOIN jobs AS j ON j.name = b.name
		WHERE j.app_id = $1 AND j.deleted_at IS NULL`
	return db.ReadMap[string, int64](ctx, q, query, append([]any{run.AppID(app)}, s.db.Batch(names)...)...)
}

// writeFollows writes the followers of a job that replaces old, and lets a new job follow those that name it.
func writeFollows(ctx context.Context, t *dispatch.Tx, old *dispatcher.Job, job dispatcher.Job, all []dispatcher.Follower) error {
	if old == nil {
		if err := joinLeaders(ctx, t, job); err != nil || job.FollowMask() == 0 {
			return err
		}
	}
	if job.FollowMask() == 0 && old.FollowMask() == 0 && !unreadable(old) {
		return nil
	}
	return writeFollowers(ctx, t, job, all)
}

// writeFollowers replaces the rows of followers for a job whose row exists. The bit of alerts stays.
func writeFollowers(ctx context.Context, t *dispatch.Tx, job dispatcher.Job, all []dispatcher.Follower) error {
	// $1 job
	if err := t.Exec(ctx, `DELETE FROM followers WHERE job_id = $1`, job.Key()); err != nil {
		return err
	}
	encoded, err := encodeFollowers(job)
	if err != nil {
		return err
	}
	// $1 job, $2 mask, $3 followers
	const ofJob = `UPDATE jobs SET follows = (follows & 8) | $2, followers = $3 WHERE id = $1`
	if err := t.Exec(ctx, ofJob, job.Key(), int(job.FollowMask()), encoded); err != nil || len(all) == 0 {
		return err
	}
	var jobs, ids []int64
	var events, kinds []int32
	var results []bool
	for _, f := range all {
		jobs, ids, results = append(jobs, f.Job), append(ids, f.ID), append(results, f.Result)
		events, kinds = append(events, int32(f.Event)), append(kinds, int32(f.Kind.Code()))
	}
	// From $1 on: the columns
	insert := t.Rows(0, 1, "", db.Col("job_id", db.Bigint), db.Col("event", db.Integer), db.Col("follower_id", db.Bigint),
		db.Col("kind", db.Integer),
		db.Col("result", db.Boolean)) + ` INSERT INTO followers (job_id, event, follower_id, kind, result)
		SELECT b.job_id, b.event, b.follower_id, b.kind, b.result FROM b`
	return t.Exec(ctx, insert, t.Batch(jobs, events, ids, kinds, results)...)
}

// joinLeaders lets a job that has got its name follow the jobs that name it. One that named it by its former name, too,
// is followed once.
func joinLeaders(ctx context.Context, t *dispatch.Tx, job dispatcher.Job) error {
	awaited := dispatcher.AwaitedKey(job.App, job.Name)
	// $1 awaited key, $2 job
	const twice = `DELETE FROM followers WHERE follower_id = $1 AND EXISTS (SELECT 1 FROM followers AS f
		WHERE f.job_id = followers.job_id AND f.event = followers.event AND f.follower_id = $2)`
	if err := t.Exec(ctx, twice, awaited, job.Key()); err != nil {
		return err
	}
	return t.Exec(ctx, replaceFollower, awaited, job.Key())
}

// $1 former key, $2 key
const replaceFollower = `UPDATE followers SET follower_id = $2 WHERE follower_id = $1`

// Deliveries are runs, and each run belongs to a job. So the destination of a Follow or of an alert has a row among the
// jobs, an attached job, which is part of its owner: it has secrets, retries and revisions as any job, but no trigger.
// Lists, quotas and exports leave it out because users do not declare it.

// loadAttached returns an attached job as it was before the change.
func loadAttached(ctx context.Context, q db.Querier, id int64) (dispatcher.AttachedBefore, error) {
	// $1 id
	const attached = `SELECT j.revision, j.target, j.retry, j.created_at, j.deleted_at IS NOT NULL FROM jobs AS j
		WHERE j.id = $1 AND j.part_of <> 0`
	before, _, err := db.First(ctx, q, func(row db.Scanner) (b dispatcher.AttachedBefore, err error) {
		var job dispatcher.Job
		var target, retry string
		var deleted bool
		err = row.Scan(&b.Revision, &target, &retry, db.InstantColumn(&job.CreatedAt), &deleted)
		unread := errors.Join(json.Unmarshal([]byte(target), &job.Target), json.Unmarshal([]byte(retry), &job.Retry))
		if !deleted && unread == nil { // an unreadable job is replaced as if it were missing
			b.Old = &job
		}
		return b, err
	}, attached, id)
	return before, err
}

// writeAttached writes the decided change of the job with the deliveries of owner. It returns the target as stored.
func (s *Store) writeAttached(ctx context.Context, t *dispatch.Tx, owner int64, c dispatcher.AttachedChange) (target.Target, error) {
	if c.Same {
		return c.Job.Target, nil
	}
	job, secrets := s.sealJobSecrets(c.Job)
	if err := parkAttached(ctx, t, job); err != nil {
		return job.Target, err
	}
	row, err := rowOf(job)
	if err != nil {
		return job.Target, err
	}
	row.partOf = owner
	// From $1 on: the fields of a job
	put := jobFields.Insert("jobs") + ` ON CONFLICT (id) DO UPDATE SET ` + jobFields.Update() + `, deleted_at = NULL`
	if err := t.Exec(ctx, put, jobFields.Values(&row)...); err != nil {
		return job.Target, fmt.Errorf("put job %s/%s: %w", job.App, job.Name, err)
	}
	t.Notify(dispatcher.Notification{JobID: job.Key()})
	return job.Target, writeJobSecrets(ctx, t, c.Old, job, secrets)
}

// parkAttached frees the name by renaming a deleted job that has it and another id.
func parkAttached(ctx context.Context, t *dispatch.Tx, job dispatcher.Job) error {
	return t.Exec(ctx, parkDeleted, run.AppID(job.App), job.Name, job.Key())
}

// deleteAttached deletes the job that made deliveries, if it exists. Its runs end like those of any deleted job.
func deleteAttached(ctx context.Context, t *dispatch.Tx, id int64) error {
	// $1 now, $2 id
	n, err := t.Affect(ctx, `UPDATE jobs SET deleted_at = $1, updated_at = $1 WHERE id = $2 AND part_of <> 0 AND deleted_at IS NULL`,
		t.At.UnixMilli(), id)
	if err != nil || n == 0 {
		return err
	}
	t.Notify(dispatcher.Notification{JobID: id})
	return removeSecrets(ctx, t, id)
}

func renameAttached(ctx context.Context, t *dispatch.Tx, after dispatcher.Job) error {
	for _, event := range run.FollowEvents {
		attached := after.Attached(event)
		if err := parkAttached(ctx, t, attached); err != nil {
			return err
		}
		// $1 id, $2 name, $3 origin
		const rename = `UPDATE jobs SET name = $2, origin = $3, revision = revision + 1 WHERE id = $1 AND part_of <> 0`
		n, err := t.Affect(ctx, rename, attached.Key(), attached.Name, attached.Origin)
		if err != nil {
			return err
		}
		if n > 0 {
			t.Notify(dispatcher.Notification{JobID: attached.Key()})
		}
	}
	return nil
}

// writeAttachedOf writes the attached jobs of a job that replaces old, and returns the job with their stored secrets.
func (s *Store) writeAttachedOf(ctx context.Context, t *dispatch.Tx, old *dispatcher.Job, job dispatcher.Job,
	attached map[run.FollowEvent]dispatcher.AttachedChange) (dispatcher.Job, error) {
	for _, event := range run.FollowEvents {
		change, stays := attached[event]
		if !stays {
			if old != nil && (unreadable(old) || old.Attached(event).Target != (target.Target{})) {
				if err := deleteAttached(ctx, t, job.Attached(event).Key()); err != nil {
					return job, err
				}
			}
			continue
		}
		stored, err := s.writeAttached(ctx, t, job.Key(), change)
		if err != nil {
			return job, err
		}
		job = job.WithFollowSecrets(event, target.Secrets(stored))
	}
	return job, nil
}
