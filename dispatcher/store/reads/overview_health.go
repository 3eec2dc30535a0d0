package reads

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/definitions"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

const (
	// examinedSuccesses is how many of the latest ended runs of a job are examined for a success.
	examinedSuccesses = 100
	// MostUnlisted bounds the cost of counting the jobs that are not listed.
	MostUnlisted = 100_000
)

// HealthOfJobs returns the health of the first jobs, and the number of others.
func (s *Store) HealthOfJobs(ctx context.Context, apps []string, most int, now time.Time) ([]dispatcher.JobHealth, int, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	now, err := s.db.OrClock(ctx, now)
	if err != nil {
		return nil, 0, err
	}
	recent := db.Day(now.UnixMilli()) - db.DayMillis
	list := SummaryList{Query: dispatcher.JobQuery{Apps: apps, Page: input.Page{Limit: most}}, left: examinedNames, Recent: recent}
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
	all, err := s.countJobs(ctx, apps, MostUnlisted+most)
	if err != nil {
		return nil, 0, fmt.Errorf("count jobs: %w", err)
	}
	return jobs, all - len(jobs), nil
}

// countJobs returns how many jobs some apps have, each up to a bound; without apps all jobs count, up to one bound.
func (s *Store) countJobs(ctx context.Context, apps []string, most int) (count int, err error) {
	if len(apps) == 0 {
		apps = []string{""}
	}
	for _, app := range slices.Compact(slices.Sorted(slices.Values(apps))) {
		var args definitions.StatementArgs
		of := `SELECT count(*) FROM (SELECT 1` + (&SummaryList{}).Candidates(app, &args) + ` LIMIT ` + args.Add(most) + `) AS j`
		n, _, err := db.First(ctx, s.db.Read, db.ScanInt, of, args...)
		if err != nil {
			return 0, err
		}
		count += int(n)
	}
	return count, nil
}

// addSuccesses adds to jobs the ends of their latest successes.
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
	return db.EachRow(ctx, s.db.Read, func(row db.Scanner) error {
		var id int64
		var ended *time.Time
		err := row.Scan(&id, db.OptionalColumn(&ended))
		jobs[at[id]].LastSuccess = ended
		return err
	}, successes, s.db.Batch(ids)...)
}

// isCredential is the condition that a run r failed because of a secret; see view.CredentialReasonOf.
const isCredential = `(r.class IN ('secret', 'oauth2', 'credentials') OR r.class = 'http_4xx' AND r.http_status IN (401, 403))`

// refusedRun is the latest attempt of a run that failed because of a secret.
type refusedRun struct {
	job int64
	view.CredentialFailure
}

func (f failure) refused() refusedRun {
	return refusedRun{f.job, view.CredentialFailure{Reason: view.CredentialReasonOf(f.class, f.httpStatus), Run: f.key.String(),
		Class: f.class, HTTPStatus: f.httpStatus, Error: f.error, At: f.endedAt}}
}

// credentials finds jobs that fail because of a secret: in the latest failures, and in runs that wait for a retry. It
// examines a bounded number of both.
func (l *looker) credentials(ctx context.Context) error {
	var args definitions.StatementArgs
	waiting := `SELECT r.job_id, r.scheduled_at, r.trigger_id, r.kind, r.class, r.http_status, r.error
		FROM (SELECT * FROM live_runs AS r WHERE r.kind < 16 LIMIT ` + strconv.Itoa(examinedFailures) + `) AS r
		JOIN jobs AS j ON j.id = r.job_id WHERE r.state = 'retrying' AND ` + isCredential + ` AND j.deleted_at IS NULL` +
		l.ofApps(`j.app_id`, &args) + ` ORDER BY r.scheduled_at DESC LIMIT ` + strconv.Itoa(view.MaxCredentialRuns)
	runs, err := db.Collect(ctx, l.db.Read, func(row db.Scanner) (refusedRun, error) {
		var f failure
		err := row.Scan(&f.job, db.InstantColumn(&f.key.ScheduledAt), &f.key.TriggerID, db.KindColumn(&f.key), &f.class, &f.httpStatus, &f.error)
		return f.refused(), err
	}, waiting, args...)
	if err != nil {
		return err
	}
	for _, f := range l.failures {
		if one := f.refused(); one.Reason != "" && !f.deleted && len(runs) < view.MaxCredentialRuns {
			runs = append(runs, one)
		}
	}
	var jobs []refusedRun
	for _, run := range runs {
		at := slices.IndexFunc(jobs, func(one refusedRun) bool { return one.job == run.job })
		if at < 0 {
			jobs, at = append(jobs, run), len(jobs)
		}
		jobs[at].Runs++
	}
	if jobs, err = l.stillRefused(ctx, jobs); err != nil {
		return err
	}
	shown := begin(jobs)
	l.found.Credentials = view.Newest[view.CredentialFailure]{Items: []view.CredentialFailure{}, More: shown.More}
	if err := l.nameSecrets(ctx, shown.Items); err != nil {
		return err
	}
	for _, one := range shown.Items {
		if one.Job == "" {
			continue // purged meanwhile
		}
		l.found.Credentials.Items = append(l.found.Credentials.Items, one.CredentialFailure)
	}
	return nil
}

