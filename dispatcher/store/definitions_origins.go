package store

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// The id of a job's or trigger's row is a hash of its origin, which a rename leaves as it is. So a name can be free while the
// id that it would give is taken. A new job or trigger then gets another origin. The row of a deleted one keeps name, id and
// origin until it is purged, and what is declared under that name again takes it over.

// origin returns the n-th origin that something new with a name may get, as Origin of a Job or Trigger holds it. "~" is in
// no name.
func origin(name string, n int) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf("%s~%d", name, n)
}

// priorJob returns what is left of a deleted job of a name, and the origin of a new one. The app is locked.
func priorJob(ctx context.Context, q db.Querier, app, name string) (prior dispatcher.Prior, err error) {
	// $1 app, $2 name
	const deleted = `SELECT revision, origin FROM jobs WHERE app_id = $1 AND name = $2`
	_, found, err := db.First(ctx, q, func(row db.Scanner) (struct{}, error) {
		return struct{}{}, row.Scan(&prior.Revision, &prior.Origin)
	}, deleted, run.AppID(app), name)
	if err != nil || found {
		return prior, err
	}
	for n := 1; ; n++ {
		job := dispatcher.Job{App: app, Name: name, Origin: origin(name, n)}
		// $1 id
		_, taken, err := db.First(ctx, q, db.ScanInt, `SELECT id FROM jobs WHERE id = $1`, job.Key())
		if err != nil || !taken {
			return dispatcher.Prior{Origin: job.Origin}, err
		}
	}
}

// priorTriggers adds to prior what is left of triggers that old, which is nil for a new job, does not have and job has, and
// their origins.
func priorTriggers(ctx context.Context, q db.Querier, old *dispatcher.Job, job dispatcher.Job, prior *dispatcher.Prior) error {
	var added []string
	for _, name := range db.SortedKeys(job.Triggers) {
		if old == nil || !hasTrigger(*old, name) {
			added = append(added, name)
		}
	}
	if len(added) == 0 || old == nil && prior.Revision == 0 {
		return nil // a job that has no row has no triggers either
	}
	job.Origin = prior.Origin
	if old != nil {
		job.Origin = old.Origin
	}
	// $1 job
	const all = `SELECT t.name, t.origin, c.prev_fire_time FROM triggers AS t` + withClock + ` WHERE t.job_id = $1`
	type earlier struct {
		dispatcher.Trigger
		name string
	}
	rows, err := db.Collect(ctx, q, func(row db.Scanner) (e earlier, err error) {
		return e, row.Scan(&e.name, &e.Origin, db.OptionalColumn(&e.PrevFireTime))
	}, all, job.Key())
	if err != nil {
		return fmt.Errorf("read the triggers that job %s/%s had: %w", job.App, job.Name, err)
	}
	byName, taken := map[string]dispatcher.Trigger{}, map[string]bool{}
	for _, e := range rows {
		byName[e.name] = e.Trigger
		taken[cmp.Or(e.Origin, e.name)] = true
	}
	prior.Fired, prior.Origins = map[string]time.Time{}, map[string]string{}
	for _, name := range added {
		before, known := byName[name]
		for n := 1; !known && taken[cmp.Or(before.Origin, name)]; n++ {
			before.Origin = origin(name, n)
		}
		prior.Origins[name] = before.Origin
		if before.PrevFireTime != nil {
			prior.Fired[name] = *before.PrevFireTime
		}
	}
	return nil
}

func hasTrigger(job dispatcher.Job, name string) bool {
	_, has := job.Triggers[name]
	return has
}

// takeNames lets a job that is imported have its name and those of its triggers: deleted ones with other ids are called by
// their origins and "~" from then on. It returns the latest revision of the job and of one that had its name.
func takeNames(ctx context.Context, t *tx, job dispatcher.Job) (prior int64, err error) {
	// $1 id, $2 app, $3 name
	const latest = `SELECT coalesce(max(revision), 0) FROM jobs WHERE id = $1 OR app_id = $2 AND name = $3`
	if prior, _, err = db.First(ctx, t, db.ScanInt, latest, job.Key(), run.AppID(job.App), job.Name); err != nil {
		return 0, err
	}
	if _, err = t.ExecContext(ctx, parkDeleted, run.AppID(job.App), job.Name, job.Key()); err != nil {
		return 0, err
	}
	return prior, parkTriggers(ctx, t, job)
}

// parkDeleted takes its name from a deleted job of another id.
// $1 app, $2 name, $3 id that gets the name
const parkDeleted = `UPDATE jobs SET origin = ` + ownOrigin + `, name = ` + ownOrigin + ` || '~'
	WHERE app_id = $1 AND name = $2 AND id <> $3 AND deleted_at IS NOT NULL`

// parkTriggers takes their names from deleted triggers of a job if others of its triggers have them now. "~" is in no name,
// and each origin has one row, so nothing else is called as they are then.
func parkTriggers(ctx context.Context, t *tx, job dispatcher.Job) error {
	ids, names := make([]int64, 0, len(job.Triggers)), db.SortedKeys(job.Triggers)
	for _, name := range names {
		ids = append(ids, job.TriggerKey(name))
	}
	// $1 job, from $2 on: id, name
	park := t.Rows(0, 2, "", db.Col("id", db.Bigint), db.Col("name", db.Text)) + ` UPDATE triggers AS t SET origin = ` + ownTriggerOrigin + `,
			name = ` + ownTriggerOrigin + ` || '~' FROM b
		WHERE t.job_id = $1 AND t.name = b.name AND t.id <> b.id AND t.deleted_at IS NOT NULL`
	_, err := t.ExecContext(ctx, park, append([]any{job.Key()}, t.Batch(ids, names)...)...)
	return err
}

// ownOrigin is the origin of a row, in its own words or by its name, and ownTriggerOrigin that of a row of triggers AS t.
const (
	ownOrigin        = `CASE WHEN origin = '' THEN name ELSE origin END`
	ownTriggerOrigin = `CASE WHEN t.origin = '' THEN t.name ELSE t.origin END`
)
