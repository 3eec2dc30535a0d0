package definitions

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// jobFields are the columns of jobs AS j, and of their apps AS a.
var jobFields = db.Fields[JobRow]{
	{Name: "id", Ref: func(j *JobRow) any { return &j.ID }, Use: db.NeverSet},
	{Name: "app_id", Ref: func(j *JobRow) any { return new(run.AppID(j.App)) }, Use: db.OnlyNew},
	{Read: "a.name", Ref: func(j *JobRow) any { return &j.App }, Use: db.OnlyRead},
	{Read: "a.installation", Ref: func(j *JobRow) any { return &j.Installation }, Use: db.OnlyRead},
	{Read: "a.salt", Ref: func(j *JobRow) any { return &j.Salt }, Use: db.OnlyRead},
	{Read: "a.bounds", Ref: func(j *JobRow) any { return &j.bounds }, Use: db.OnlyRead},
	{Read: "a.longer_names", Ref: func(j *JobRow) any { return &j.longer }, Use: db.OnlyRead},
	{Read: "a.external_id", Ref: func(j *JobRow) any { return &j.AWSExternalID }, Use: db.OnlyRead},
	{Name: "app", Ref: func(j *JobRow) any { return &j.App }, Use: db.OnlyNew},
	{Name: "name", Ref: func(j *JobRow) any { return &j.Name }},
	{Name: "origin", Ref: func(j *JobRow) any { return &j.Origin }},
	{Name: "description", Ref: func(j *JobRow) any { return &j.Description }},
	{Name: "runbook_url", Ref: func(j *JobRow) any { return &j.RunbookURL }},
	{Name: "enabled", Ref: func(j *JobRow) any { return &j.Enabled }},
	{Name: "paused", Ref: func(j *JobRow) any { return &j.Paused }},
	{Name: "pause", Ref: func(j *JobRow) any { return dispatch.PauseColumn(&j.Pause) }},
	{Name: "paused_at", Ref: func(j *JobRow) any { return db.OptionalColumn(&j.PausedAt) }, Use: db.OnlyWritten},
	{Name: "pause_until", Ref: func(j *JobRow) any { return db.OptionalColumn(&j.PausedUntil) }, Use: db.OnlyWritten},
	{Name: "app_paused", Ref: func(j *JobRow) any { return &j.AppPaused }},
	{Name: "priority", Ref: func(j *JobRow) any { return &j.Priority }},
	{Name: "labels", Ref: func(j *JobRow) any { return db.LabelsColumn(&j.Labels) }},
	{Name: "node_labels", Ref: func(j *JobRow) any { return db.LabelsColumn(&j.NodeLabels) }},
	{Name: "delivery", Ref: func(j *JobRow) any { return &j.Delivery }},
	{Name: "concurrency_policy", Ref: func(j *JobRow) any { return &j.ConcurrencyPolicy }},
	{Name: "max_concurrency", Ref: func(j *JobRow) any { return &j.MaxConcurrency }},
	{Name: "queue_limit", Ref: func(j *JobRow) any { return &j.QueueLimit }},
	{Name: "carry_state", Ref: func(j *JobRow) any { return &j.CarryState }},
	{Name: "objective", Ref: func(j *JobRow) any { return ObjectiveColumn(&j.Objective) }},
	{Name: "acknowledge", Ref: func(j *JobRow) any { return db.ListColumn(&j.Acknowledge) }},
	{Name: "retry", Ref: func(j *JobRow) any { return &j.retry }},
	{Name: "target", Ref: func(j *JobRow) any { return &j.target }},
	{Name: "target_kind", Ref: func(j *JobRow) any { return new(j.Target.Kind()) }, Use: db.OnlyWritten},
	{Name: "target_name", Ref: func(j *JobRow) any { return new(j.Target.Summary().Name) }, Use: db.OnlyWritten},
	{Name: "target_group", Ref: func(j *JobRow) any { return new(j.Target.GroupName()) }, Use: db.OnlyWritten},
	{Name: "endpoint_concurrency", Ref: func(j *JobRow) any { return new(j.EndpointPolicy()) }, Use: db.OnlyWritten},
	{Name: "certificate_ends_at", Ref: func(j *JobRow) any { return db.OptionalColumn(new(j.Target.CertificateEnd())) }, Use: db.OnlyWritten},
	{Name: "payload", Ref: func(j *JobRow) any { return &j.payload }},
	{Name: "followers", Ref: func(j *JobRow) any { return &j.followers }},
	{Read: "j.follows", Ref: func(j *JobRow) any { return &j.Follows }, Use: db.OnlyRead}, // see writeFollowers
	{Read: `(SELECT max(p.ended_at) FROM app_pauses AS p WHERE p.app_id = j.app_id)`, Use: db.OnlyRead,
		Ref: func(j *JobRow) any { return db.OptionalColumn(&j.ResumedAt) }},
	{Name: "part_of", Ref: func(j *JobRow) any { return &j.partOf }, Use: db.OnlyNew},
	{Name: "trigger_names", Ref: func(j *JobRow) any { return &j.triggers }},
	{Name: "trigger_origins", Ref: func(j *JobRow) any { return &j.origins }},
	{Name: "delete_after_completion", Ref: func(j *JobRow) any { return db.DurationColumn(&j.DeleteAfterCompletion) }},
	{Read: "j.state", Ref: func(j *JobRow) any { return &j.State }, Use: db.OnlyRead}, // see writeState
	{Name: "revision", Ref: func(j *JobRow) any { return &j.Revision }},
	{Name: "created_at", Ref: func(j *JobRow) any { return db.InstantColumn(&j.CreatedAt) }},
	{Name: "updated_at", Ref: func(j *JobRow) any { return db.InstantColumn(&j.UpdatedAt) }},
}

