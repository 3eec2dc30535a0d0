package store

import (
	"context"
	"slices"
	"strconv"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// isCredential is the condition that a run r failed because of a secret; see view.CredentialReasonOf.
const isCredential = `(r.class IN ('secret', 'oauth2', 'credentials') OR r.class = 'http_4xx' AND r.http_status IN (401, 403))`

// refusedRun is the latest attempt of a run that failed because of a secret.
type refusedRun struct {
	job int64
	view.CredentialFailure
}

// refused returns a failure as one for which a secret is to blame.
func (f failure) refused() refusedRun {
	return refusedRun{f.job, view.CredentialFailure{Reason: view.CredentialReasonOf(f.class, f.httpStatus), Run: f.key.String(),
		Class: f.class, HTTPStatus: f.httpStatus, Error: f.error, At: f.endedAt}}
}

// credentials looks for jobs that fail because of a secret: in the latest failures, and in runs that are to be attempted again.
// Of both it looks through a bounded number.
func (l *looker) credentials(ctx context.Context) error {
	var args statementArgs
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

// nameSecrets names jobs and the secrets that they send, themselves or by their groups.
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
		` SELECT ` + jobColumns + ` FROM b JOIN jobs AS j ON j.id = b.id JOIN apps AS a ON a.id = j.app_id`
	jobs, err := db.Collect(ctx, l.db.Read, scanJob, read, l.db.Batch(ids)...)
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
func (l *looker) groupsOf(ctx context.Context, jobs []jobRow) (map[int64]target.EndpointGroup, error) {
	var ids []int64
	for _, job := range jobs {
		if name := job.Target.GroupName(); name != "" {
			ids = append(ids, run.GroupID(job.App, name))
		}
	}
	slices.Sort(ids)
	groups := map[int64]target.EndpointGroup{}
	// From $1 on: ids
	read := l.db.Rows(0, 1, "", db.IDColumns...) + ` SELECT g.id, ` + groupColumns + ` FROM b JOIN endpoint_groups AS g ON g.id = b.id
		WHERE g.deleted_at IS NULL`
	_, err := db.Collect(ctx, l.db.Read, func(row db.Scanner) (struct{}, error) {
		var id int64
		group, err := db.EvenUnreadable(scanGroup(""), func(*target.EndpointGroup, error) {})(db.WiderRow{Scanner: row, Before: []any{&id}})
		groups[id] = group
		return struct{}{}, err
	}, read, l.db.Batch(slices.Compact(ids))...)
	return groups, err
}
