package definitions

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

// The revisions of triggers and calendars distinguish past schedules from current ones. Each change of a definition
// writes them, and only explain and verify read them.

// revisionFields are the columns of trigger_revisions: those of the trigger t and its clock c, named the same,
// and what else a change of it or of its job j makes of it. A parameter of remember is $1 now, $2 cause,
// $3 zones or $4 actor.
var revisionFields = db.Fields[revisionRow]{
	{Name: "job_id", Ref: func(r *revisionRow) any { return &r.jobID }},
	{Name: "id", Ref: func(r *revisionRow) any { return &r.id }},
	{Name: "revision", Ref: func(r *revisionRow) any { return &r.Revision }},
	{Name: "calendar_revision", Ref: func(r *revisionRow) any { return &r.CalendarRevision }, Read: "c.calendar_revision"},
	{Name: "next_fire_time", Ref: func(r *revisionRow) any { return db.OptionalColumn(&r.NextFireTime) }, Read: "c.next_fire_time"},
	{Name: "prev_fire_time", Ref: func(r *revisionRow) any { return db.OptionalColumn(&r.PrevFireTime) }, Read: "c.prev_fire_time"},
	{Name: "name", Ref: func(r *revisionRow) any { return &r.Name }},
	{Name: "expression", Ref: func(r *revisionRow) any { return &r.Expression }},
	{Name: "dialect", Ref: func(r *revisionRow) any { return &r.Dialect }},
	{Name: "timezone", Ref: func(r *revisionRow) any { return &r.Timezone }},
	{Name: "start_at", Ref: func(r *revisionRow) any { return db.OptionalColumn(&r.StartAt) }},
	{Name: "end_at", Ref: func(r *revisionRow) any { return db.OptionalColumn(&r.EndAt) }},
	{Name: "repeat_count", Ref: func(r *revisionRow) any { return &r.RepeatCount }},
	{Name: "gap", Ref: func(r *revisionRow) any { return &r.Gap }},
	{Name: "overlap", Ref: func(r *revisionRow) any { return &r.Overlap }},
	{Name: "drift_hour", Ref: func(r *revisionRow) any { return &r.DriftHour }},
	{Name: "calendar", Ref: func(r *revisionRow) any { return &r.Calendar }},
	{Name: "on_excluded", Ref: func(r *revisionRow) any { return &r.OnExcluded }},
	{Name: "jitter", Ref: func(r *revisionRow) any { return db.DurationColumn(&r.Jitter) }},
	{Name: "misfire_after", Ref: func(r *revisionRow) any { return db.DurationColumn(&r.MisfireAfter) }},
	{Name: "anchor_at", Ref: func(r *revisionRow) any { return db.InstantColumn(&r.AnchorAt) }},
	{Name: "fired", Ref: func(r *revisionRow) any { return &r.Fired }},
	{Name: "counted_from", Ref: func(r *revisionRow) any { return db.OptionalColumn(&r.CountedFrom) }},
	{Name: "enabled", Ref: func(r *revisionRow) any { return &r.Enabled }, Read: `t.enabled AND j.enabled AND t.deleted_at IS NULL`},
	{Name: "paused", Ref: func(r *revisionRow) any { return &r.Paused }, Read: `t.paused OR t.job_paused`},
	{Name: "labels", Ref: func(r *revisionRow) any { return db.LabelsColumn(&r.Labels) }, Read: "j.labels"},
	{Name: "pause", Ref: func(r *revisionRow) any { return dispatch.PauseColumn(&r.Pause) }, Read: `coalesce(t.pause, j.pause)`},
	{Name: "cause", Ref: func(r *revisionRow) any { return &r.Cause }, Read: `$2`},
	{Name: "actor", Ref: func(r *revisionRow) any { return &r.Actor }, Read: `$4`},
	{Name: "from_at", Ref: func(r *revisionRow) any { return db.InstantColumn(&r.From) }, Read: `b.now`},
	// The revision of a removed trigger ends as it begins.
	{Name: "to_at", Use: db.OnlyNew, Read: `CASE WHEN t.deleted_at IS NOT NULL THEN b.now END`},
	{Name: "zones", Ref: func(r *revisionRow) any { return &r.Zones }, Read: `$3`},
	{Name: "settled_at", Ref: func(r *revisionRow) any { return db.InstantColumn(&r.Settled) },
		Read: `CASE WHEN c.prev_fire_time > b.now THEN c.prev_fire_time ELSE b.now END`},
}