// jobRead are the fields of a job, and JobColumns selects them.
var (
	jobRead    = jobFields.Read()
	JobColumns = jobRead.Selected("j.")
)

// JobRow is the row of a job, without its triggers.
type JobRow struct {
	dispatcher.JobVersion
	retry, target, payload, bounds string // JSON
	triggers, origins              string // JSON
	followers                      string // JSON of followersOf; empty: no followers
	partOf                         int64  // as in jobs
	longer                         string // as in apps
}

// ScanJob reads the row of a job. Text that this version does not understand becomes the job's Err.
func ScanJob(row db.Scanner) (JobRow, error) {
	var j JobRow
	if err := row.Scan(jobRead.Refs(&j)...); err != nil {
		return j, err
	}
	var err error
	if j.Bounds, err = ReadBounds(j.App, j.bounds, j.longer); err != nil {
		none := target.Bounds{}.WithDefaults(j.App)
		j.Bounds, j.Err = &none, fmt.Errorf("job %s/%s: %w", j.App, j.Name, err)
	}
	if err := j.decode(); err != nil {
		j.Target, j.Payload, j.TriggerNames, j.TriggerOrigins = target.Target{}, nil, nil, nil
		j.Err = fmt.Errorf("job %s/%s: stored %w", j.App, j.Name, err)
	}
	return j, nil
}

func rowOf(job dispatcher.Job) (j JobRow, err error) {
	j = JobRow{JobVersion: dispatcher.JobVersion{ID: job.Key(), Job: job, TriggerNames: db.SortedKeys(job.Triggers)}}
	j.payload = string(job.Payload)
	for name, t := range job.Triggers {
		if t.Origin != "" {
			if j.TriggerOrigins == nil {
				j.TriggerOrigins = map[string]string{}
			}
			j.TriggerOrigins[name] = t.Origin
		}
	}
	for _, part := range []struct {
		text  *string
		value any
	}{{&j.retry, job.Retry}, {&j.target, job.Target}, {&j.triggers, j.TriggerNames}} {
		encoded, err := json.Marshal(part.value)
		if err != nil {
			return j, err
		}
		*part.text = string(encoded)
	}
	if j.followers, err = encodeFollowers(job); err != nil {
		return j, err
	}
	if j.TriggerOrigins != nil {
		encoded, err := json.Marshal(j.TriggerOrigins)
		if err != nil {
			return j, err
		}
		j.origins = string(encoded)
	}
	return j, nil
}

