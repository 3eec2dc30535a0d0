package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// RenameJob renames a job and triggers of it. Their rows stay, with all that refers to their ids.
func (s *Store) RenameJob(ctx context.Context, app, name string, rename dispatcher.JobRename,
	change input.Change) (stored dispatcher.Job, err error) {
	err = s.change(ctx, change, func(ctx context.Context, t *tx) error {
		// As a PUT locks them, so that nobody takes a name meanwhile.
		if _, err := lockApp(ctx, t, app); err != nil {
			return err
		}
		job, err := s.findJob(ctx, t, app, name, t.ForUpdate())
		if err != nil {
			return err
		}
		if err := t.allow(job.Revision); err != nil {
			return err
		}
		var problems input.Problems
		renamed, wrong := rename.Apply(job, t.now)
		problems.AddError("", wrong)
		if err := checkFree(ctx, t, &problems, job, rename.Name); err != nil {
			return err
		}
		if err := problems.Err(); err != nil {
			return err
		}
		if err := writeNames(ctx, t, renamed); err != nil {
			return fmt.Errorf("rename job %s/%s: %w", app, name, err)
		}
		if err := renameAttached(ctx, t, renamed); err != nil {
			return err
		}
		if err := renameFollower(ctx, t, job, renamed); err != nil {
			return err
		}
		if err := renameInAlerts(ctx, t, job, renamed); err != nil {
			return fmt.Errorf("rename job %s/%s in alerts: %w", app, name, err)
		}
		if err := remember(ctx, t, dispatcher.CauseRename, triggerIDs(renamed)); err != nil {
			return err
		}
		if err := followAlertsOfJob(ctx, t, app, renamed.Key()); err != nil {
			return err
		}
		if stored, err = s.shownJob(ctx, t, app, renamed.Name); err != nil {
			return err
		}
		t.notify(dispatcher.Notification{JobID: renamed.Key()})
		return auditRename(ctx, t, job, renamed, rename)
	})
	return stored, err
}

// checkFree adds a problem if another job has the new name of job, or a deleted one whose row is kept.
func checkFree(ctx context.Context, t *tx, problems *input.Problems, job dispatcher.Job, name string) error {
	if name == "" || name == job.Name {
		return nil
	}
	type holder struct{ deleted, purged *time.Time }
	// $1 app, $2 name. What was deleted is kept as long as any app keeps its history, by whole days.
	const taken = `SELECT j.deleted_at, j.deleted_at + (SELECT max(a.retention) FROM apps AS a) + 86400000
		FROM jobs AS j WHERE j.app_id = $1 AND j.name = $2`
	by, found, err := db.First(ctx, t, func(row db.Scanner) (h holder, err error) {
		return h, row.Scan(db.OptionalColumn(&h.deleted), db.OptionalColumn(&h.purged))
	}, taken, run.AppID(job.App), name)
	switch shown := input.Echo(job.App + "/" + name); {
	case err != nil || !found:
		return err
	case by.deleted == nil:
		problems.Add("/name", input.CodeNameTaken, "job %s exists; choose another name, or rename or delete that job first", shown)
	default:
		problems.Add("/name", input.CodeNameTaken, "job %s was deleted at %s, and its history is kept under this name until about %s; "+
			"choose another name", shown, by.deleted.Format(time.RFC3339), by.purged.Format(time.DateOnly))
	}
	return nil
}

// writeNames writes the names and origins of a job and its triggers, and the revision.
func writeNames(ctx context.Context, t *tx, job dispatcher.Job) error {
	row, err := rowOf(job)
	if err != nil {
		return err
	}
	// $1 id, $2 name, $3 origin, $4 names of triggers, $5 their origins, $6 revision, $7 now
	const ofJob = `UPDATE jobs SET name = $2, origin = $3, trigger_names = $4, trigger_origins = $5, revision = $6, updated_at = $7
		WHERE id = $1`
	if _, err := t.ExecContext(ctx, ofJob, row.ID, job.Name, job.Origin, row.triggers, row.origins, job.Revision,
		t.now.UnixMilli()); err != nil {
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
	if _, err := t.ExecContext(ctx, ofClocks, append([]any{job.Revision}, t.Batch(ids)...)...); err != nil {
		return err
	}
	_, err = t.ExecContext(ctx, ofTriggers, append([]any{job.Revision}, t.Batch(ids, row.TriggerNames, origins)...)...)
	return err
}

// renameInAlerts gives a job its new name in the alerts that select it by name.
func renameInAlerts(ctx context.Context, t *tx, before, after dispatcher.Job) error {
	if before.Name == after.Name {
		return nil
	}
	type definition struct {
		id   int64
		text string
	}
	// $1 app
	const all = `SELECT id, definition FROM alerts WHERE app_id = $1 AND deleted_at IS NULL ORDER BY id`
	alerts, err := db.Collect(ctx, t, func(row db.Scanner) (d definition, err error) {
		return d, row.Scan(&d.id, &d.text)
	}, all, run.AppID(after.App))
	if err != nil {
		return err
	}
	for _, one := range alerts {
		var spec alert.Spec
		if err := json.Unmarshal([]byte(one.text), &spec); err != nil {
			return err
		}
		i := slices.Index(spec.Jobs, before.Name)
		if i < 0 {
			continue
		}
		spec.Jobs[i] = after.Name
		spec.Jobs = slices.Compact(slices.Sorted(slices.Values(spec.Jobs)))
		renamed, err := encodeAlert(spec)
		if err != nil {
			return err
		}
		// $1 id, $2 definition
		if _, err := t.ExecContext(ctx, `UPDATE alerts SET definition = $2 WHERE id = $1`, one.id, renamed); err != nil {
			return err
		}
	}
	return nil
}

// auditedName is what the audit log shows of a rename.
type auditedName struct {
	Name string `json:"name"`
	// Triggers are the names of those that were renamed, each by what it was called before.
	Triggers map[string]string `json:"triggers,omitempty"`
}

// auditRename adds a rename to the audit log, under the old and the new name of all that it renamed: anyone who looks for one of
// them finds the other.
func auditRename(ctx context.Context, t *tx, before, after dispatcher.Job, rename dispatcher.JobRename) error {
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
		if err := t.auditChange(ctx, auditEntry{action: string(dispatcher.CauseRename), app: after.App, subject: subject,
			revision: after.Revision, before: names[0], after: names[1]}); err != nil {
			return err
		}
	}
	for _, from := range db.SortedKeys(renamed) {
		to := renamed[from]
		for _, subject := range []string{"job " + before.Name + " trigger " + from, "job " + after.Name + " trigger " + to} {
			if err := t.auditChange(ctx, auditEntry{action: string(dispatcher.CauseRename), app: after.App, subject: subject,
				revision: after.Revision, before: auditedName{Name: from}, after: auditedName{Name: to}}); err != nil {
				return err
			}
		}
	}
	return nil
}
