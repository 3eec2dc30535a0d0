package reads

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/definitions"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// How many jobs a page of summaries examines for those that a query selects: names are in an index, states and labels
// in the rows of jobs, and results are looked up in the history, job by job.
const (
	examinedNames   = 100_000
	examinedJobs    = 2_000
	examinedResults = 1_000
)

// summaryColumns are the columns of a job AS j in lists over all apps.
const summaryColumns = `j.id, j.app, j.name, j.description, j.labels, j.state, j.enabled, j.paused, j.pause, j.app_paused, j.revision,
	j.target_kind, j.target_name`

// summaryRow is a summary with the key of its job.
type summaryRow struct {
	dispatcher.JobSummary
	id int64
}

func scanSummary(row db.Scanner) (j summaryRow, err error) {
	err = row.Scan(&j.id, &j.App, &j.Name, &j.Description, db.LabelsColumn(&j.Labels), &j.State, &j.Enabled, &j.Paused,
		dispatch.PauseColumn(&j.Pause), &j.AppPaused, &j.Revision, &j.Target.Kind, &j.Target.Name)
	return j, err
}

// JobSummaries returns a page of summaries of jobs.
func (s *Store) JobSummaries(ctx context.Context, query dispatcher.JobQuery) ([]dispatcher.JobSummary, string, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	now, err := s.db.OrClock(ctx, query.Now)
	if err != nil {
		return nil, "", err
	}
	list := SummaryList{Query: query, left: examinedNames, Recent: db.Day(now.UnixMilli()) - db.DayMillis}
	switch {
	case query.Result != "":
		list.left = examinedResults
	case query.State != "" || len(query.Page.Labels) > 0:
		list.left = examinedJobs
	}
	selected := s.selectSummaries
	if query.ByNextFire {
		selected = s.summariesByNextFire
	} else if query.Page.Cursor != "" {
		var ok bool
		if list.app, list.job, ok = dispatcher.ParseJobCursor(query.Page.Cursor); !ok {
			return nil, "", fmt.Errorf("cursor %s is not that of a job", input.Echo(query.Page.Cursor))
		}
	}
	if err := selected(ctx, &list); err != nil {
		return nil, "", fmt.Errorf("list jobs: %w", err)
	}
	if err := s.addFires(ctx, list.found); err != nil {
		return nil, "", fmt.Errorf("read the fire times of %d jobs: %w", len(list.found), err)
	}
	if err := s.addLatestRuns(ctx, list.found, list.Recent); err != nil {
		return nil, "", fmt.Errorf("read the latest runs of %d jobs: %w", len(list.found), err)
	}
	summaries := make([]dispatcher.JobSummary, len(list.found))
	for i, row := range list.found {
		summaries[i] = row.JobSummary
	}
	return summaries, list.next, nil
}

// SummaryList is a page of summaries under construction.
type SummaryList struct {
	Query    dispatcher.JobQuery
	app, job string // after which it continues
	left     int    // jobs that it may still examine
	Recent   int64  // the instant since which most jobs have a run
	found    []summaryRow
	next     string
}

// selectSummaries finds the jobs of a page, app by app if the query names apps.
func (s *Store) selectSummaries(ctx context.Context, list *SummaryList) error {
	if len(list.Query.Apps) == 0 {
		return s.summariesOf(ctx, list, "")
	}
	for _, app := range slices.Compact(slices.Sorted(slices.Values(list.Query.Apps))) {
		if app < list.app {
			continue
		}
		if app > list.app {
			list.app, list.job = app, ""
		}
		if list.next != "" || len(list.found) > 0 && len(list.found) == list.Query.Page.Limit {
			list.next = cmp.Or(list.next, dispatcher.JobCursor(list.found[len(list.found)-1].App, list.found[len(list.found)-1].Name))
			return nil
		}
		if err := s.summariesOf(ctx, list, app); err != nil {
			return err
		}
	}
	return nil
}