// stillRefused leaves out jobs that have succeeded since their latest failure.
func (l *looker) stillRefused(ctx context.Context, jobs []refusedRun) ([]refusedRun, error) {
	rows, health := make([]summaryRow, len(jobs)), make([]dispatcher.JobHealth, len(jobs))
	for i, one := range jobs {
		rows[i].id = one.job
	}
	err := l.addSuccesses(ctx, rows, health, l.since.UnixMilli())
	var left []refusedRun
	for i, one := range jobs {
		if success := health[i].LastSuccess; one.At.IsZero() || success == nil || !success.After(one.At) {
			left = append(left, one)
		}
	}
	return left, err
}

// nameSecrets names jobs and the secrets that they send, themselves or through their groups.
func (l *looker) nameSecrets(ctx context.Context, of []refusedRun) error {
	if len(of) == 0 {
		return nil
	}
	ids := make([]int64, len(of))
	for i := range of {
		ids[i] = of[i].job
	}
	// From $1 on: ids
	read := l.db.Rows(0, 1, "", db.IDColumns...) +
		` SELECT ` + definitions.JobColumns + ` FROM b JOIN jobs AS j ON j.id = b.id JOIN apps AS a ON a.id = j.app_id`
	jobs, err := db.Collect(ctx, l.db.Read, definitions.ScanJob, read, l.db.Batch(ids)...)
	if err != nil {
		return err
	}
	groups, err := l.groupsOf(ctx, jobs)
	if err != nil {
		return err
	}
	for _, job := range jobs {
		at := slices.IndexFunc(of, func(one refusedRun) bool { return one.job == job.Key() })
		if at < 0 {
			continue
		}
		if of[at].App, of[at].Job = job.App, job.Name; job.Err != nil {
			continue
		}
		of[at].Secrets = view.SecretNames(target.Secrets(job))
		name := job.Target.GroupName()
		for where, what := range view.SecretNames(target.Secrets(groups[run.GroupID(job.App, name)])) {
			of[at].Secrets["group "+name+where] = what
		}
	}
	return nil
}

// groupsOf returns the groups that jobs call, by their ids.
func (l *looker) groupsOf(ctx context.Context, jobs []definitions.JobRow) (map[int64]target.EndpointGroup, error) {
	var ids []int64
	for _, job := range jobs {
		if name := job.Target.GroupName(); name != "" {
			ids = append(ids, run.GroupID(job.App, name))
		}
	}
	slices.Sort(ids)
	groups := map[int64]target.EndpointGroup{}
	// From $1 on: ids
	read := l.db.Rows(0, 1, "", db.IDColumns...) + ` SELECT g.id, ` + definitions.GroupColumns +
		` FROM b JOIN endpoint_groups AS g ON g.id = b.id
		WHERE g.deleted_at IS NULL`
	err := db.EachRow(ctx, l.db.Read, func(row db.Scanner) error {
		var id int64
		group, err := db.EvenUnreadable(definitions.ScanGroup(""),
			func(*target.EndpointGroup, error) {})(db.WiderRow{Scanner: row, Before: []any{&id}})
		groups[id] = group
		return err
	}, read, l.db.Batch(slices.Compact(ids))...)
	return groups, err
}

