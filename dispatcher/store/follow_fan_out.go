package store

import (
	"context"
	"slices"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// fanOut works out what may follow the runs of jobs, as they are declared.
type fanOut struct {
	*tx
	followers map[followed][]int64 // the jobs, and deliveries, that follow an event
	known     map[int64]dispatcher.FanOut
}

// checkFanOut returns a problem if more may follow a run of a job, or of one that it follows, than the bounds of the app allow.
// What was outside before may stay as it is.
func checkFanOut(ctx context.Context, t *tx, app access.App, job dispatcher.Job, after []follower) (problems input.Problems, err error) {
	if len(after) == 0 {
		return nil, nil
	}
	f := fanOut{tx: t, followers: map[followed][]int64{}, known: map[int64]dispatcher.FanOut{}}
	ids := make([]int64, len(after))
	for i, one := range after {
		ids[i] = one.id
	}
	if err := f.read(ctx, append(ids, job.Key())); err != nil {
		return nil, err
	}
	before := f.of(job.Key())
	for _, event := range run.FollowEvents {
		delete(f.followers, followed{job.Key(), event.Mask()})
	}
	for _, one := range after {
		of := followed{job.Key(), one.event}
		f.followers[of] = append(f.followers[of], one.id)
	}
	delete(f.known, job.Key())
	now := f.of(job.Key())
	if now.Runs <= before.Runs && now.Depth <= before.Depth {
		return nil, nil
	}
	first, most, err := f.before(ctx, job.Key(), now, app.Bounds.Quotas)
	if err != nil || most.Runs <= app.Bounds.Quotas.ChainRuns && most.Depth <= app.Bounds.Quotas.ChainDepth {
		return nil, err
	}
	path, err := f.path(ctx, append(first, job.Key()), job)
	if err != nil {
		return nil, err
	}
	quotas := app.Bounds.Quotas
	if most.Runs > quotas.ChainRuns {
		problems.Add("", input.CodeBoundQuota, "up to %d runs would follow one run of job %s, directly and through others, by way of "+
			"%s; the bounds of app %s allow %d (quotas.chain_runs); let fewer jobs follow, or ask an operator for more", most.Runs, path[0],
			strings.Join(path, " -> "), app.Name, quotas.ChainRuns)
	}
	if most.Depth > quotas.ChainDepth {
		problems.Add("", input.CodeBoundQuota, "%d runs would follow one after another on a run of job %s, by way of %s; the bounds of "+
			"app %s allow %d (quotas.chain_depth); make the chain shorter, or ask an operator for more", most.Depth, path[0],
			strings.Join(path, " -> "), app.Name, quotas.ChainDepth)
	}
	return problems, nil
}

// read reads what follows jobs, directly and through others.
func (f *fanOut) read(ctx context.Context, level []int64) error {
	seen := map[int64]bool{}
	for len(level) > 0 {
		slices.Sort(level)
		level = slices.Compact(level)
		for _, id := range level {
			seen[id] = true
		}
		// From $1 on: the ids
		rows, err := db.Collect(ctx, f, func(row db.Scanner) (one follower, err error) {
			err = row.Scan(&one.job, &one.event, &one.id)
			return one, err
		}, f.Rows(0, 1, "", db.IDColumns...)+` SELECT f.job_id, f.event, f.follower_id FROM b JOIN followers AS f ON f.job_id = b.id
			ORDER BY f.job_id, f.event, f.follower_id`, f.Batch(level)...)
		if err != nil {
			return err
		}
		level = level[:0]
		for _, one := range rows {
			of := followed{one.job, one.event}
			if f.followers[of] = append(f.followers[of], one.id); !seen[one.id] {
				level = append(level, one.id)
			}
		}
	}
	return nil
}

// of returns what may follow a run of a job.
func (f *fanOut) of(id int64) (out dispatcher.FanOut) {
	if out, known := f.known[id]; known {
		return out
	}
	for _, event := range run.FollowEvents {
		followers := f.followers[followed{id, event.Mask()}]
		for _, one := range followers {
			out = out.Add(len(followers), one, f.of(one))
		}
	}
	f.known[id] = out
	return out
}

// before returns the jobs that lead to a job, the first one first, so that the most may follow a run of the first, and how much
// that is. It ends once that is more than quotas allow: jobs do not follow each other in circles, so it gets there or ends.
func (f *fanOut) before(ctx context.Context, id int64, out dispatcher.FanOut, quotas target.Quotas) (
	path []int64, most dispatcher.FanOut, err error,
) {
	next, found := map[int64]int64{}, map[int64]dispatcher.FanOut{id: out}
	first, most := id, out
	for level := []int64{id}; len(level) > 0 && most.Runs <= quotas.ChainRuns && most.Depth <= quotas.ChainDepth; {
		slices.Sort(level)
		// From $1 on: the ids
		rows, err := db.Collect(ctx, f, func(row db.Scanner) (one leading, err error) {
			err = row.Scan(&one.job, &one.follower, &one.count)
			return one, err
		}, f.Rows(0, 1, "", db.IDColumns...)+` SELECT f.job_id, f.follower_id, (SELECT count(*) FROM followers AS g
				WHERE g.job_id = f.job_id AND g.event = f.event)
			FROM b JOIN followers AS f ON f.follower_id = b.id ORDER BY f.job_id, f.follower_id`, f.Batch(slices.Compact(level))...)
		if err != nil {
			return nil, most, err
		}
		level = level[:0]
		for _, one := range rows {
			was := found[one.job]
			is := was.Add(one.count, one.follower, found[one.follower])
			if is == was {
				continue
			}
			found[one.job], next[one.job] = is, one.follower
			level = append(level, one.job)
			if is.Runs > most.Runs || is.Depth > most.Depth {
				first, most = one.job, is
			}
		}
	}
	for at := first; at != id; at = next[at] {
		path = append(path, at)
	}
	return path, most, nil
}

// leading is a job that another one follows, by an event with a number of followers.
type leading struct {
	job, follower int64
	count         int
}

// mostNamedOfPath is how many jobs of a path an error names.
const mostNamedOfPath = 10

// path returns the names of jobs on the way to the last of ids, and from there on where the most may follow.
func (f *fanOut) path(ctx context.Context, ids []int64, job dispatcher.Job) ([]string, error) {
	for at := f.of(ids[len(ids)-1]).Next; at != 0; at = f.of(at).Next {
		ids = append(ids, at)
	}
	var names []string
	for _, id := range ids {
		if len(names) == mostNamedOfPath {
			return append(names, "..."), nil
		}
		name := job.Name
		if id != job.Key() {
			var found bool
			var err error
			// $1 id
			if name, found, err = db.First(ctx, f, db.ScanText, `SELECT name FROM jobs WHERE id = $1`, id); err != nil {
				return nil, err
			} else if !found {
				break // a delivery that this change declares
			}
		}
		names = append(names, input.Echo(name))
	}
	return names, nil
}