// summariesOf adds jobs of an app, or of all apps.
func (s *Store) summariesOf(ctx context.Context, list *SummaryList, app string) error {
	var args definitions.StatementArgs
	inner := list.Candidates(app, &args)
	filters := list.Filters(&args)
	wanted := list.Query.Page.Limit - len(list.found)
	looked, order := list.left, `c.app, c.name`
	if filters == "" {
		looked = wanted + 1
	}
	if app != "" {
		order = `c.name` // otherwise PostgreSQL sorts all rows, unaware that they have one app
	}
	statement := `SELECT ` + summaryColumns + ` FROM (SELECT j.id, j.app, j.name` + inner + ` LIMIT ` + args.Add(looked) + `) AS c
		CROSS JOIN jobs AS j WHERE j.id = c.id` + filters + ` ORDER BY ` + order + ` LIMIT ` + args.Add(wanted+1)
	page := input.Page{Bytes: list.Query.Page.Bytes}
	found, err := db.CollectPage(ctx, s.db.Read, page, scanSummary, nil, statement, args...)
	early := errors.Is(err, dispatcher.ErrPageBytes)
	if err != nil && !early {
		return err
	}
	if len(found) > wanted {
		found, early = found[:wanted], true
	}
	list.found = append(list.found, found...)
	if early {
		last := list.found[len(list.found)-1]
		list.next = dispatcher.JobCursor(last.App, last.Name)
		return nil
	}
	if filters == "" {
		return nil
	}
	// Did the page examine all jobs? If not, the next one continues after the last of them.
	args = nil
	last := `SELECT j.app, j.name` + list.Candidates(app, &args) + ` LIMIT 1 OFFSET ` + args.Add(list.left-1)
	var lastApp, lastJob string
	left, err := db.ReadRow(ctx, s.db.Read, []any{&lastApp, &lastJob}, last, args...)
	if left {
		list.next = dispatcher.JobCursor(lastApp, lastJob)
	}
	return err
}

// summariesByNextFire adds jobs by when the first of their triggers is due. It examines triggers in the order of the
// index by which nodes poll, only so many at once. The cursor is the key of the run that the fire will be.
func (s *Store) summariesByNextFire(ctx context.Context, list *SummaryList) error {
	after := run.Key{ScheduledAt: db.Instant(0)}
	if cursor := list.Query.Page.Cursor; cursor != "" {
		var err error
		if after, err = run.ParseKey(cursor); err != nil {
			return fmt.Errorf("cursor %s: %w", input.Echo(cursor), err)
		}
	}
	args := definitions.StatementArgs{after.ScheduledAt.UnixMilli(), after.TriggerID}
	// $1 instant and $2 trigger after which the page begins
	const due = `SELECT c.due_at, c.id FROM trigger_clock AS c
		WHERE c.off = 0 AND c.due_at IS NOT NULL AND (c.due_at, c.id) > ($1, $2) ORDER BY c.due_at, c.id LIMIT `
	statement := `SELECT c.due_at, c.trigger_id, ` + summaryColumns + ` FROM (SELECT d.due_at, d.id AS trigger_id, t.job_id AS id, n.name
			FROM (` + due + strconv.Itoa(list.left) + `) AS d JOIN triggers AS t ON t.id = d.id JOIN jobs AS n ON n.id = t.job_id) AS c
		CROSS JOIN jobs AS j WHERE j.id = c.id AND j.deleted_at IS NULL AND j.part_of = 0 AND NOT EXISTS (
			SELECT 1 FROM triggers AS o JOIN trigger_clock AS e ON e.id = o.id
			WHERE o.job_id = c.id AND e.off = 0 AND (e.due_at, e.id) < (c.due_at, c.trigger_id))` + list.Filters(&args)
	if list.Query.Host != "" {
		statement += ` AND j.target_name = ` + args.Add(list.Query.Host)
	}
	statement += s.lookAt(list.Query.Apps).ofApps(`j.app_id`, &args) +
		` ORDER BY c.due_at, c.trigger_id LIMIT ` + args.Add(list.Query.Page.Limit+1)
	var keys []run.Key
	found, err := db.CollectPage(ctx, s.db.Read, input.Page{Bytes: list.Query.Page.Bytes}, func(row db.Scanner) (summaryRow, error) {
		key := run.Key{Kind: run.KindSchedule}
		job, err := scanSummary(db.WiderRow{Scanner: row, Before: []any{db.InstantColumn(&key.ScheduledAt), &key.TriggerID}})
		keys = append(keys, key)
		return job, err
	}, nil, statement, args...)
	most := min(len(found), list.Query.Page.Limit)
	list.found = found[:most]
	switch early := errors.Is(err, dispatcher.ErrPageBytes); {
	case err != nil && !early:
		return err
	case early || most < len(found):
		list.next = keys[most-1].String()
		return nil
	}
	// Did the page examine all triggers? If not, the next one continues after the last of them.
	last := run.Key{Kind: run.KindSchedule}
	further, err := db.ReadRow(ctx, s.db.Read, []any{db.InstantColumn(&last.ScheduledAt), &last.TriggerID},
		due+`1 OFFSET `+strconv.Itoa(list.left-1), args[:2]...)
	if further {
		list.next = last.String()
	}
	return err
}

