package reads

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/definitions"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// The maximum that a timeline reads of each job, however long its history is.
const (
	timelineRuns     = 400 // the latest, and as many unfinished ones
	timelineDead     = 100 // the latest that failed
	timelineMisfires = 100
	// timelineMissed is how long before the timeline a misfire that reaches into it may begin.
	timelineMissed = 31 * db.DayMillis
)

// timelineJob is a row of a timeline with its job.
type timelineJob struct {
	id int64
	dispatcher.Job
	view.TimelineRow
}

// Timeline returns a page of the jobs of an app with their runs, misfires and planned fires. Each page takes the same
// number of statements.
func (s *Store) Timeline(ctx context.Context, query view.TimelineQuery) (page view.Timeline, err error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	page = view.Timeline{From: query.From, To: query.To, Items: []view.TimelineRow{}}
	if page.Now, err = s.db.OrClock(ctx, query.Now); err != nil {
		return page, err
	}
	step := view.TimelineStep(query.From, query.To)
	page.Step = input.Duration(step)
	jobs, err := s.timelineJobs(ctx, query)
	if err != nil {
		return page, err
	}
	if len(jobs) > query.Page.Limit {
		jobs = jobs[:query.Page.Limit]
		page.Next = jobs[len(jobs)-1].Name
	}
	if len(jobs) == 0 {
		return page, nil
	}
	byID, ids := make(map[int64]*timelineJob, len(jobs)), make([]int64, len(jobs))
	for i := range jobs {
		ids[i], byID[jobs[i].id] = jobs[i].id, &jobs[i]
	}
	for _, add := range []func() error{
		func() error { return s.addTimelineRuns(ctx, byID, ids, query) },
		func() error { return s.addTimelineMisfires(ctx, byID, ids, query) },
		func() error {
			return s.addPlanned(ctx, byID, ids, query, view.NewPlanned(ctx, page.Now, query.To, step))
		},
	} {
		if err := add(); err != nil {
			return page, fmt.Errorf("timeline of app %s: %w", query.App, err)
		}
	}
	for i := range jobs {
		jobs[i].Group(page.Now, step)
		page.Items = append(page.Items, jobs[i].TimelineRow)
	}
	return page, nil
}

// timelineJobs returns the jobs of a page and one more, if it exists.
func (s *Store) timelineJobs(ctx context.Context, query view.TimelineQuery) ([]timelineJob, error) {
	if _, err := definitions.ReadApp(ctx, s.db.Read, query.App, ""); err != nil {
		return nil, err
	}
	// $1 app, $2 last name of the page before, $3 how many, $4 the only name; empty: any
	const list = `SELECT j.id, j.name, j.origin FROM jobs AS j WHERE j.app_id = $1 AND j.name > $2 AND j.part_of = 0
		AND j.deleted_at IS NULL AND ($4 = '' OR j.name = $4) ORDER BY j.name LIMIT $3`
	jobs, err := db.Collect(ctx, s.db.Read, func(row db.Scanner) (j timelineJob, err error) {
		j.App = query.App
		err = row.Scan(&j.id, &j.Name, &j.Origin)
		j.TimelineRow.Job, j.Marks = j.Name, []view.TimelineMark{}
		return j, err
	}, list, run.AppID(query.App), query.Page.Cursor, query.Page.Limit+1, query.Job)
	if err == nil && len(jobs) == 0 && query.Job != "" {
		err = dispatcher.NotFound("job", query.App+"/"+query.Job)
	}
	return jobs, err
}

type timelineRun struct {
	job int64
	view.TimelineMark
}

// addTimelineRuns adds the latest runs of each job, the failed ones, and the unfinished ones. A run that is in two of
// these lists, or moves from one to the other meanwhile, gets one mark.
func (s *Store) addTimelineRuns(ctx context.Context, jobs map[int64]*timelineJob, ids []int64, query view.TimelineQuery) error {
	const (
		ended = `r.job_id, r.scheduled_at, r.trigger_id, r.kind, coalesce(r.state, 'succeeded') AS state, coalesce(r.class, '') AS class,
			r.ended_at - r.started_ms AS started_at, r.ended_at`
		live   = `r.job_id, r.scheduled_at, r.trigger_id, r.kind, r.state, r.class, r.started_at, CAST(NULL AS BIGINT) AS ended_at`
		inTime = `r.scheduled_at >= $1 AND r.scheduled_at <= $2 AND r.kind < 16`
	)
	// $1 from, $2 to, $3 on: the jobs
	list := s.db.Rows(0, 3, "", db.IDColumns...) + ` SELECT r.job_id, coalesce(t.name, ''), r.scheduled_at, r.trigger_id, r.kind, r.state,
			r.class, r.started_at, r.ended_at
		FROM (` + s.db.LatestOfEach(ended, `runs`, `r.scheduled_at`, inTime, timelineRuns) + `
			UNION ` + s.db.LatestOfEach(ended, `runs`, `r.scheduled_at`, inTime+` AND `+db.IsDead, timelineDead) + `
			UNION ` + s.db.LatestOfEach(live, `live_runs`, `r.scheduled_at + 0`, `r.scheduled_at + 0 >= $1 AND r.scheduled_at + 0 <= $2
				AND r.kind < 16`, timelineRuns) + `
			UNION SELECT f.job_id, f.scheduled_at, f.trigger_id, CAST(1 AS SMALLINT), 'claimed', '', CAST(NULL AS BIGINT), CAST(NULL AS BIGINT)
			FROM (` + s.db.ClaimedFires() + `) AS f WHERE f.job_id IN (SELECT b.id FROM b) AND f.scheduled_at >= $1 AND f.scheduled_at <= $2
		) AS r LEFT JOIN triggers AS t ON t.id = r.trigger_id
		ORDER BY r.job_id, r.scheduled_at DESC, r.trigger_id, r.kind`
	runs, err := db.Collect(ctx, s.db.Read, func(row db.Scanner) (r timelineRun, err error) {
		var key run.Key
		r.What, r.Count = view.MarkRun, 1
		err = row.Scan(&r.job, &r.Trigger, db.InstantColumn(&key.ScheduledAt), &key.TriggerID, db.KindColumn(&key), &r.State, &r.Class,
			db.OptionalColumn(&r.StartedAt), db.OptionalColumn(&r.EndedAt))
		r.ScheduledAt, r.Run = key.ScheduledAt, key.String()
		return r, err
	}, list,
		append([]any{query.From.UnixMilli(), query.To.UnixMilli()}, s.db.Batch(ids)...)...)
	if err != nil {
		return fmt.Errorf("runs: %w", err)
	}
	seen := make(map[string]int, len(runs))
	for _, run := range runs {
		job := jobs[run.job]
		if i, twice := seen[run.Run]; twice {
			if run.EndedAt != nil {
				job.Marks[i] = run.TimelineMark
			}
			continue
		}
		seen[run.Run] = len(job.Marks)
		job.Marks = append(job.Marks, run.TimelineMark)
	}
	for _, job := range jobs {
		job.More = len(job.Marks) >= timelineRuns
	}
	return nil
}