var revisionRead = revisionFields.Read()

// revisionRow is a revision of a trigger with its keys.
type revisionRow struct {
	dispatcher.TriggerRevision
	jobID, id int64
}

// remember records triggers just after they were written. The previous revision covers only instants up to the change,
// or up to a fire that was claimed ahead of it. A due fire that was kept belongs to both revisions.
func remember(ctx context.Context, t *dispatch.Tx, cause dispatcher.Cause, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	// $1 now, from $2 on: db.IDColumns
	end := t.Rows(1, 2, "", db.IDColumns...) + ` UPDATE trigger_revisions AS r SET to_at = b.now FROM b JOIN triggers AS t ON t.id = b.id
		WHERE r.job_id = t.job_id AND r.id = t.id AND r.to_at IS NULL`
	// $1 now, $2 cause, $3 zones, $4 actor, from $5 on: db.IDColumns
	insert := t.Rows(1, 5, "", db.IDColumns...) + ` INSERT INTO trigger_revisions (` + revisionFields.Names("") + `)
		SELECT ` + revisionFields.Selected("t.") + dispatch.TheseTriggers + ` JOIN jobs AS j ON j.id = t.job_id`
	now := t.At.UnixMilli()
	if err := t.Exec(ctx, end, append([]any{now}, t.Batch(ids)...)...); err != nil {
		return fmt.Errorf("end revisions of %d triggers: %w", len(ids), err)
	}
	if err := t.Exec(ctx, insert, append([]any{now, string(cause), schedule.ZonesVersion(), t.By.Actor}, t.Batch(ids)...)...); err != nil {
		return fmt.Errorf("write revisions of %d triggers: %w", len(ids), err)
	}
	return nil
}

// rememberCalendar increments the revision of the app's calendars and records a calendar from then on; nil: deleted.
func rememberCalendar(ctx context.Context, t *dispatch.Tx, app, name string, definition *string) (revision int64, err error) {
	// $1 app
	const count = `UPDATE apps SET calendar_revision = calendar_revision + 1 WHERE id = $1 RETURNING calendar_revision`
	// $1 app, $2 name, $3 now
	const end = `UPDATE calendar_revisions SET to_at = $3 WHERE app_id = $1 AND name = $2 AND to_at IS NULL`
	// $1 app, $2 name, $3 now, $4 revision of the lot, $5 definition
	const insert = `INSERT INTO calendar_revisions (app_id, name, calendar_revision, definition, to_at)
		VALUES ($1, $2, $4, CAST($5 AS TEXT), CASE WHEN CAST($5 AS TEXT) IS NULL THEN CAST($3 AS BIGINT) END)`
	id, now := run.AppID(app), t.At.UnixMilli()
	if revision, _, err = db.First(ctx, t, db.ScanInt, count, id); err != nil {
		return 0, err
	}
	if err = t.Exec(ctx, end, id, name, now); err == nil {
		err = t.Exec(ctx, insert, id, name, now, revision, definition)
	}
	if err != nil {
		return 0, fmt.Errorf("write revision of calendar %s/%s: %w", app, name, err)
	}
	return revision, nil
}

