package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// followersOf is what jobs has in followers.
type followersOf struct {
	OnSuccess *dispatcher.Follow `json:"on_success,omitempty"`
	OnFailure *dispatcher.Follow `json:"on_failure,omitempty"`
	OnMisfire *dispatcher.Follow `json:"on_misfire,omitempty"`
}

func encodeFollowers(job dispatcher.Job) (string, error) {
	if job.FollowMask() == 0 {
		return "", nil
	}
	encoded, err := json.Marshal(followersOf{job.OnSuccess, job.OnFailure, job.OnMisfire})
	return string(encoded), err
}

// decodeFollowers reads what follows a job, which nothing does with most.
func (j *jobRow) decodeFollowers() error {
	j.OnSuccess, j.OnFailure, j.OnMisfire = nil, nil, nil
	if j.followers == "" {
		return nil
	}
	var f followersOf
	if err := json.Unmarshal([]byte(j.followers), &f); err != nil {
		return fmt.Errorf("followers: %w", err)
	}
	j.OnSuccess, j.OnFailure, j.OnMisfire = f.OnSuccess, f.OnFailure, f.OnMisfire
	return nil
}

// follower is a row of followers.
type follower struct {
	job    int64
	event  run.FollowMask
	id     int64
	kind   run.Kind
	result bool
}

// findFollowers returns the rows of followers for a job. The error is Problems: a job that it names does not exist, or is
// followed by this one already. The app is locked, so two jobs that are put at once cannot make a circle.
func findFollowers(ctx context.Context, t *tx, app access.App, job dispatcher.Job) ([]follower, error) {
	ids, err := idsOfJobs(ctx, t, job.App, job.Followers())
	if err != nil {
		return nil, err
	}
	var problems input.Problems
	var all []follower
	next := map[int64]bool{}
	for event, follow := range job.EachFollow() {
		for i, name := range follow.Jobs {
			id, found := ids[name]
			if !found {
				problems.Add(input.Pointer(string(event), "jobs", fmt.Sprint(i)), input.CodeFollowUnknown,
					"job %s does not exist in this app; make it first, or name one that does", input.Echo(name))
				continue
			}
			next[id] = true
			all = append(all, follower{job.Key(), event.Mask(), id, run.KindChain, follow.Payload == dispatcher.FollowResult})
		}
		if follow.Target != nil {
			all = append(all, follower{job.Key(), event.Mask(), job.Attached(event).Key(), run.KindFollow, true})
		}
	}
	if err := checkChain(ctx, t, &problems, job, next); err != nil {
		return nil, err
	}
	if len(problems) == 0 { // there is no circle
		if problems, err = checkFanOut(ctx, t, app, job, all); err != nil {
			return nil, err
		}
	}
	return all, problems.Err()
}

// idsOfJobs returns the ids of the jobs that have names in an app.
func idsOfJobs(ctx context.Context, t *tx, app string, names []string) (map[string]int64, error) {
	if len(names) == 0 {
		return nil, nil
	}
	// $1 app, from $2 on: names
	query := t.Rows(0, 2, "", db.NameColumns...) + ` SELECT j.name, j.id FROM b JOIN jobs AS j ON j.name = b.name
		WHERE j.app_id = $1 AND j.deleted_at IS NULL AND j.part_of = 0`
	ids := map[string]int64{}
	_, err := db.Collect(ctx, t, func(row db.Scanner) (struct{}, error) {
		var name string
		var id int64
		err := row.Scan(&name, &id)
		ids[name] = id
		return struct{}{}, err
	}, query, append([]any{run.AppID(app)}, t.Batch(names)...)...)
	return ids, err
}

// checkChain adds a problem if a job would follow itself through next, or if too many jobs would follow it.
func checkChain(ctx context.Context, t *tx, problems *input.Problems, job dispatcher.Job, next map[int64]bool) error {
	from := map[int64]int64{} // the job that each job follows on the way
	level := []int64{}
	for id := range next {
		from[id] = job.Key()
		level = append(level, id)
	}
	for len(level) > 0 && from[job.Key()] == 0 {
		if len(from) > dispatcher.MostFollowing {
			problems.Add("", input.CodeTooMany, "more than %d jobs would follow job %s, directly and through others; make the chain shorter",
				dispatcher.MostFollowing, input.Echo(job.Name))
			return nil
		}
		slices.Sort(level)
		// From $1 on: the ids
		edges, err := db.Collect(ctx, t, func(row db.Scanner) (edge [2]int64, err error) {
			err = row.Scan(&edge[0], &edge[1])
			return edge, err
		}, t.Rows(0, 1, "", db.IDColumns...)+` SELECT f.job_id, f.follower_id FROM b JOIN followers AS f ON f.job_id = b.id
			WHERE f.kind = 4 ORDER BY f.job_id, f.follower_id`, t.Batch(level)...)
		if err != nil {
			return err
		}
		level = level[:0]
		for _, edge := range edges {
			if _, seen := from[edge[1]]; !seen {
				from[edge[1]] = edge[0]
				level = append(level, edge[1])
			}
		}
	}
	if from[job.Key()] == 0 {
		return nil
	}
	return addCycle(ctx, t, problems, job, from)
}