// Candidates are the jobs AS j that a page examines, in its order.
func (l *SummaryList) Candidates(app string, args *definitions.StatementArgs) string {
	where := ` FROM jobs AS j WHERE j.deleted_at IS NULL AND j.part_of = 0`
	if l.Query.Host != "" {
		where += ` AND j.target_name = ` + args.Add(l.Query.Host)
	}
	switch {
	case app != "":
		where += ` AND j.app = ` + args.Add(app) + ` AND j.name > ` + args.Add(l.job)
	case l.app != "":
		where += ` AND (j.app, j.name) > (` + args.Add(l.app) + `, ` + args.Add(l.job) + `)`
	}
	if app != "" {
		return where + ` ORDER BY j.name`
	}
	return where + ` ORDER BY j.app, j.name`
}

// latestOf is a query for one value of the latest scheduled run of a job among the runs r of a table that meet
// conditions. The order begins with the job, as in db.EndedOfEach.
func latestOf(value, table, job, conditions string) string {
	at := `r.scheduled_at`
	if table == "live_runs" {
		at = `(r.scheduled_at + 0)` // as its index has it
	}
	return `(SELECT ` + value + ` FROM ` + table + ` AS r WHERE r.job_id >= ` + job + ` AND r.job_id <= ` + job + ` AND r.kind < 16` +
		conditions + ` ORDER BY r.job_id DESC, ` + at + ` DESC LIMIT 1)`
}

// earlier is how long before the latest days the second range begins, in which most other jobs have run: PostgreSQL
// searches an index for each day, and ninety days take thirty times as long as the latest ones.
const earlier = 14 * db.DayMillis

// latestEndOf is latestOf for the history. It searches the latest days first, because each day has its own index, and
// all days last.
func latestEndOf(value, job string, recent int64) string {
	since := func(from int64) string {
		return latestOf(value, `runs`, job, ` AND r.scheduled_at >= `+strconv.FormatInt(from, 10))
	}
	return `coalesce(` + since(recent) + `, ` + since(recent-earlier) + `, ` + latestOf(value, `runs`, job, ``) + `)`
}

// Filters select some of these jobs.
func (l *SummaryList) Filters(args *definitions.StatementArgs) (where string) {
	if l.Query.State != "" {
		where += ` AND j.state = ` + args.Add(string(l.Query.State))
	}
	if l.Query.Name != "" {
		where += ` AND replace(c.name, ` + args.Add(l.Query.Name) + `, '') <> c.name`
	}
	where += definitions.WithLabels(l.Query.Page.Labels, args)
	if l.Query.Result != "" {
		where += ` AND ` + latestEndOf(`coalesce(r.state, 'succeeded')`, `j.id`, l.Recent) + ` = ` + args.Add(string(l.Query.Result))
	}
	return where
}

// summaryIDs returns the keys of jobs, and the position of each.
func summaryIDs(jobs []summaryRow) (ids []int64, at map[int64]int) {
	at = make(map[int64]int, len(jobs))
	for i, job := range jobs {
		ids, at[job.id] = append(ids, job.id), i
	}
	return ids, at
}

// addFires adds the numbers of triggers of jobs, and their next fires.
func (s *Store) addFires(ctx context.Context, jobs []summaryRow) error {
	if len(jobs) == 0 {
		return nil
	}
	ids, at := summaryIDs(jobs)
	// From $1 on: jobs
	fires := s.db.Rows(0, 1, "", db.IDColumns...) + ` SELECT t.job_id, count(*), min(CASE WHEN c.off = 0 THEN c.next_fire_time END)
		FROM b JOIN triggers AS t ON t.job_id = b.id JOIN trigger_clock AS c ON c.id = t.id WHERE t.deleted_at IS NULL GROUP BY t.job_id`
	return db.EachRow(ctx, s.db.Read, func(row db.Scanner) error {
		var id int64
		var triggers int
		var next *time.Time
		err := row.Scan(&id, &triggers, db.OptionalColumn(&next))
		job := &jobs[at[id]]
		job.Triggers, job.NextFireTime = triggers, next
		return err
	}, fires, s.db.Batch(ids)...)
}

// A run as one text for readLatest: of ended runs, and of others.
const (
	summarizedEnd = `r.scheduled_at || ' ' || r.trigger_id || ' ' || r.kind || ' ' || r.attempt || ' ' || r.ended_at || ' ' ||
		CASE WHEN r.waited IS NULL THEN coalesce(r.ended_at - r.started_ms, -1) ELSE -1 END ||
		' ' || coalesce(r.state, 'succeeded') || ' ' || coalesce(r.class, '')`
	summarizedLive = `r.scheduled_at || ' ' || r.trigger_id || ' ' || r.kind || ' ' || r.attempt || ' -1 ' ||
		CASE WHEN r.waited = '' THEN coalesce(r.started_at, -1) ELSE -1 END || ' ' || r.state || ' ' || r.class`
)