// addTimelineMisfires adds the latest misfire decisions of each job.
func (s *Store) addTimelineMisfires(ctx context.Context, jobs map[int64]*timelineJob, ids []int64, query view.TimelineQuery) error {
	// $1 the earliest beginning, $2 to, $3 from, $4 on: the jobs
	list := s.db.Rows(0, 4, "", db.IDColumns...) + ` SELECT m.job_id, t.name, m.from_at, m.to_at, m.count, m.decision FROM (` +
		s.db.LatestOfEach(`r.*`, `misfires`, `r.from_at`, `r.from_at >= $1 AND r.from_at <= $2 AND r.to_at >= $3`, timelineMisfires) +
		`) AS m JOIN triggers AS t ON t.id = m.trigger_id ORDER BY m.from_at DESC`
	type missed struct {
		job int64
		view.TimelineMark
	}
	all, err := db.Collect(ctx, s.db.Read, func(row db.Scanner) (m missed, err error) {
		m.What = view.MarkMisfire
		err = row.Scan(&m.job, &m.Trigger, db.InstantColumn(&m.ScheduledAt), db.OptionalColumn(&m.Last), &m.Count, &m.Decision)
		if m.Last != nil && m.Last.Equal(m.ScheduledAt) {
			m.Last = nil
		}
		return m, err
	}, list, append([]any{query.From.UnixMilli() - timelineMissed, query.To.UnixMilli(), query.From.UnixMilli()}, s.db.Batch(ids)...)...)
	if err != nil {
		return fmt.Errorf("misfires: %w", err)
	}
	for _, m := range all {
		jobs[m.job].Marks = append(jobs[m.job].Marks, m.TimelineMark)
	}
	return nil
}

// addPlanned adds the fires in p of the triggers that may fire. It leaves out triggers that take too long to evaluate.
func (s *Store) addPlanned(ctx context.Context, jobs map[int64]*timelineJob, ids []int64, query view.TimelineQuery, p view.Planned) error {
	if !p.To.After(p.After) {
		return nil
	}
	// $1 to, $2 on: the jobs
	list := s.db.Rows(0, 2, "", db.IDColumns...) + ` SELECT ` + dispatch.TriggerColumns + `
		FROM b JOIN triggers AS t ON t.job_id = b.id` + dispatch.WithClock + `
		WHERE c.next_fire_time <= $1 AND c.state = 'waiting' AND c.off = 0 AND t.deleted_at IS NULL`
	triggers, err := db.Collect(ctx, s.db.Read, dispatch.ScanTrigger, list, append([]any{query.To.UnixMilli()}, s.db.Batch(ids)...)...)
	if err != nil {
		return fmt.Errorf("triggers: %w", err)
	}
	_, all, err := s.definitions.AppCalendars(ctx, query.App)
	if err != nil {
		return err
	}
	calendars := dispatcher.CompileCalendars(all)
	if query.From.After(p.After) {
		p.After = query.From.Add(-time.Millisecond)
	}
	for _, t := range triggers {
		job := jobs[t.JobID]
		marks, err := planned(p, job.Job, t, calendars)
		var costly input.Problems
		switch {
		case errors.As(err, &costly):
			job.More = true
		case err != nil:
			return fmt.Errorf("trigger %s/%s/%s: %w", query.App, job.Name, t.Name, err)
		}
		job.Marks = append(job.Marks, marks...)
	}
	return nil
}

func planned(p view.Planned, job dispatcher.Job, t dispatch.TriggerRow, calendars dispatcher.Calendars) ([]view.TimelineMark, error) {
	job.Triggers = map[string]dispatcher.Trigger{t.Name: t.Trigger}
	s, err := t.Parse(job.Identity(t.Name), t.AnchorAt, calendars)
	if err != nil {
		return nil, nil //nolint:nilerr // the trigger is put into quarantine when it is due
	}
	if _, delayed := s.FixedDelay(); delayed {
		if !t.NextFireTime.After(p.After) {
			return nil, nil
		}
		return []view.TimelineMark{{What: view.MarkPlanned, ScheduledAt: *t.NextFireTime, Count: 1, Trigger: t.Name}}, nil
	}
	return p.Marks(s, t.Name)
}
