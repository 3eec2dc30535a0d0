package reads

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/definitions"
)

// deadConditions returns the conditions of a query except app and job.
func deadConditions(query repeat.DeadLetterQuery) (db.Conditions, error) {
	w, err := RunConditions(dispatcher.RunQuery{From: query.From, To: query.To, Page: query.Page}, 0)
	addOutcome(&w, query)
	return w, err
}

func addOutcome(w *db.Conditions, query repeat.DeadLetterQuery) {
	if query.State != "" {
		w.Add("r.state = %s", string(query.State))
	}
	if query.Class != "" {
		w.Add("r.class = %s", string(query.Class))
	}
}

// ofDeadJobs is ofJobs for the jobs of an app, or for one of them; 0: all. replayable leaves out deleted jobs.
func (s *Store) ofDeadJobs(args *definitions.StatementArgs, app string, job int64, replayable bool) string {
	condition := `j.app_id = ` + args.Add(run.AppID(app))
	if job != 0 {
		condition += ` AND j.id = ` + args.Add(job)
	}
	if replayable {
		condition += ` AND j.deleted_at IS NULL`
	}
	return s.ofJobs(condition)
}

// DeadLetters returns a page of the runs that failed permanently.
func (s *Store) DeadLetters(ctx context.Context, query repeat.DeadLetterQuery) ([]run.Run, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	return s.FindDeadLetters(ctx, query, false)
}

// FindDeadLetters returns the dead letters that a query selects, or only those that can be replayed.
func (s *Store) FindDeadLetters(ctx context.Context, query repeat.DeadLetterQuery, replayable bool) ([]run.Run, error) {
	w, err := deadConditions(query)
	if err != nil {
		return nil, err
	}
	of, err := s.IDsOf(ctx, query.App, query.Job, "")
	if err != nil {
		return nil, err
	}
	list := dispatcher.RunQuery{App: query.App, From: query.From, To: query.To, Page: query.Page}
	return s.deadOfApp(ctx, list, w, of.Job, replayable)
}

// deadOfApp returns a page of the dead letters of an app, or of one of its jobs, that meet conditions.
func (s *Store) deadOfApp(ctx context.Context, query dispatcher.RunQuery, w db.Conditions, job int64, replayable bool) (
	[]run.Run, error,
) {
	look := func(w db.Conditions, most int) ([]run.Run, error) {
		args := definitions.StatementArgs(slices.Clone(w.Args))
		page := s.ofDeadJobs(&args, query.App, job, replayable) + s.db.DeadOfEach(w.Text, latestRuns+` LIMIT `+strconv.Itoa(most))
		return db.Collect(ctx, s.db.Read, scanRun, RunQuery(page), args...)
	}
	many, err := s.HasManyJobs(ctx, run.AppID(query.App), s.Walks.Jobs)
	if err != nil {
		return nil, err
	}
	var found walked
	if job == 0 && many {
		if found, err = s.walkDead(ctx, query, w, replayable); err != nil {
			return nil, err
		}
	}
	return s.lookBack(ctx, query, w, found, look)
}

// CountDeadLetters counts the runs that failed permanently.
func (s *Store) CountDeadLetters(ctx context.Context, query repeat.DeadLetterQuery, most int) (
	count repeat.DeadLetterCount, err error,
) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	query.Page = input.Page{}
	of, err := s.IDsOf(ctx, query.App, query.Job, "")
	if err != nil {
		return count, err
	}
	n, err := s.countDead(ctx, query, of.Job, most+1)
	if err != nil {
		return count, fmt.Errorf("count the dead letters of app %s: %w", input.Echo(query.App), err)
	}
	return repeat.DeadLetterCount{Count: min(n, most), More: n > most}, nil
}

// countDead counts the selected dead letters of existing jobs, up to most: first those that a walk finds and, if that
// is not enough, those of each job.
func (s *Store) countDead(ctx context.Context, query repeat.DeadLetterQuery, job int64, most int) (int, error) {
	many, err := s.HasManyJobs(ctx, run.AppID(query.App), s.Walks.CountedJobs)
	if err != nil {
		return 0, err
	}
	if many && job == 0 {
		n, all, err := s.countPastDead(ctx, query, most)
		if err != nil || all {
			return n, err
		}
	}
	w, err := deadConditions(query)
	if err != nil {
		return 0, err
	}
	args := definitions.StatementArgs(slices.Clone(w.Args))
	n, _, err := db.First(ctx, s.db.Read, db.ScanInt, s.ofDeadJobs(&args, query.App, job, true)+` SELECT count(*) FROM (SELECT 1
		FROM b CROSS JOIN runs AS r WHERE `+db.IsDead+` AND r.job_id = b.id`+w.Text+` LIMIT `+strconv.Itoa(most)+`) AS dead`, args...)
	return int(n), err
}

// addFollowers adds to a run its followers, as far as its job declares them now.
func addFollowers(ctx context.Context, q db.Querier, f db.Flavor, r *run.Run, key run.Key) error {
	if key.Shard > 0 {
		return nil
	}
	type candidate struct {
		run.Ref
		key run.Key
	}
	// $1 app, $2 job
	const followers = `SELECT f.event, f.follower_id, f.kind, c.name, a.salt FROM followers AS f JOIN jobs AS j ON j.id = f.job_id
		JOIN jobs AS c ON c.id = f.follower_id JOIN apps AS a ON a.id = j.app_id WHERE j.app_id = $1 AND j.name = $2 ORDER BY f.event, c.name`
	candidates, err := db.Collect(ctx, q, func(row db.Scanner) (c candidate, err error) {
		var event run.FollowMask
		var id int64
		var kind int
		var salt run.Salt
		err = row.Scan(&event, &id, &kind, &c.Job, &salt)
		for _, on := range run.FollowEvents {
			if on.Mask() == event {
				c.On = on
			}
		}
		of, _ := run.KindOfCode(byte(kind))
		c.key = dispatcher.FollowerKey(salt, key, c.On, id, of)
		c.Run, c.App = c.key.String(), r.App
		return c, err
	}, followers, run.AppID(r.App), r.Job)
	if err != nil || len(candidates) == 0 {
		return err
	}
	k := db.NewKeys(len(candidates))
	for _, c := range candidates {
		k.Add(c.key, 0, 0)
	}
	at := key.ScheduledAt.UnixMilli()
	// $1 first day, $2 end of the last, from $3 on: the keys
	states := f.Rows(0, 3, "", db.KeyColumns[:3]...) + ` SELECT b.trigger_id, coalesce(r.state, 'succeeded') FROM b JOIN runs AS r ON` +
		db.OfBatch(f) + db.Within + ` UNION ALL SELECT b.trigger_id, r.state FROM b JOIN live_runs AS r ON` + db.OfBatch(f)
	args := append([]any{db.Day(at), db.Day(at) + db.DayMillis}, f.Batch(k.At, k.Trigger, k.Kind)...)
	found, err := db.ReadMap[int64, run.State](ctx, q, states, args...)
	for _, c := range candidates {
		if c.State = found[c.key.TriggerID]; c.State != "" {
			r.FollowedBy = append(r.FollowedBy, c.Ref)
		}
	}
	return err
}
