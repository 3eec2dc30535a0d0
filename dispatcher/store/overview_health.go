package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

const (
	// examinedSuccesses is how many of the latest runs of a job that are over are looked through for one that succeeded.
	examinedSuccesses = 100
	// mostUnlisted bounds what it costs to count the jobs that are not listed.
	mostUnlisted = 100_000
)

// HealthOfJobs returns how the first jobs do, and how many more there are.
func (s *Store) HealthOfJobs(ctx context.Context, apps []string, most int, now time.Time) ([]dispatcher.JobHealth, int, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	now, err := s.db.OrClock(ctx, now)
	if err != nil {
		return nil, 0, err
	}
	recent := db.Day(now.UnixMilli()) - db.DayMillis
	list := summaryList{query: dispatcher.JobQuery{Apps: apps, Page: input.Page{Limit: most}}, left: examinedNames, recent: recent}
	if err := s.selectSummaries(ctx, &list); err != nil {
		return nil, 0, fmt.Errorf("list jobs: %w", err)
	}
	if err := s.addFires(ctx, list.found); err != nil {
		return nil, 0, fmt.Errorf("read the fire times of %d jobs: %w", len(list.found), err)
	}
	if err := s.addLatestRuns(ctx, list.found, recent); err != nil {
		return nil, 0, fmt.Errorf("read the latest runs of %d jobs: %w", len(list.found), err)
	}
	jobs := make([]dispatcher.JobHealth, len(list.found))
	for i, row := range list.found {
		jobs[i].JobSummary = row.JobSummary
	}
	if err := s.addSuccesses(ctx, list.found, jobs, recent); err != nil {
		return nil, 0, fmt.Errorf("read the latest successes of %d jobs: %w", len(list.found), err)
	}
	if list.next == "" {
		return jobs, 0, nil
	}
	all, err := s.countJobs(ctx, apps, mostUnlisted+most)
	if err != nil {
		return nil, 0, fmt.Errorf("count jobs: %w", err)
	}
	return jobs, all - len(jobs), nil
}

// countJobs returns how many jobs some apps have, each up to a bound; no apps stand for all of them, which have that bound together.
func (s *Store) countJobs(ctx context.Context, apps []string, most int) (count int, err error) {
	if len(apps) == 0 {
		apps = []string{""}
	}
	for _, app := range slices.Compact(slices.Sorted(slices.Values(apps))) {
		var args statementArgs
		of := `SELECT count(*) FROM (SELECT 1` + (&summaryList{}).candidates(app, &args) + ` LIMIT ` + args.add(most) + `) AS j`
		n, _, err := db.First(ctx, s.db.Read, db.ScanInt, of, args...)
		if err != nil {
			return 0, err
		}
		count += int(n)
	}
	return count, nil
}

// addSuccesses adds to jobs when their latest successes ended.
func (s *Store) addSuccesses(ctx context.Context, rows []summaryRow, jobs []dispatcher.JobHealth, recent int64) error {
	if len(rows) == 0 {
		return nil
	}
	ids, at := summaryIDs(rows)
	latest := func(conditions string) string {
		return `(SELECT max(r.ended_at) FROM (SELECT r.ended_at, r.state FROM runs AS r
			WHERE r.job_id >= b.id AND r.job_id <= b.id AND r.kind < 16` + conditions + `
			ORDER BY r.job_id DESC, r.scheduled_at DESC LIMIT ` + strconv.Itoa(examinedSuccesses) + `) AS r
			WHERE coalesce(r.state, 'succeeded') = 'succeeded')`
	}
	// From $1 on: jobs. The latest days come first, because each day has an index of its own.
	successes := s.db.Rows(0, 1, "", db.IDColumns...) + ` SELECT b.id, coalesce(` +
		latest(` AND r.scheduled_at >= `+strconv.FormatInt(recent, 10)) + `, ` + latest(``) + `) FROM b`
	_, err := db.Collect(ctx, s.db.Read, func(row db.Scanner) (struct{}, error) {
		var id int64
		var ended *time.Time
		err := row.Scan(&id, db.OptionalColumn(&ended))
		jobs[at[id]].LastSuccess = ended
		return struct{}{}, err
	}, successes, s.db.Batch(ids)...)
	return err
}