// unreadable reports whether a stored job has Err: any other job has a target.
func unreadable(job *dispatcher.Job) bool { return job.Target == (target.Target{}) }

// decode reads the JSON in a job's row.
func (j *JobRow) decode() error {
	j.Retry, j.Target, j.Payload = run.Retry{}, target.Target{}, nil
	if err := json.Unmarshal([]byte(j.retry), &j.Retry); err != nil {
		return fmt.Errorf("retry: %w", err)
	}
	if err := json.Unmarshal([]byte(j.target), &j.Target); err != nil {
		return fmt.Errorf("target: %w", err)
	}
	if j.Target == (target.Target{}) {
		return errors.New("target: its kind is unknown to this version")
	}
	if j.payload != "" {
		j.Payload = json.RawMessage(j.payload)
		if !json.Valid(j.Payload) {
			return errors.New("payload: it is not JSON")
		}
	}
	if err := j.decodeFollowers(); err != nil {
		return err
	}
	return j.decodeTriggers()
}

// decodeTriggers reads the names of a job's triggers and their origins, which few triggers have.
func (j *JobRow) decodeTriggers() error {
	if err := json.Unmarshal([]byte(j.triggers), &j.TriggerNames); err != nil {
		return fmt.Errorf("trigger names: %w", err)
	}
	if j.origins == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(j.origins), &j.TriggerOrigins); err != nil {
		return fmt.Errorf("trigger origins: %w", err)
	}
	return nil
}

// Job returns a job with its triggers and warnings.
func (s *Store) Job(ctx context.Context, app, name string) (dispatcher.Job, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	job, err := s.FindJob(ctx, s.db.Read, app, name, "")
	if err != nil {
		return job, err
	}
	shown := []dispatcher.JobVersion{{Job: job}}
	err = s.addShown(ctx, s.db.Read, app, shown)
	return shown[0].Job, err
}

// Jobs returns a page of the jobs of an app, by name.
func (s *Store) Jobs(ctx context.Context, app string, page input.Page) ([]dispatcher.Job, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	if _, err := ReadApp(ctx, s.db.Read, app, ""); err != nil {
		return nil, err
	}
	args := StatementArgs{run.AppID(app), page.Cursor, page.Limit}
	created := ""
	if page.Origin != "" {
		created = ` AND j.id = ` + args.Add(run.JobID(app, page.Origin))
	}
	// $1 app, $2 last name of the page before, $3 limit, from $4 on: origin, labels
	list := `SELECT ` + JobColumns + ` FROM jobs AS j JOIN apps AS a ON a.id = j.app_id
		WHERE j.app_id = $1 AND j.name > $2 AND j.deleted_at IS NULL AND j.part_of = 0` + created + WithLabels(page.Labels, &args) + `
		ORDER BY j.name LIMIT $3`
	rows, ended := db.CollectPage(ctx, s.db.Read, page, ScanJob, func(j JobRow) int { return len(j.TriggerNames) * db.TriggerBytes },
		list, args...)
	if ended != nil && !errors.Is(ended, dispatcher.ErrPageBytes) {
		return nil, ended
	}
	loaded, err := s.loadTriggers(ctx, s.db.Read, "", rows)
	if err == nil {
		err = s.addShown(ctx, s.db.Read, app, loaded)
	}
	jobs := make([]dispatcher.Job, len(loaded))
	for i, job := range loaded {
		jobs[i] = job.Job
		if job.Err != nil {
			// It must not hide the other jobs of its app.
			jobs[i].Warnings = []input.Problem{{Code: input.CodeInternal, Message: job.Err.Error()}}
		}
	}
	return jobs, cmp.Or(err, ended)
}