// oldestExamined is how many of the oldest runs are examined for overdue ones: runs that ended late, such as those of a
// backfill, are kept longer.
const oldestExamined = 1000

// lateRetention returns the history that is past its retention at now: of all apps together, and of each app that keeps
// less than others, as far as its sweep is behind. The longest overdue come first.
func (s *Store) lateRetention(ctx context.Context, now time.Time) ([]view.LateRetention, error) {
	type kept struct {
		name                                string
		retention, from, sweptTo, createdAt int64
		deleted                             bool
	}
	// As purge.retentions: the history of a deleted app is kept as long as that of others.
	const list = `SELECT a.name, a.retention, a.history_from, a.sweep_from, a.created_at, a.deleted_at IS NOT NULL FROM apps AS a
		WHERE a.deleted_at IS NULL OR EXISTS (SELECT 1 FROM jobs AS j WHERE j.app_id = a.id)`
	apps, err := db.ReadRows(ctx, s.db.Read, func(k *kept) []any {
		return []any{&k.name, &k.retention, &k.from, &k.sweptTo, &k.createdAt, &k.deleted}
	}, list)
	if err != nil || len(apps) == 0 {
		return nil, err
	}
	longest := slices.MaxFunc(apps, func(a, b kept) int { return cmp.Compare(a.retention, b.retention) }).retention
	var late []view.LateRetention
	add := func(app string, retention, oldest, gone int64) {
		if behind := db.Day(now.UnixMilli()-retention) - gone; behind > 0 {
			late = append(late, view.LateRetention{App: app, Retention: db.Millis(retention), Oldest: db.Instant(oldest),
				Behind: db.Millis(behind)})
		}
	}
	oldest, gone, found, err := s.oldestHistory(ctx)
	if err != nil {
		return nil, err
	}
	if found {
		add("", longest, oldest, gone)
	}
	for _, app := range apps {
		// Runs from before the app was created belong to a backfill, and are kept by their ends.
		if from := max(app.from, app.sweptTo, db.Day(app.createdAt)); app.retention < longest && !app.deleted {
			add(app.name, app.retention, from, from)
		}
	}
	slices.SortStableFunc(late, func(a, b view.LateRetention) int {
		return cmp.Or(cmp.Compare(b.Behind, a.Behind), cmp.Compare(a.App, b.App))
	})
	return late, nil
}

// oldestHistory returns the instant of the oldest runs, and the horizon at which retention should have removed them.
func (s *Store) oldestHistory(ctx context.Context) (oldest, gone int64, found bool, err error) {
	if s.db.ByDay() {
		there, err := db.Partitions(ctx, s.db.Read)
		if err != nil {
			return 0, 0, false, err
		}
		if len(there) > 0 { // it is dropped with the day after it; see db.RotatePartitions
			oldest, gone, found = there[0].Day, there[0].Day+2*db.DayMillis, true
		}
	}
	one, other, err := db.First(ctx, s.db.Read, db.ScanNullInt, `SELECT min(r.scheduled_at) FROM (SELECT r.scheduled_at, r.ended_at FROM `+
		s.db.Unpartitioned()+` AS r ORDER BY r.scheduled_at LIMIT `+strconv.Itoa(oldestExamined)+`) AS r WHERE NOT (`+dispatch.EndedLate+`)`)
	if err != nil {
		return 0, 0, false, fmt.Errorf("look for the oldest runs: %w", err)
	}
	if other && one != nil && (!found || *one+db.DayMillis < gone) {
		oldest, gone, found = *one, *one+db.DayMillis, true
	}
	return oldest, gone, found, nil
}

// retention finds history long past its retention.
func (l *looker) retention(ctx context.Context) error {
	late, err := l.lateRetention(ctx, l.at)
	l.found.Retention = begin(slices.DeleteFunc(late, func(r view.LateRetention) bool {
		other := len(l.apps) > 0 && !slices.Contains(l.apps, run.AppID(r.App))
		return other || r.Behind.Std() <= view.RetentionLate
	}))
	return err
}
