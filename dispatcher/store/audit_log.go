package store

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"unicode/utf8"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// auditEntry is what an entry of the audit log says of a change, besides who made it.
type auditEntry struct {
	action, app, subject string
	revision             int64
	before, after        any // nil: none. What is stored of them is their JSON.
}

// audit adds a change to the audit log. It notifies nobody; see notify.
func (t *tx) audit(ctx context.Context, action, app, subject string, revision int64) error {
	return t.auditChange(ctx, auditEntry{action: action, app: app, subject: subject, revision: revision})
}

// auditChange is audit of a change that tells what was before it and what is after it.
func (t *tx) auditChange(ctx context.Context, c auditEntry) error {
	by := t.by
	by.Now = t.now
	return insertAuditEntry(ctx, t.execute, t.audits.ids.Add(1), by, c)
}

// drawAuditID draws the id of the first entry of a node. Those that follow count up, so that they stay in order.
func drawAuditID() int64 { return rand.Int64N(1 << 62) }

// insertAuditEntry writes the entry of a change.
func insertAuditEntry(ctx context.Context, do execute, id int64, by input.Change, c auditEntry) error {
	e := access.AuditEntry{
		At: by.Now, Actor: by.Actor, TokenID: by.TokenID, Address: by.Address, RequestID: by.RequestID,
		Action: c.action, App: c.app, Subject: c.subject, Revision: c.revision,
	}
	for _, side := range []struct {
		value any
		into  *json.RawMessage
	}{{c.before, &e.Before}, {c.after, &e.After}} {
		if side.value == nil {
			continue
		}
		var err error
		if *side.into, err = boundedJSON(side.value); err != nil {
			return fmt.Errorf("audit %s %s: %w", c.action, c.subject, err)
		}
	}
	return writeAuditEntry(ctx, do, id, e)
}

func writeAuditEntry(ctx context.Context, do execute, id int64, e access.AuditEntry) error {
	// $1 when, $2 its id, $3 actor, $4 action, $5 app, $6 subject, $7 revision, $8 token, $9 address, $10 request,
	// $11 code of a refusal, $12 before, $13 after
	const insert = `INSERT INTO audit_log (at, id, actor, action, app, subject, revision, token_id, address, request_id, refused,
			before, after)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`
	if _, err := do(ctx, insert, e.At.UnixMilli(), id, storable(e.Actor), e.Action, e.App, storable(e.Subject), e.Revision,
		e.TokenID, storable(e.Address), storable(e.RequestID), e.Refused, orNullText(e.Before), orNullText(e.After)); err != nil {
		return fmt.Errorf("audit %s %s: %w", e.Action, e.Subject, err)
	}
	return nil
}

// orNullText turns JSON into a parameter: NULL if there is none.
func orNullText(raw json.RawMessage) *string {
	if raw == nil {
		return nil
	}
	text := storable(string(raw))
	return &text
}

// cut stands for JSON that is too large for an entry.
type cut struct {
	Cut       string `json:"cut"`
	Bytes     int    `json:"bytes"`
	SHA256    string `json:"sha256"`
	Beginning string `json:"beginning,omitempty"`
}

// cutOf returns what stands for a text: at most size bytes of it, as JSON that has at most some 100 bytes more.
func cutOf(what string, raw []byte, size int) cut {
	sum := sha256.Sum256(raw)
	c := cut{
		Cut:   what + " is too large for the audit log, which has its beginning and its sum",
		Bytes: len(raw), SHA256: hex.EncodeToString(sum[:]),
	}
	for end := min(size, len(raw)); end > 0; end = end * 3 / 4 { // quotes double
		for end > 0 && !utf8.RuneStart(raw[end-1]) {
			end--
		}
		c.Beginning = string(raw[:max(0, end-1)])
		if quoted, err := json.Marshal(c.Beginning); err == nil && len(quoted) <= size {
			return c
		}
	}
	c.Beginning = ""
	return c
}

