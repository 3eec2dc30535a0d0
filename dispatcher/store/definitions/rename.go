package definitions

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

// renameBefore is the state that a rename depends on.
type renameBefore struct {
	jobBefore
	holder  *dispatcher.NameHolder // of the new name
	leaders map[int64]string       // the followers of jobs that name the job, as in jobs
	alerts  map[int64]string       // the definitions of alerts of the app, as in alerts
}

// renameChange is the renamed job, with the changed rows that name it.
type renameChange struct {
	job             dispatcher.Job
	leaders, alerts map[int64]string // only changed ones
}

// RenameJob renames a job and some of its triggers. Their rows and ids stay, so references remain valid.
func (s *Store) RenameJob(ctx context.Context, app, name string, rename dispatcher.JobRename,
	change input.Change) (dispatcher.Job, error) {
	stored, _, err := Redefine(ctx, s, change, Redefinition[renameBefore, renameChange, dispatcher.Job]{
		Load: func(ctx context.Context, from Source) (renameBefore, error) {
			b, err := s.loadRename(ctx, from, app, name, rename)
			if err == nil {
				err = dispatch.Allow(change, b.Old.Revision)
			}
			return b, err
		},
		Decide: func(b renameBefore, now time.Time) (renameChange, error) { return b.decide(rename, now) },
		Write: func(ctx context.Context, t *dispatch.Tx, b renameBefore, c renameChange) (stored dispatcher.Job, err error) {
			if err := writeRename(ctx, t, c); err != nil {
				return stored, fmt.Errorf("rename job %s/%s: %w", app, name, err)
			}
			if err := remember(ctx, t, dispatcher.CauseRename, triggerIDs(c.job)); err != nil {
				return stored, err
			}
			if err := followAlertsOfJob(ctx, t, app, c.job.Key()); err != nil {
				return stored, err
			}
			if stored, err = asStored(c.job); err != nil {
				return stored, err
			}
			t.Notify(dispatcher.Notification{JobID: c.job.Key()})
			return b.Shown(stored), auditRename(ctx, t, *b.Old, c.job, rename)
		},
	})
	return stored, err
}

// loadRename reads the state that a rename depends on. It locks the app as a PUT does, so the name stays free.
func (s *Store) loadRename(ctx context.Context, from Source, app, name string, rename dispatcher.JobRename) (b renameBefore, err error) {
	if from.tx != nil {
		if _, err := LockApp(ctx, from.tx, app); err != nil {
			return b, err
		}
	}
	if b.jobBefore, err = s.loadStored(ctx, from, app, name); err != nil || rename.Name == "" || rename.Name == name {
		return b, err
	}
	// $1 app, $2 name. What was deleted is kept as long as any app keeps its history, by whole days.
	const taken = `SELECT j.deleted_at, j.deleted_at + (SELECT max(a.retention) FROM apps AS a) + 86400000
		FROM jobs AS j WHERE j.app_id = $1 AND j.name = $2`
	var holder dispatcher.NameHolder
	found, err := db.ReadRow(ctx, from, []any{db.OptionalColumn(&holder.DeletedAt), db.OptionalColumn(&holder.KeptUntil)}, taken,
		run.AppID(app), rename.Name)
	if err != nil {
		return b, err
	}
	if found {
		b.holder = &holder
	}
	// $1 job
	const leaders = `SELECT DISTINCT j.id, j.followers FROM followers AS f JOIN jobs AS j ON j.id = f.job_id
		WHERE f.follower_id = $1 AND f.kind = 4 ORDER BY j.id`
	if b.leaders, err = db.ReadMap[int64, string](ctx, from, leaders, b.Old.Key()); err != nil {
		return b, err
	}
	// $1 app
	const alerts = `SELECT id, definition FROM alerts WHERE app_id = $1 AND deleted_at IS NULL ORDER BY id`
	if b.alerts, err = db.ReadMap[int64, string](ctx, from, alerts, run.AppID(app)); err != nil {
		return b, err
	}
	renamed := *b.Old
	renamed.Origin, renamed.Name = dispatcher.OriginOf(b.Old.CreatedAs(), rename.Name), rename.Name
	return b, s.loadFollows(ctx, from, renamed, &b.JobBefore)
}

