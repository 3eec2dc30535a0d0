package definitions

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// maxAuditBytes bounds the definitions in a page of the audit log. The entry that exceeds it is still included.
const maxAuditBytes = 2 << 20

const auditColumns = `a.at, a.id, a.actor, a.token_id, a.address, a.request_id, a.action, a.app, a.subject, a.revision, a.refused,
	a.before, a.after`

func scanAuditEntry(row db.Scanner) (e access.AuditEntry, err error) {
	var id int64
	var before, after *string
	err = row.Scan(db.InstantColumn(&e.At), &id, &e.Actor, &e.TokenID, &e.Address, &e.RequestID, &e.Action, &e.App, &e.Subject, &e.Revision,
		&e.Refused, &before, &after)
	e.ID = access.AuditID(e.At, id)
	if before != nil {
		e.Before = json.RawMessage(*before)
	}
	if after != nil {
		e.After = json.RawMessage(*after)
	}
	return e, err
}

// AuditEntries returns a page of the audit log.
func (s *Store) AuditEntries(ctx context.Context, query access.AuditQuery) (page access.AuditPage, err error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	statement, args, err := AuditStatement(query)
	if err != nil {
		return page, err
	}
	rows, err := s.db.Read.QueryContext(ctx, statement, args...)
	if err != nil {
		return page, fmt.Errorf("read the audit log: %w", err)
	}
	defer rows.Close()
	for size := 0; rows.Next(); {
		if page.More = size >= maxAuditBytes || len(page.Entries) == query.Limit; page.More {
			return page, nil
		}
		e, err := scanAuditEntry(rows)
		if err != nil {
			return page, fmt.Errorf("read the audit log: %w", err)
		}
		page.Entries = append(page.Entries, e)
		size += len(e.Before) + len(e.After)
	}
	if err := rows.Err(); err != nil {
		return page, fmt.Errorf("read the audit log: %w", err)
	}
	return page, nil
}

// StatementArgs are the parameters of a statement under construction.
type StatementArgs []any

// Add adds an argument, and returns its name in the statement.
func (a *StatementArgs) Add(value any) string {
	*a = append(*a, value)
	return fmt.Sprintf("$%d", len(*a))
}

// AuditStatement returns the statement for a page plus one entry. It queries each app, and each of the two meanings of
// an actor, separately, so that each query reads an index in the order of the page and at most a page.
func AuditStatement(query access.AuditQuery) (string, []any, error) {
	var args StatementArgs
	limit := args.Add(query.Limit + 1)
	common, err := auditConditions(query, &args)
	if err != nil {
		return "", nil, err
	}
	looks := []string{""}
	if query.Apps != nil {
		looks = nil
		for _, app := range query.Apps {
			looks = append(looks, ` AND a.app = `+args.Add(app))
		}
	}
	if query.Actor != "" {
		actor := args.Add(query.Actor)
		var both []string
		for _, look := range looks {
			// The index of token ids contains non-empty ones only.
			both = append(both, look+` AND a.actor = `+actor, look+` AND a.token_id = `+actor+` AND a.token_id <> '' AND a.actor <> `+actor)
		}
		looks = both
	}
	if len(looks) == 0 {
		looks = []string{` AND 1 = 0`}
	}
	order := ` ORDER BY at DESC, id DESC LIMIT ` + limit
	if query.OldestFirst {
		order = ` ORDER BY at, id LIMIT ` + limit
	}
	for i, look := range looks {
		looks[i] = `SELECT ` + auditColumns + ` FROM audit_log AS a WHERE 1 = 1` + common + look + order
	}
	if len(looks) == 1 {
		return looks[0], args, nil
	}
	return `SELECT ` + auditColumns + ` FROM (SELECT * FROM (` + strings.Join(looks, `) AS l UNION ALL SELECT * FROM (`) + `) AS l) AS a` +
		order, args, nil
}

