package definitions

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// NotOfBackfill selects the runs r that are neither part of a backfill nor follow such a run. The input of such a
// follower begins with that cause.
const NotOfBackfill = `r.kind <> 5 AND (r.kind <> 4 OR NOT EXISTS (SELECT 1 FROM run_inputs AS x WHERE x.scheduled_at = r.scheduled_at
		AND x.trigger_id = r.trigger_id AND x.kind = 4 AND x.input LIKE '{"cause":{"backfill":"%'))`

// searchedRuns is how many of the latest runs of a job are searched for a success. If none of so many succeeded, it is
// not known whether an earlier one did.
const searchedRuns = `20000`

// Success is the last success of a job as far as it is known.
type Success struct {
	// At is when the last run succeeded; zero if none is known.
	At time.Time
	// DeclaredAt is when the job was declared, if no run succeeded since; zero if that is not known.
	DeclaredAt time.Time
}

// Successes returns the last success of each job among its runs that were scheduled since a time, in milliseconds.
func (j *Judgement) Successes(ctx context.Context, jobs, since []int64) (map[int64]Success, error) {
	// From $1 on: id, since
	read := j.Rows(0, 1, "", db.Col("id", db.Bigint), db.Col("since", db.Bigint)) + ` SELECT b.id, COALESCE((SELECT r.ended_at
			FROM (SELECT r.ended_at, r.state, r.kind, r.scheduled_at, r.trigger_id FROM runs AS r WHERE r.job_id = b.id AND r.scheduled_at >= b.since
				ORDER BY r.scheduled_at DESC LIMIT ` + searchedRuns + `) AS r
			WHERE r.state IS NULL AND r.kind < 16 AND ` + NotOfBackfill + ` LIMIT 1),
			(SELECT 0 FROM runs AS r WHERE r.job_id = b.id AND r.scheduled_at >= b.since
				ORDER BY r.scheduled_at DESC LIMIT 1 OFFSET ` + searchedRuns + `)) FROM b`
	all := make(map[int64]Success, len(jobs))
	err := db.EachRow(ctx, j, func(row db.Scanner) error {
		var job int64
		var ended *int64 // 0: there are more runs than are searched
		err := row.Scan(&job, &ended)
		one := all[job]
		switch {
		case ended == nil:
			one.DeclaredAt = db.Zeroable(j.Jobs[job].DeclaredAt)
		case *ended > 0:
			one.At = input.Later(one.At, db.Instant(*ended))
		}
		all[job] = one
		return err
	}, read, j.Batch(jobs, since)...)
	if err != nil {
		return nil, fmt.Errorf("read the last success of jobs: %w", err)
	}
	return all, nil
}

// details are facts about the runs and jobs of notifications.
type details struct {
	triggers  map[string]string // names, by the id of the run
	responses map[string]string // the beginning of the response to the attempt that failed, by the id of the run
	successes map[int64]Success // by job; only for conditions that hold
}

// detailsOf reads the details of the transitions that are notified.
func (j *Judgement) detailsOf(ctx context.Context) (d details, err error) {
	var jobs []int64
	for _, m := range j.made {
		if m.Kept == "" && m.Transition != target.AlertResolved {
			jobs = append(jobs, m.job.ID)
		}
	}
	if d.triggers, err = j.triggerNames(ctx); err != nil || len(jobs) == 0 {
		return d, err
	}
	jobs = slices.Compact(slices.Sorted(slices.Values(jobs)))
	if d.successes, err = j.Successes(ctx, jobs, make([]int64, len(jobs))); err != nil {
		return d, err
	}
	d.responses, err = j.responses(ctx)
	return d, err
}