// addCycle adds a problem that names the circle of jobs that leads back to a job.
func addCycle(ctx context.Context, t *tx, problems *input.Problems, job dispatcher.Job, from map[int64]int64) error {
	circle := []int64{job.Key()}
	for at := from[job.Key()]; at != job.Key(); at = from[at] {
		circle = append(circle, at)
	}
	slices.Reverse(circle)
	names := []string{job.Name}
	for _, id := range circle {
		// $1 id
		name, _, err := db.First(ctx, t, db.ScanText, `SELECT name FROM jobs WHERE id = $1`, id)
		if err != nil {
			return err
		}
		if id == job.Key() {
			name = job.Name
		}
		names = append(names, name)
	}
	for event, follow := range job.EachFollow() {
		if i := slices.Index(follow.Jobs, names[1]); i >= 0 {
			problems.Add(input.Pointer(string(event), "jobs", fmt.Sprint(i)), input.CodeFollowCycle,
				"the jobs would follow each other in a circle: %s; take one of them out", strings.Join(names, " -> "))
			return nil
		}
	}
	return errors.New("a circle of jobs begins with no job that is named")
}

// writeFollowers replaces the rows of followers for a job, whose row is written. What is asked for by alerts stays.
func writeFollowers(ctx context.Context, t *tx, job dispatcher.Job, all []follower) error {
	// $1 job
	if _, err := t.ExecContext(ctx, `DELETE FROM followers WHERE job_id = $1`, job.Key()); err != nil {
		return err
	}
	encoded, err := encodeFollowers(job)
	if err != nil {
		return err
	}
	// $1 job, $2 mask, $3 followers
	const ofJob = `UPDATE jobs SET follows = (follows & 8) | $2, followers = $3 WHERE id = $1`
	if _, err := t.ExecContext(ctx, ofJob, job.Key(), int(job.FollowMask()), encoded); err != nil || len(all) == 0 {
		return err
	}
	var jobs, ids []int64
	var events, kinds []int32
	var results []bool
	for _, f := range all {
		jobs, ids, results = append(jobs, f.job), append(ids, f.id), append(results, f.result)
		events, kinds = append(events, int32(f.event)), append(kinds, int32(f.kind.Code()))
	}
	// From $1 on: the columns
	insert := t.Rows(0, 1, "", db.Col("job_id", db.Bigint), db.Col("event", db.Integer), db.Col("follower_id", db.Bigint),
		db.Col("kind", db.Integer),
		db.Col("result", db.Boolean)) + ` INSERT INTO followers (job_id, event, follower_id, kind, result)
		SELECT b.job_id, b.event, b.follower_id, b.kind, b.result FROM b`
	_, err = t.ExecContext(ctx, insert, t.Batch(jobs, events, ids, kinds, results)...)
	return err
}

// removeFollows removes what follows a job that is deleted.
func removeFollows(ctx context.Context, t *tx, job dispatcher.Job) error {
	// $1 job
	if _, err := t.ExecContext(ctx, `DELETE FROM followers WHERE job_id = $1`, job.Key()); err != nil {
		return err
	}
	for event := range job.EachFollow() {
		if err := deleteAttached(ctx, t, job.Attached(event).Key()); err != nil {
			return err
		}
	}
	return nil
}

// mostUsersNamed is how many of the jobs that name another one an error names.
const mostUsersNamed = 5

// notFollowing returns an error that is ErrInUse if other jobs name a job.
func notFollowing(ctx context.Context, t *tx, job dispatcher.Job) error {
	// $1 job, $2 limit
	const users = `SELECT DISTINCT j.name FROM followers AS f JOIN jobs AS j ON j.id = f.job_id WHERE f.follower_id = $1 AND f.kind = 4
		ORDER BY j.name LIMIT $2`
	names, err := db.Collect(ctx, t, db.ScanText, users, job.Key(), mostUsersNamed+1)
	if err != nil || len(names) == 0 {
		return err
	}
	more := ""
	if len(names) > mostUsersNamed {
		names, more = names[:mostUsersNamed], " and others"
	}
	for i, name := range names {
		names[i] = input.Echo(name)
	}
	return fmt.Errorf("job %s follows job %s%s: %w", input.Echo(job.App+"/"+job.Name), strings.Join(names, ", "), more,
		dispatcher.ErrInUse)
}

// renameFollower writes the new name of a job into the definitions of the jobs that it follows. They keep their revisions:
// nothing that they do changes, and a client that renames a job and then declares them by its new name finds them so.
func renameFollower(ctx context.Context, t *tx, before, after dispatcher.Job) error {
	if before.Name == after.Name {
		return nil
	}
	type parent struct {
		id        int64
		followers string
	}
	// $1 job
	const parents = `SELECT DISTINCT j.id, j.followers FROM followers AS f JOIN jobs AS j ON j.id = f.job_id
		WHERE f.follower_id = $1 AND f.kind = 4 ORDER BY j.id`
	all, err := db.Collect(ctx, t, func(row db.Scanner) (p parent, err error) {
		err = row.Scan(&p.id, &p.followers)
		return p, err
	}, parents, after.Key())
	if err != nil {
		return err
	}
	for _, p := range all {
		row := jobRow{followers: p.followers}
		if err := row.decodeFollowers(); err != nil {
			return err
		}
		for _, follow := range row.EachFollow() {
			for i, name := range follow.Jobs {
				if name == before.Name {
					follow.Jobs[i] = after.Name
				}
			}
		}
		renamed, err := encodeFollowers(row.Job)
		if err != nil {
			return err
		}
		// $1 id, $2 followers
		if _, err := t.ExecContext(ctx, `UPDATE jobs SET followers = $2 WHERE id = $1`, p.id, renamed); err != nil {
			return err
		}
		t.notify(dispatcher.Notification{JobID: p.id})
	}
	return nil
}