// decide returns the renamed job at now, and the jobs and alerts that name it. The jobs keep their revisions: they work
// as before, and a client that renames a job and then declares them with its new name finds them unchanged.
func (b renameBefore) decide(rename dispatcher.JobRename, now time.Time) (c renameChange, err error) {
	if c.job, err = rename.Of(*b.Old, b.holder, now); err != nil || c.job.Name == b.Old.Name {
		return c, err
	}
	if b.Follows.Awaited { // jobs that name it lead to its followers now
		if _, err := b.Follows.FollowersOf(c.job, b.Bounds.Quotas); err != nil {
			return c, err
		}
	}
	c.leaders, c.alerts = map[int64]string{}, map[int64]string{}
	for id, text := range b.leaders {
		row := JobRow{followers: text}
		if err := row.decodeFollowers(); err != nil {
			return c, err
		}
		for _, follow := range row.EachFollow() {
			follow.Jobs = slices.DeleteFunc(follow.Jobs, func(name string) bool { return name == c.job.Name }) // it was awaited
			replaceName(follow.Jobs, b.Old.Name, c.job.Name)
		}
		if c.leaders[id], err = encodeFollowers(row.Job); err != nil {
			return c, err
		}
	}
	for id, text := range b.alerts {
		var spec alert.Spec
		if err := json.Unmarshal([]byte(text), &spec); err != nil {
			return c, err
		}
		if !replaceName(spec.Jobs, b.Old.Name, c.job.Name) {
			continue
		}
		spec.Jobs = slices.Compact(slices.Sorted(slices.Values(spec.Jobs)))
		if c.alerts[id], err = encodeAlert(spec); err != nil {
			return c, err
		}
	}
	return c, nil
}

// replaceName replaces a name in a list, and reports whether it was there.
func replaceName(names []string, from, to string) bool {
	i := slices.Index(names, from)
	if i >= 0 {
		names[i] = to
	}
	return i >= 0
}

// writeRename writes the result of decide.
func writeRename(ctx context.Context, t *dispatch.Tx, c renameChange) error {
	if err := writeNames(ctx, t, c.job); err != nil {
		return err
	}
	if err := renameAttached(ctx, t, c.job); err != nil {
		return err
	}
	if err := joinLeaders(ctx, t, c.job); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(c.leaders)) {
		// $1 id, $2 followers
		if err := t.Exec(ctx, `UPDATE jobs SET followers = $2 WHERE id = $1`, id, c.leaders[id]); err != nil {
			return err
		}
		t.Notify(dispatcher.Notification{JobID: id})
	}
	for _, id := range slices.Sorted(maps.Keys(c.alerts)) {
		// $1 id, $2 definition
		if err := t.Exec(ctx, `UPDATE alerts SET definition = $2 WHERE id = $1`, id, c.alerts[id]); err != nil {
			return fmt.Errorf("in alerts: %w", err)
		}
	}
	return nil
}

// writeNames writes the names and origins of a job and its triggers, and the revision.
func writeNames(ctx context.Context, t *dispatch.Tx, job dispatcher.Job) error {
	row, err := rowOf(job)
	if err != nil {
		return err
	}
	// $1 id, $2 name, $3 origin, $4 names of triggers, $5 their origins, $6 revision, $7 now
	const ofJob = `UPDATE jobs SET name = $2, origin = $3, trigger_names = $4, trigger_origins = $5, revision = $6, updated_at = $7
		WHERE id = $1`
	if err := t.Exec(ctx, ofJob, row.ID, job.Name, job.Origin, row.triggers, row.origins, job.Revision,
		t.At.UnixMilli()); err != nil {
		return err
	}
	if err := parkTriggers(ctx, t, job); err != nil {
		return err
	}
	// $1 revision, from $2 on: ids
	ofClocks := t.Rows(0, 2, "", db.IDColumns...) + ` UPDATE trigger_clock AS c SET revision = $1 FROM b WHERE c.id = b.id`
	// $1 revision, from $2 on: id, name, origin
	ofTriggers := t.Rows(0, 2, "", db.Col("id", db.Bigint), db.Col("name", db.Text), db.Col("origin", db.Text)) + ` UPDATE triggers AS t
		SET name = b.name, origin = b.origin, revision = $1 FROM b WHERE t.id = b.id`
	var ids []int64
	var origins []string
	for _, name := range row.TriggerNames {
		ids, origins = append(ids, job.TriggerKey(name)), append(origins, job.Triggers[name].Origin)
	}
	if err := t.Exec(ctx, ofClocks, append([]any{job.Revision}, t.Batch(ids)...)...); err != nil {
		return err
	}
	return t.Exec(ctx, ofTriggers, append([]any{job.Revision}, t.Batch(ids, row.TriggerNames, origins)...)...)
}

// auditedName is a rename in the audit log.
type auditedName struct {
	Name string `json:"name"`
	// Triggers are the new names of renamed triggers by their old names.
	Triggers map[string]string `json:"triggers,omitempty"`
}