// WithLabels is the condition, with AND in front, that jobs AS j have labels. Its index contains only jobs with labels.
func WithLabels(labels input.Labels, args *StatementArgs) string {
	if len(labels) == 0 {
		return ""
	}
	condition := ` AND j.labels <> ''`
	for _, pair := range labels.Pairs() {
		condition += ` AND replace(',' || j.labels || ',', ` + args.Add(","+pair+",") + `, '') <> ',' || j.labels || ','`
	}
	return condition
}

// JobsByID returns jobs without their triggers, with the values of their secrets.
func (s *Store) JobsByID(ctx context.Context, ids []int64) ([]dispatcher.JobVersion, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	// From $1 on: the ids
	query := s.db.Rows(0, 1, "", db.Col("id", db.Bigint)) + ` SELECT ` + JobColumns +
		` FROM b JOIN jobs AS j ON j.id = b.id JOIN apps AS a ON a.id = j.app_id WHERE j.deleted_at IS NULL`
	versions := make([]dispatcher.JobVersion, 0, len(ids))
	// As a hot statement, because a node reads some hundred at once just before they are due.
	_, err := s.db.Execute(ctx, db.Reading(query), s.db.Batch(ids), func(row db.Scanner) error {
		job, err := ScanJob(row)
		versions = append(versions, job.JobVersion)
		return err
	})
	if err != nil {
		return nil, err
	}
	return versions, s.openSecrets(ctx, s.db.Read, versions)
}

// FindJob returns ErrNotFound if the job does not exist. It leaves out warnings, which are for users and take long to
// compute. lock is a flavor's lock, or empty.
func (s *Store) FindJob(ctx context.Context, q db.Querier, app, name, lock string) (dispatcher.Job, error) {
	job, err := s.readJob(ctx, q, app, name, lock)
	if err == nil {
		err = job.Err
	}
	return job.Job, err
}

// readJob is FindJob for a job that may be unreadable. Such a job has triggers only if their names are readable.
func (s *Store) readJob(ctx context.Context, q db.Querier, app, name, lock string) (job dispatcher.JobVersion, err error) {
	// $1 app, $2 name
	query := `SELECT ` + JobColumns + ` FROM jobs AS j JOIN apps AS a ON a.id = j.app_id
		WHERE j.app_id = $1 AND j.name = $2 AND j.deleted_at IS NULL AND j.part_of = 0` + db.LockOf(lock, "j")
	rows, err := db.Collect(ctx, q, ScanJob, query, run.AppID(app), name)
	if err != nil {
		return job, err
	}
	jobs, err := s.loadTriggers(ctx, q, lock, rows)
	if err != nil {
		return job, err
	}
	if len(jobs) == 0 {
		return job, dispatcher.NotFound("job", app+"/"+name)
	}
	return jobs[0], nil
}

// DeleteJob deletes a job and retires its triggers. Its ledger is kept.
func (s *Store) DeleteJob(ctx context.Context, app, name string, change input.Change) error {
	return s.dispatch.Change(ctx, change, func(ctx context.Context, t *dispatch.Tx) error {
		// In the order of a PUT: removeUnused needs the app.
		if _, err := LockApp(ctx, t, app); err != nil && !errors.Is(err, dispatcher.ErrNotFound) {
			return err
		}
		job, err := s.readJob(ctx, t, app, name, t.ForUpdate())
		if err != nil {
			return err
		}
		if err := t.Allow(job.Revision); err != nil {
			return err
		}
		if job.Err != nil {
			// Its triggers and attached jobs are found by their references to it.
			// $1 job
			parts, err := db.Collect(ctx, t, db.ScanInt, `SELECT id FROM jobs WHERE part_of = $1 AND deleted_at IS NULL`, job.Key())
			for _, id := range parts {
				if err == nil {
					err = deleteAttached(ctx, t, id)
				}
			}
			if err != nil {
				return fmt.Errorf("delete what is part of job %s/%s: %w", job.App, job.Name, err)
			}
			if err := s.loadTriggersOf(ctx, t, t.ForUpdate(), &job); err != nil {
				return err
			}
			return s.RemoveJob(ctx, t, job.Job, "delete")
		}
		before, err := s.withValues(ctx, t, &job.Job)
		if err != nil {
			return err
		}
		return s.RemoveJob(ctx, t, *before, "delete")
	})
}