// boundedJSON returns the JSON of a definition. Of one that is too large the payload is cut first: it is the largest part,
// and says the least about who may do what. The rest is cut only if that is not enough.
func boundedJSON(value any) (json.RawMessage, error) {
	raw, err := json.Marshal(value)
	if err != nil || len(raw) <= access.MaxAuditDefinition {
		return raw, err
	}
	var parts map[string]json.RawMessage
	if json.Unmarshal(raw, &parts) == nil && parts["payload"] != nil {
		if parts["payload"], err = json.Marshal(cutOf("the payload", parts["payload"], 1<<10)); err != nil {
			return nil, err
		}
		if shorter, err := json.Marshal(parts); err != nil || len(shorter) <= access.MaxAuditDefinition {
			return shorter, err
		}
	}
	const rest = 1 << 10 // for the other fields of cut
	return json.Marshal(cutOf("the definition", raw, access.MaxAuditDefinition-rest))
}

// auditState is what a store knows for its audit log: the key that hashes the values of secrets, and the latest id.
type auditState struct {
	key atomic.Pointer[[]byte]
	ids atomic.Int64
}

// hashKey reads the key. It is random, so that nobody who has only the log finds a secret by trying a list; it stays, so that
// two entries with the same secret have the same hash.
func (a *auditState) hashKey(ctx context.Context, q db.Querier) ([]byte, error) {
	if known := a.key.Load(); known != nil {
		return *known, nil
	}
	const stored = `SELECT id || ':' || audit_key FROM installation`
	text, _, err := db.First(ctx, q, db.ScanText, stored)
	if err != nil {
		return nil, fmt.Errorf("read the key of the audit log: %w", err)
	}
	key := []byte(text)
	a.key.Store(&key)
	return key, nil
}

// hashed returns secrets with hashes in place of their values.
func hashed(ctx context.Context, t *tx, secrets map[string]target.Secret) (map[string]target.Secret, error) {
	for path, secret := range secrets {
		if secret.Value.IsZero() {
			continue
		}
		key, err := t.audits.hashKey(ctx, t)
		if err != nil {
			return nil, err
		}
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(secret.Value.Reveal()))
		secrets[path] = target.Secret{Value: input.NewSensitive("hash:" + hex.EncodeToString(mac.Sum(nil)[:4]))}
	}
	return secrets, nil
}

// auditedJob returns what the audit log shows of a job: what was declared and what is paused. The values of its secrets
// are replaced by hashes; nil is none.
func auditedJob(ctx context.Context, t *tx, job *dispatcher.Job) (any, error) {
	if job == nil {
		return nil, nil
	}
	shown := *job
	hashes, err := hashed(ctx, t, target.Secrets(*job))
	if err != nil {
		return nil, err
	}
	parts, err := partsOf(target.ForWire(target.WithSecrets(shown, hashes)))
	if err != nil {
		return nil, err
	}
	without(parts, "state", "revision", "created_at", "updated_at", "warnings")
	triggers := map[string]map[string]json.RawMessage{}
	if err := json.Unmarshal(parts["triggers"], &triggers); err != nil {
		return nil, err
	}
	for _, trigger := range triggers {
		without(trigger, "state", "error", "prev_fire_time", "next_fire_time", "due_at", "anchor_at", "counted_from", "fired")
	}
	parts["triggers"], err = json.Marshal(triggers)
	return parts, err
}

// auditedApp returns what the audit log shows of an app.
func auditedApp(app access.App) (any, error) {
	parts, err := partsOf(app)
	without(parts, "revision", "created_at", "updated_at", "breaks", "pauses", "usage")
	return parts, err
}