// responses reads the beginnings of the responses to the attempts that made conditions hold.
func (j *Judgement) responses(ctx context.Context) (map[string]string, error) {
	keys := db.NewKeys(len(j.made))
	for _, m := range j.made {
		if key, err := run.ParseKey(m.Observation.Run); err == nil && m.Kept == "" && m.Observation.Attempt > 0 {
			keys.Add(key, 0, m.Observation.Attempt)
		}
	}
	if len(keys.At) == 0 {
		return nil, nil
	}
	// From $1 on: the keys
	read := j.Rows(0, 1, "", db.KeyColumns...) + ` SELECT b.scheduled_at, b.trigger_id, b.kind, s.response FROM b JOIN responses AS s
		ON s.scheduled_at = b.scheduled_at AND s.trigger_id = b.trigger_id AND s.kind = b.kind AND s.attempt = b.attempt`
	all := map[string]string{}
	err := db.EachRow(ctx, j, func(row db.Scanner) error {
		var text string
		var response run.Response
		key, err := dispatch.ScanRunKey(db.WiderRow{Scanner: row, After: []any{&text}})
		if err == nil {
			err = json.Unmarshal([]byte(text), &response)
		}
		all[key.String()] = ShownResponse(response)
		return err
	}, read, j.Batch(keys.At, keys.Trigger, keys.Kind, keys.Token, keys.Attempt)...)
	if err != nil {
		return nil, fmt.Errorf("read responses to attempts that failed: %w", err)
	}
	return all, nil
}

// ShownResponse returns the beginning of a response, on one line, as a notification has it.
func ShownResponse(response run.Response) string {
	const most = 300 // bytes
	return input.Cut(input.OneLine(strings.TrimSpace(response.Body)), most)
}

// triggerNames returns the names of the triggers of the runs in notifications, by the ids of the runs.
func (j *Judgement) triggerNames(ctx context.Context) (map[string]string, error) {
	runs := map[string]int64{}
	var ids []int64
	for _, m := range j.made {
		for _, r := range []string{m.track.Run, m.Observation.Run} {
			if key, err := run.ParseKey(r); err == nil && m.Kept == "" && key.Kind.OfTrigger() {
				runs[r] = key.TriggerID
				ids = append(ids, key.TriggerID)
			}
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	// From $1 on: ids
	read := j.Rows(0, 1, "", db.IDColumns...) + ` SELECT t.id, t.name FROM b JOIN triggers AS t ON t.id = b.id`
	byID, err := db.ReadMap[int64, string](ctx, j, read, j.Batch(slices.Compact(slices.Sorted(slices.Values(ids))))...)
	names := make(map[string]string, len(runs))
	for run, id := range runs {
		names[run] = byID[id]
	}
	return names, err
}

// NextFires returns how to find the next scheduled time of a job, as alert.Facts.Next, and whether a pause or a switch of
// each of its triggers keeps all of them from firing. For a job without triggers, next is nil and held is true.
func (s *Store) NextFires(ctx context.Context, j *Judgement, job *JudgedJob) (
	next func(after time.Time) (time.Time, bool), held bool, err error,
) {
	read, err := s.readJob(ctx, j, job.App, job.Name, "")
	if err != nil || read.Err != nil || len(read.Triggers) == 0 {
		return nil, err == nil && read.Err == nil, err
	}
	_, calendars, err := calendarsOf(ctx, j, job.App, read.Job)
	if err != nil {
		return nil, false, err
	}
	var schedules []*schedule.Schedule
	for name, t := range read.Triggers {
		if !t.Enabled || t.Paused {
			continue
		}
		parsed, err := t.Parse(read.Identity(name), t.AnchorAt, calendars)
		if err != nil {
			return nil, false, nil //nolint:nilerr // the trigger shows it, and the time counts as without a schedule
		}
		if _, delayed := parsed.FixedDelay(); delayed && t.State == dispatcher.TriggerComplete {
			continue
		} else if delayed {
			return nil, false, nil // its next fire depends on the end of a run
		}
		schedules = append(schedules, parsed)
	}
	return func(after time.Time) (time.Time, bool) { return firstAfter(schedules, after) }, len(schedules) == 0, nil
}

// firstAfter returns the first scheduled time of any of the schedules after an instant; ok is false if there is none.
func firstAfter(schedules []*schedule.Schedule, after time.Time) (first time.Time, ok bool) {
	for _, s := range schedules {
		if next, fires := s.Next(after); fires && (!ok || next.Before(first)) {
			first, ok = next, true
		}
	}
	return first, ok
}