// loadTriggersOf reads the triggers of a job that is partly unreadable and may not name them.
func (s *Store) loadTriggersOf(ctx context.Context, q db.Querier, lock string, job *dispatcher.JobVersion) error {
	ids, err := db.Collect(ctx, q, db.ScanInt, `SELECT id FROM triggers WHERE job_id = $1 AND deleted_at IS NULL ORDER BY id`, job.Key())
	if err != nil {
		return err
	}
	job.Triggers = map[string]dispatcher.Trigger{}
	// From $1 on: the ids
	query := s.db.Rows(0, 1, "", db.IDColumns...) + ` SELECT ` + dispatch.TriggerColumns + dispatch.TheseTriggers + ` ORDER BY t.id` +
		db.LockOf(lock, "c, t")
	triggers, err := db.Collect(ctx, q, dispatch.ScanTrigger, query, s.db.Batch(append([]int64{}, ids...))...)
	if err != nil {
		return fmt.Errorf("read the triggers of job %s/%s: %w", job.App, job.Name, err)
	}
	for _, one := range triggers {
		job.Triggers[one.Name] = one.Trigger
	}
	return nil
}

// RemoveJob deletes a job, which may have the values of its secrets; action is its name in the audit log.
func (s *Store) RemoveJob(ctx context.Context, t *dispatch.Tx, job dispatcher.Job, action string) error {
	_, calendars, err := calendarsOf(ctx, t, job.App, job)
	if err != nil {
		return err
	}
	missed := dispatcher.Retire(job, calendars, t.At)
	if err := dropJob(ctx, t, job); err != nil {
		return err
	}
	if err := dispatch.InsertMisfires(ctx, t, missed); err != nil {
		return err
	}
	err = auditJob(ctx, t, dispatch.AuditEntry{Action: action, App: job.App, Subject: "job " + job.Name, Revision: job.Revision}, &job, nil)
	if err != nil {
		return err
	}
	return s.removeUnusedOf(ctx, t, &job, nil)
}

// dropJob deletes a job without recording its overdue fires.
func dropJob(ctx context.Context, t *dispatch.Tx, job dispatcher.Job) error {
	id := job.Key()
	// $1 now, $2 id
	const remove = `UPDATE jobs SET deleted_at = $1, updated_at = $1, trigger_names = '[]', trigger_origins = '', follows = 0 WHERE id = $2`
	if err := t.Exec(ctx, remove, t.At.UnixMilli(), id); err != nil {
		return err
	}
	if err := removeSecrets(ctx, t, id); err != nil {
		return err
	}
	// $1 job
	if err := t.Exec(ctx, `DELETE FROM followers WHERE job_id = $1`, id); err != nil {
		return err
	}
	// Jobs that name it await another one of its name.
	if err := t.Exec(ctx, replaceFollower, job.Key(), dispatcher.AwaitedKey(job.App, job.Name)); err != nil {
		return err
	}
	for event := range job.EachFollow() {
		if err := deleteAttached(ctx, t, job.Attached(event).Key()); err != nil {
			return err
		}
	}
	if err := countJobs(ctx, t, job.App, -1, -len(job.Triggers)); err != nil {
		return err
	}
	if err := retireTriggers(ctx, t, job, job.Triggers); err != nil {
		return fmt.Errorf("delete job %s/%s: %w", job.App, job.Name, err)
	}
	if err := endAlertsOf(ctx, t, id); err != nil {
		return err
	}
	if err := dispatch.EndAsides(ctx, t, id); err != nil {
		return err
	}
	t.Notify(dispatcher.Notification{JobID: id})
	return nil
}