// auditConditions returns the conditions of each query, with AND before each.
func auditConditions(query access.AuditQuery, args *StatementArgs) (string, error) {
	var all strings.Builder
	where := func(condition string, values ...any) {
		names := make([]any, len(values))
		for i, value := range values {
			names[i] = args.Add(value)
		}
		fmt.Fprintf(&all, " AND "+condition, names...)
	}
	if !query.From.IsZero() {
		where(`a.at >= %s`, query.From.UnixMilli())
	}
	if !query.To.IsZero() {
		where(`a.at < %s`, query.To.UnixMilli())
	}
	if query.Cursor != "" {
		at, id, err := access.ParseAuditID(query.Cursor)
		if err != nil {
			return "", err
		}
		beyond := map[bool]string{false: `<`, true: `>`}[query.OldestFirst]
		where(`(a.at, a.id) `+beyond+` (%s, %s)`, at.UnixMilli(), id)
	}
	if query.Action != "" {
		where(`a.action = %s`, query.Action)
	}
	if query.Subject != "" {
		where(`a.subject = %s`, query.Subject)
	}
	if query.Refused != nil {
		where(map[bool]string{true: `a.refused <> ''`, false: `a.refused = ''`}[*query.Refused])
	}
	return all.String(), nil
}

// auditSides adds a change to the audit log, with the shown form of the definition before and after it.
func auditSides[T any](ctx context.Context, t *dispatch.Tx, c dispatch.AuditEntry, sides [2]T,
	shown func(T) (any, error)) (err error) {
	if c.Before, err = shown(sides[0]); err == nil {
		c.After, err = shown(sides[1])
	}
	if err != nil {
		return fmt.Errorf("audit %s %s: %w", c.Action, c.Subject, err)
	}
	return t.AuditChange(ctx, c)
}

// auditGroup adds a change of a group to the audit log, as declared, with hashes for the values of its secrets. before
// or after may be nil.
func auditGroup(ctx context.Context, t *dispatch.Tx, c dispatch.AuditEntry, before, after *target.EndpointGroup) error {
	return auditSides(ctx, t, c, [2]*target.EndpointGroup{before, after}, func(group *target.EndpointGroup) (any, error) {
		if group == nil {
			return nil, nil
		}
		hashes, err := hashed(ctx, t, target.Secrets(*group))
		if err != nil {
			return nil, err
		}
		parts, err := dispatch.PartsOf(target.ForWire(target.WithSecrets(*group, hashes)))
		dispatch.Without(parts, "revision", "created_at", "updated_at")
		return parts, err
	})
}

// hashed returns secrets with hashes instead of their values.
func hashed(ctx context.Context, t *dispatch.Tx, secrets map[string]target.Secret) (map[string]target.Secret, error) {
	for path, secret := range secrets {
		if secret.Value.IsZero() {
			continue
		}
		key, err := t.Audits.HashKey(ctx, t)
		if err != nil {
			return nil, err
		}
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(secret.Value.Reveal()))
		secrets[path] = target.Secret{Value: input.NewSensitive("hash:" + hex.EncodeToString(mac.Sum(nil)[:4]))}
	}
	return secrets, nil
}

// auditJob adds a change of a job to the audit log, as declared, with its pauses and with hashes for the values of its
// secrets. before or after may be nil.
func auditJob(ctx context.Context, t *dispatch.Tx, c dispatch.AuditEntry, before, after *dispatcher.Job) error {
	return auditSides(ctx, t, c, [2]*dispatcher.Job{before, after}, func(job *dispatcher.Job) (any, error) {
		if job == nil {
			return nil, nil
		}
		hashes, err := hashed(ctx, t, target.Secrets(*job))
		if err != nil {
			return nil, err
		}
		parts, err := dispatch.PartsOf(target.ForWire(target.WithSecrets(*job, hashes)))
		if err != nil {
			return nil, err
		}
		dispatch.Without(parts, "state", "revision", "created_at", "updated_at", "warnings")
		triggers := map[string]map[string]json.RawMessage{}
		if err := json.Unmarshal(parts["triggers"], &triggers); err != nil {
			return nil, err
		}
		for _, trigger := range triggers {
			dispatch.Without(trigger, "state", "error", "prev_fire_time", "next_fire_time", "due_at", "anchor_at", "counted_from", "fired")
		}
		parts["triggers"], err = json.Marshal(triggers)
		return parts, err
	})
}