// AppHistory returns how far the history of an app goes back, its pauses, and when it was enabled.
func (s *Store) AppHistory(ctx context.Context, app string, at, now time.Time) (dispatcher.AppHistory, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	var record dispatcher.AppHistory
	now, err := s.db.OrClock(ctx, now)
	if err != nil {
		return record, err
	}
	record.Now = now.Truncate(time.Millisecond)
	var kept, from int64
	var bounds string
	// $1 id
	found, err := db.ReadRow(ctx, s.db.Read, []any{&kept, &from, &bounds, &record.DisabledNow},
		`SELECT retention, history_from, bounds, NOT enabled FROM apps WHERE id = $1 AND deleted_at IS NULL`, run.AppID(app))
	if err = db.OrNotFound(found, err, "app", app); err != nil {
		return record, err
	}
	given, err := ReadBounds(app, bounds, "")
	if err != nil {
		return record, err
	}
	if given.Suspended {
		record.Suspended = access.App{Name: app, AppSpec: access.AppSpec{Bounds: given}}.SuspendedMessage()
	}
	record.Since = db.Instant(max(from, db.Day(record.Now.UnixMilli()-kept)))
	if at.IsZero() {
		at = record.Since
	}
	holds, err := s.AppHolds(ctx, at, []string{app})
	if err == nil {
		record.Switches, record.Pauses, record.Outages = holds[app].Switches, holds[app].Pauses, holds[app].Outages
	}
	return record, err
}

// mostHolds is how many pauses of an app, switches of an app, and outages are read.
const mostHolds = 100

// AppHolds reads the pauses of apps, and from the audit log their switches and the outages.
func (s *Store) AppHolds(ctx context.Context, since time.Time, apps []string) (map[string]*dispatcher.AppHistory, error) {
	return s.AppHoldsIn(ctx, s.db.Read, since, apps)
}

// AppHoldsIn is AppHolds in a transaction.
func (s *Store) AppHoldsIn(ctx context.Context, q db.Querier, since time.Time, apps []string) (map[string]*dispatcher.AppHistory, error) {
	ids, subjects, all := make([]int64, len(apps)), []string{dispatch.OutageSubject}, make(map[string]*dispatcher.AppHistory, len(apps))
	for i, app := range apps {
		ids[i], subjects, all[app] = run.AppID(app), append(subjects, "app "+app), &dispatcher.AppHistory{}
	}
	// $1 since, $2 limit of each app, from $3 on: the apps
	pauses := s.db.Rows(0, 3, "", db.IDColumns...) + ` SELECT ` + PauseColumns + ` FROM (
			SELECT q.*, row_number() OVER (PARTITION BY q.app_id ORDER BY q.ended_at IS NOT NULL, q.paused_at DESC, q.id) AS nth
			FROM b JOIN app_pauses AS q ON q.app_id = b.id WHERE q.ended_at IS NULL OR q.ended_at > $1) AS p
		JOIN apps AS a ON a.id = p.app_id WHERE p.nth <= $2 ORDER BY p.app_id, p.nth`
	err := db.EachRow(ctx, q, func(row db.Scanner) error {
		pause, err := ScanAppPause(row)
		if err == nil {
			all[pause.App].Pauses = append(all[pause.App].Pauses, pause)
		}
		return err
	}, pauses, append([]any{since.UnixMilli(), mostHolds}, s.db.Batch(ids)...)...)
	if err != nil {
		return nil, fmt.Errorf("read pauses of %d apps since %s: %w", len(apps), input.FormatInstant(since), err)
	}
	// $1 since, $2 limit of each subject, from $3 on: the subjects. The first switches count, and the latest outages.
	entries := s.db.Rows(0, 3, "", db.NameColumns...) + `, f AS (
			SELECT b.name, coalesce((SELECT max(o.at) FROM audit_log AS o
				WHERE o.subject = b.name AND o.action IN (` + dispatch.SwitchActions + `) AND o.at <= $1), $1) AS since FROM b)
		SELECT h.at, h.action <> 'disable', h.app, h.actor, coalesce(h.after, '') FROM (
			SELECT l.*, row_number() OVER (PARTITION BY l.subject ORDER BY CASE l.app WHEN '' THEN -l.at ELSE l.at END) AS nth
			FROM f JOIN audit_log AS l ON l.subject = f.name AND l.at >= f.since
			WHERE l.action IN ('reconnect', ` + dispatch.SwitchActions + `)) AS h
		WHERE h.nth <= $2 ORDER BY h.subject, h.nth`
	var outages []dispatcher.Outage
	err = db.EachRow(ctx, q, func(row db.Scanner) error {
		var one dispatcher.AppSwitch
		var app, outage string
		if err := row.Scan(db.InstantColumn(&one.At), &one.Enabled, &app, &one.Actor, &outage); err != nil {
			return err
		}
		if app == "" {
			outages = append(outages, dispatcher.Outage{})
			return json.Unmarshal([]byte(outage), &outages[len(outages)-1])
		}
		all[app].Switches = append(all[app].Switches, one)
		return nil
	}, entries, append([]any{since.UnixMilli(), mostHolds}, s.db.Batch(subjects)...)...)
	if err != nil {
		return nil, fmt.Errorf("read switches of %d apps and outages since %s: %w", len(apps), input.FormatInstant(since), err)
	}
	for _, of := range all {
		of.Outages = outages
	}
	return all, nil
}