// readAuditedApp returns what the audit log shows of a stored app; nil if there is none.
func readAuditedApp(ctx context.Context, t *tx, name string) (any, error) {
	app, err := readApp(ctx, t, name, "")
	if errors.Is(err, dispatcher.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return auditedApp(app)
}

// auditApp adds a change of an app to the audit log.
func auditApp(ctx context.Context, t *tx, c auditEntry, after access.App) (err error) {
	if c.after, err = auditedApp(after); err != nil {
		return fmt.Errorf("audit %s %s: %w", c.action, c.subject, err)
	}
	return t.auditChange(ctx, c)
}

// auditedCalendar returns what the audit log shows of a calendar; nil if it is none.
func auditedCalendar(calendar dispatcher.Calendar) (any, error) {
	if calendar.Revision == 0 {
		return nil, nil
	}
	parts, err := partsOf(calendar)
	without(parts, "revision", "created_at", "updated_at")
	return parts, err
}

// auditedRun returns what the audit log shows of a run.
func auditedRun(run run.Run) any {
	return map[string]any{"job": run.Job, "trigger": run.Trigger, "scheduled_at": run.ScheduledAt, "state": run.State}
}

// auditedInput returns what the audit log shows of what a run was given: not the payload, which may hold anything, but its sum.
// nil: nothing.
func auditedInput(input *run.Input) any {
	if input == nil || input.Payload == nil {
		return nil
	}
	return map[string]any{"payload": sumOf(input.Payload)}
}

// sumOf is what the audit log has of a payload.
func sumOf(payload json.RawMessage) any {
	sum := sha256.Sum256(payload)
	return map[string]any{"bytes": len(payload), "sha256": hex.EncodeToString(sum[:])}
}

// auditImport adds the import of an app to the audit log: the app, and the names of what came with it.
func auditImport(ctx context.Context, t *tx, export access.Export, app access.App) error {
	shown, err := auditedApp(app)
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
	return t.auditChange(ctx, auditEntry{action: "import", app: app.Name, subject: "app " + app.Name, revision: app.Revision,
		after: map[string]any{"app": shown, "jobs": jobs, "calendars": calendars, "groups": groups, "waiting_runs": len(export.Waiting),
			"installation": export.Installation}})
}

// auditCalendar adds a change of a calendar to the audit log. One without revision is none.
func auditCalendar(ctx context.Context, t *tx, c auditEntry, before, after dispatcher.Calendar) (err error) {
	if c.before, err = auditedCalendar(before); err == nil {
		c.after, err = auditedCalendar(after)
	}
	if err != nil {
		return fmt.Errorf("audit %s %s: %w", c.action, c.subject, err)
	}
	return t.auditChange(ctx, c)
}

// partsOf returns the JSON of a definition by its fields.
func partsOf(definition any) (parts map[string]json.RawMessage, err error) {
	raw, err := json.Marshal(definition)
	if err == nil {
		err = json.Unmarshal(raw, &parts)
	}
	return parts, err
}

func without(parts map[string]json.RawMessage, names ...string) {
	for _, name := range names {
		delete(parts, name)
	}
}

// withValues returns a copy of a job with the values of its stored secrets, as far as the keys open them; nil if job is.
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
	for event, follow := range job.EachFollow() {
		if follow.Target != nil {
			with = with.WithFollowTarget(event, opened[i].Target)
		}
		i++
	}
	return &with, err
}

// replacedValues returns a definition as it is stored, with the values of the secrets that were given for it, and of those that it has
// kept from old, which has values; nil: there was none.
func replacedValues[T any](stored, given T, old *T) *T {
	var kept map[string]target.Secret
	if old != nil {
		kept = target.Secrets(*old)
	}
	stored = target.WithSecrets(stored, keptValues(target.Secrets(given), kept))
	return &stored
}

// keptValues returns given with the values of those secrets that were stored before.
func keptValues(given, before map[string]target.Secret) map[string]target.Secret {
	for path, secret := range given {
		if value, was := before[path]; secret.Stored && was {
			given[path] = value
		}
	}
	return given
}

// auditJob adds a change of a job to the audit log.
func auditJob(ctx context.Context, t *tx, c auditEntry, before, after *dispatcher.Job) (err error) {
	if c.before, err = auditedJob(ctx, t, before); err == nil {
		c.after, err = auditedJob(ctx, t, after)
	}
	if err != nil {
		return fmt.Errorf("audit %s %s: %w", c.action, c.subject, err)
	}
	return t.auditChange(ctx, c)
}

// RecordRefusal adds the refusal of a change to the audit log.
func (s *Store) RecordRefusal(ctx context.Context, entry access.AuditEntry) error {
	return s.change(ctx, input.Change{Now: entry.At}, func(ctx context.Context, t *tx) error {
		entry.At = t.now
		return writeAuditEntry(ctx, t.execute, t.audits.ids.Add(1), entry)
	})
}