// auditedApp returns the form of an app in the audit log; nil for nil.
func auditedApp(app *access.App) (any, error) {
	if app == nil {
		return nil, nil
	}
	parts, err := dispatch.PartsOf(app)
	dispatch.Without(parts, "revision", "created_at", "updated_at", "breaks", "pauses", "usage")
	return parts, err
}

// auditApp adds a change of an app to the audit log.
func auditApp(ctx context.Context, t *dispatch.Tx, c dispatch.AuditEntry, before, after *access.App) error {
	return auditSides(ctx, t, c, [2]*access.App{before, after}, auditedApp)
}

// auditImport adds the import of an app to the audit log: the app, and the names of the imported definitions.
func auditImport(ctx context.Context, t *dispatch.Tx, export access.Export, app access.App) error {
	shown, err := auditedApp(&app)
	if err != nil {
		return fmt.Errorf("audit import app %s: %w", app.Name, err)
	}
	jobs, calendars, groups := make([]string, len(export.Jobs)), make([]string, len(export.Calendars)), make([]string, len(export.Groups))
	for i, one := range export.Groups {
		groups[i] = one.Name
	}
	for i, one := range export.Jobs {
		jobs[i] = one.Job.Name
	}
	for i, one := range export.Calendars {
		calendars[i] = one.Name
	}
	return t.AuditChange(ctx, dispatch.AuditEntry{Action: "import", App: app.Name, Subject: "app " + app.Name, Revision: app.Revision,
		After: map[string]any{"app": shown, "jobs": jobs, "calendars": calendars, "groups": groups, "waiting_runs": len(export.Waiting),
			"installation": export.Installation}})
}

// auditCalendar adds a change of a calendar to the audit log. A calendar without revision means none.
func auditCalendar(ctx context.Context, t *dispatch.Tx, c dispatch.AuditEntry, before, after dispatcher.Calendar) error {
	return auditSides(ctx, t, c, [2]dispatcher.Calendar{before, after}, func(calendar dispatcher.Calendar) (any, error) {
		if calendar.Revision == 0 {
			return nil, nil
		}
		parts, err := dispatch.PartsOf(calendar)
		dispatch.Without(parts, "revision", "created_at", "updated_at")
		return parts, err
	})
}

// withValues returns a copy of a job with the values of its stored secrets that the keys can open; nil if job is nil.
func (s *Store) withValues(ctx context.Context, q db.Querier, job *dispatcher.Job) (*dispatcher.Job, error) {
	if job == nil {
		return nil, nil
	}
	opened := []dispatcher.JobVersion{{ID: job.Key(), Job: *job}}
	for event := range job.EachFollow() {
		attached := job.Attached(event)
		opened = append(opened, dispatcher.JobVersion{ID: attached.Key(), Job: attached})
	}
	err := s.openSecrets(ctx, q, opened)
	with, i := opened[0].Job, 1
	for event := range job.EachFollow() {
		with = with.WithFollowSecrets(event, target.Secrets(opened[i].Target))
		i++
	}
	return &with, err
}

// replacedValues returns a stored definition with the values of the secrets given for it and of those kept from old,
// which has values; old is nil for a new definition.
func replacedValues[T any](stored, given T, old *T) *T {
	var kept map[string]target.Secret
	if old != nil {
		kept = target.Secrets(*old)
	}
	secrets := target.Secrets(given)
	for path, secret := range secrets {
		if value, was := kept[path]; secret.Stored && was {
			secrets[path] = value
		}
	}
	stored = target.WithSecrets(stored, secrets)
	return &stored
}