// EveryJobName returns a page of the names of jobs that an app has or had.
func (s *Store) EveryJobName(ctx context.Context, app string, page input.Page) ([]string, error) {
	// $1 app, $2 last name of the page before, $3 limit
	const list = `SELECT name FROM jobs WHERE app_id = $1 AND name > $2 AND part_of = 0 ORDER BY name LIMIT $3`
	return db.Collect(ctx, s.db.Read, db.ScanText, list, run.AppID(app), page.Cursor, page.Limit)
}

// settledLate is how long after its own end a revision may cover an instant: that of a fire that was claimed ahead, by
// twice the longest claim lead.
const settledLate = 10_000 // milliseconds

// TriggerHistories returns the revisions of the triggers of jobs since an instant.
func (s *Store) TriggerHistories(ctx context.Context, since time.Time, jobs []int64) ([]dispatcher.TriggerHistory, error) {
	// $1 since, $2 the jobs. One statement, so that the revisions and what is next are of one moment.
	list := s.db.Rows(0, 2, "", db.IDColumns...) + ` SELECT ` + revisionRead.Names("r.") + `, t.name,
			coalesce(nullif(t.origin, ''), t.name), coalesce(nullif(j.origin, ''), j.name), a.name, c.next_fire_time, t.error
		FROM trigger_revisions AS r JOIN triggers AS t ON t.id = r.id` + dispatch.WithClock + `
			JOIN jobs AS j ON j.id = r.job_id JOIN apps AS a ON a.id = j.app_id
		WHERE r.job_id IN (SELECT id FROM b) AND (r.to_at IS NULL OR r.to_at > $1 OR r.cause = 'delete')
		ORDER BY r.job_id, t.name, r.revision, r.calendar_revision, r.from_at, r.cause = 'delete'`
	var records []dispatcher.TriggerHistory
	err := db.EachRow(ctx, s.db.Read, func(row db.Scanner) error {
		var next *int64
		var name, trigger, job, app, quarantined string
		var r revisionRow
		err := row.Scan(append(revisionRead.Refs(&r), &name, &trigger, &job, &app, &next, &quarantined)...)
		if n := len(records); n == 0 || records[n-1].ID != r.id {
			records = append(records, dispatcher.TriggerHistory{
				Name: name, ID: r.id, Identity: dispatcher.Identity(app, job, trigger), Next: db.Zeroable(db.Optional(next)), Error: quarantined,
			})
		}
		last := &records[len(records)-1]
		last.Revisions = append(last.Revisions, r.TriggerRevision)
		return err
	}, list, append([]any{since.UnixMilli() - settledLate}, s.db.Batch(jobs)...)...)
	return records, err
}

// CalendarsAt returns the calendars of an app at a common revision.
func (s *Store) CalendarsAt(ctx context.Context, app string, revision int64) ([]dispatcher.Calendar, error) {
	// $1 app, $2 revision of the lot
	const list = `SELECT r.name, r.definition FROM calendar_revisions AS r WHERE r.app_id = $1 AND r.definition IS NOT NULL
		AND r.calendar_revision = (SELECT max(n.calendar_revision) FROM calendar_revisions AS n
			WHERE n.app_id = r.app_id AND n.name = r.name AND n.calendar_revision <= $2)`
	return db.Collect(ctx, s.db.Read, func(row db.Scanner) (dispatcher.Calendar, error) {
		c := dispatcher.Calendar{App: app}
		var text string
		err := row.Scan(&c.Name, &text)
		decodeCalendar(&c, text)
		return c, err
	}, list, run.AppID(app), revision)
}