// readLatest reads such a text.
func readLatest(text string) (r dispatcher.RunSummary, err error) {
	parts := strings.Split(text, " ")
	if len(parts) != 8 {
		return r, fmt.Errorf("latest run %q is not in eight parts", text)
	}
	var numbers [6]int64
	for i := range numbers {
		if numbers[i], err = strconv.ParseInt(parts[i], 10, 64); err != nil {
			return r, err
		}
	}
	var key run.Key
	key.SetCode(int(numbers[2]))
	key.ScheduledAt, key.TriggerID = db.Instant(numbers[0]), numbers[1]
	r = dispatcher.RunSummary{ID: key.String(), ScheduledAt: key.ScheduledAt, State: run.State(parts[6]),
		Class: run.Class(parts[7])}
	if ended := numbers[4]; ended >= 0 {
		r.EndedAt = new(db.Instant(ended))
	}
	if started := numbers[5]; started >= 0 && numbers[3] == 1 && key.Kind == run.KindSchedule {
		r.Lateness = new(db.Millis(started - numbers[0]))
	}
	return r, nil
}

func (s *Store) addLatestRuns(ctx context.Context, jobs []summaryRow, recent int64) error {
	if len(jobs) == 0 {
		return nil
	}
	ids, at := summaryIDs(jobs)
	// From $1 on: jobs
	latest := s.db.Rows(0, 1, "", db.IDColumns...) + ` SELECT b.id, ` + latestEndOf(summarizedEnd, `b.id`, recent) + `, ` +
		latestOf(summarizedLive, `live_runs`, `b.id`, ``) + ` FROM b`
	err := db.EachRow(ctx, s.db.Read, func(row db.Scanner) error {
		var id int64
		var ended, live *string
		if err := row.Scan(&id, &ended, &live); err != nil {
			return err
		}
		job := &jobs[at[id]]
		for _, text := range []*string{ended, live} {
			if text == nil {
				continue
			}
			run, err := readLatest(*text)
			if err != nil {
				return err
			}
			if run.EndedAt != nil {
				job.Result = run.State
			}
			job.consider(run)
		}
		return nil
	}, latest, s.db.Batch(ids)...)
	if err != nil {
		return err
	}
	// From $1 on: jobs. A fire that has ended stays in its claim until the others have; then the history has it, too.
	claimed := s.db.Rows(0, 1, "", db.IDColumns...) + ` SELECT f.job_id, f.scheduled_at, f.trigger_id
		FROM (` + s.db.ClaimedFires() + `) AS f JOIN b ON b.id = f.job_id`
	return db.EachRow(ctx, s.db.Read, func(row db.Scanner) error {
		var id int64
		key := run.Key{Kind: run.KindSchedule}
		err := row.Scan(&id, db.InstantColumn(&key.ScheduledAt), &key.TriggerID)
		jobs[at[id]].consider(dispatcher.RunSummary{ID: key.String(), ScheduledAt: key.ScheduledAt, State: run.Claimed})
		return err
	}, claimed, s.db.Batch(ids)...)
}

// consider makes a run the latest of its job if it was scheduled after the known one.
func (j *summaryRow) consider(run dispatcher.RunSummary) {
	if j.LatestRun == nil || run.ScheduledAt.After(j.LatestRun.ScheduledAt) {
		j.LatestRun = &run
	}
}

// UpcomingTriggers lists triggers that are due before an instant, by their ids.
func (s *Store) UpcomingTriggers(ctx context.Context, apps []string, until time.Time, after int64, limit int) (
	[]view.UpcomingTrigger, error,
) {
	l := s.lookAt(apps)
	args := definitions.StatementArgs{after, until.UnixMilli()}
	// $1 last id of the page before, $2 until
	list := `SELECT ` + dispatch.TriggerColumns + `, j.app, coalesce(nullif(j.origin, ''), j.name) FROM (SELECT c.* FROM trigger_clock AS c
			WHERE c.id > $1 AND c.off = 0 AND c.due_at < $2` + l.ofApps(`c.app_id`, &args) + ` ORDER BY c.id LIMIT ` + strconv.Itoa(limit) + `) AS c
		JOIN triggers AS t ON t.id = c.id JOIN jobs AS j ON j.id = t.job_id ORDER BY c.id`
	found, err := db.Collect(ctx, s.db.Read, func(row db.Scanner) (t view.UpcomingTrigger, err error) {
		var job string
		one, err := dispatch.ScanTrigger(db.WiderRow{Scanner: row, After: []any{&t.App, &job}})
		t.ID, t.Trigger = one.ID, one.Trigger
		t.Identity = dispatcher.Identity(t.App, job, cmp.Or(one.Origin, one.Name))
		return t, err
	}, list, args...)
	if err != nil {
		return nil, fmt.Errorf("list upcoming triggers: %w", err)
	}
	return found, nil
}