// auditRename adds a rename to the audit log, under the old and the new names of the job and its triggers: a search for
// one finds the other.
func auditRename(ctx context.Context, t *dispatch.Tx, before, after dispatcher.Job, rename dispatcher.JobRename) error {
	renamed := map[string]string{}
	for from, to := range rename.Triggers {
		if from != to {
			renamed[from] = to
		}
	}
	names := []auditedName{{Name: before.Name}, {Name: after.Name, Triggers: renamed}}
	subjects := []string{"job " + before.Name}
	if after.Name != before.Name {
		subjects = append(subjects, "job "+after.Name)
	}
	for _, subject := range subjects {
		if err := t.AuditChange(ctx, dispatch.AuditEntry{Action: string(dispatcher.CauseRename), App: after.App, Subject: subject,
			Revision: after.Revision, Before: names[0], After: names[1]}); err != nil {
			return err
		}
	}
	for _, from := range db.SortedKeys(renamed) {
		to := renamed[from]
		for _, subject := range []string{"job " + before.Name + " trigger " + from, "job " + after.Name + " trigger " + to} {
			if err := t.AuditChange(ctx, dispatch.AuditEntry{Action: string(dispatcher.CauseRename), App: after.App, Subject: subject,
				Revision: after.Revision, Before: auditedName{Name: from}, After: auditedName{Name: to}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// The id of a job's or trigger's row is a hash of its origin, which a rename does not change. So a name can be free
// while its id is taken. A new job or trigger then gets another origin. The row of a deleted one keeps name, id and
// origin until it is purged, and a new declaration of that name takes it over.

// origin returns the n-th possible origin of a new job or trigger, for the field Origin. No name contains "~".
func origin(name string, n int) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf("%s~%d", name, n)
}

// priorJob returns the remains of a deleted job with a name, and the origin of a new one. The app is locked.
func priorJob(ctx context.Context, q db.Querier, app, name string) (prior dispatcher.Prior, err error) {
	// $1 app, $2 name
	const deleted = `SELECT revision, origin FROM jobs WHERE app_id = $1 AND name = $2`
	found, err := db.ReadRow(ctx, q, []any{&prior.Revision, &prior.Origin}, deleted, run.AppID(app), name)
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

// priorTriggers adds to prior the remains and origins of the triggers that job has and old, which is nil for a new job,
// lacks.
func priorTriggers(ctx context.Context, q db.Querier, old *dispatcher.Job, job dispatcher.Job, prior *dispatcher.Prior) error {
	var had map[string]dispatcher.Trigger
	if old != nil {
		had = old.Triggers
	}
	var added []string
	for _, name := range db.SortedKeys(job.Triggers) {
		if _, has := had[name]; !has {
			added = append(added, name)
		}
	}
	if len(added) == 0 || old == nil && prior.Revision == 0 {
		return nil // a job without a row has no triggers
	}
	job.Origin = prior.Origin
	if old != nil {
		job.Origin = old.Origin
	}
	// $1 job
	const all = `SELECT t.name, t.origin, c.prev_fire_time FROM triggers AS t` + dispatch.WithClock + ` WHERE t.job_id = $1`
	type earlier struct {
		dispatcher.Trigger
		name string
	}
	rows, err := db.ReadRows(ctx, q, func(e *earlier) []any {
		return []any{&e.name, &e.Origin, db.OptionalColumn(&e.PrevFireTime)}
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

// takeNames frees the names of an imported job and its triggers: deleted ones with other ids are renamed to their
// origins and "~". It returns the latest revision of the job and of a job that had its name.
func takeNames(ctx context.Context, t *dispatch.Tx, job dispatcher.Job) (prior int64, err error) {
	// $1 id, $2 app, $3 name
	const latest = `SELECT coalesce(max(revision), 0) FROM jobs WHERE id = $1 OR app_id = $2 AND name = $3`
	if prior, _, err = db.First(ctx, t, db.ScanInt, latest, job.Key(), run.AppID(job.App), job.Name); err != nil {
		return 0, err
	}
	if err = t.Exec(ctx, parkDeleted, run.AppID(job.App), job.Name, job.Key()); err != nil {
		return 0, err
	}
	return prior, parkTriggers(ctx, t, job)
}

// parkDeleted renames a deleted job with another id, to free its name.
// $1 app, $2 name, $3 id that gets the name
const parkDeleted = `UPDATE jobs SET origin = ` + ownOrigin + `, name = ` + ownOrigin + ` || '~'
	WHERE app_id = $1 AND name = $2 AND id <> $3 AND deleted_at IS NOT NULL`

// parkTriggers renames deleted triggers of a job if other triggers now have their names. No name contains "~", and each
// origin has one row, so the new names are unique.
func parkTriggers(ctx context.Context, t *dispatch.Tx, job dispatcher.Job) error {
	ids, names := make([]int64, 0, len(job.Triggers)), db.SortedKeys(job.Triggers)
	for _, name := range names {
		ids = append(ids, job.TriggerKey(name))
	}
	// $1 job, from $2 on: id, name
	park := t.Rows(0, 2, "", db.Col("id", db.Bigint), db.Col("name", db.Text)) + ` UPDATE triggers AS t SET origin = ` + ownTriggerOrigin + `,
			name = ` + ownTriggerOrigin + ` || '~' FROM b
		WHERE t.job_id = $1 AND t.name = b.name AND t.id <> b.id AND t.deleted_at IS NOT NULL`
	return t.Exec(ctx, park, append([]any{job.Key()}, t.Batch(ids, names)...)...)
}

// ownOrigin is the origin of a row, stored or its name, and ownTriggerOrigin that of a row of triggers AS t.
const (
	ownOrigin        = `CASE WHEN origin = '' THEN name ELSE origin END`
	ownTriggerOrigin = `CASE WHEN t.origin = '' THEN t.name ELSE t.origin END`
)
