package dispatch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"unicode/utf8"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// AuditEntry is the content of an entry of the audit log, except the actor.
type AuditEntry struct {
	Action, App, Subject string
	Revision             int64
	Before, After        any // nil: none. Their JSON is stored.
}

// Audit adds a change to the audit log. It does not notify nodes; see Notify.
func (t *Tx) Audit(ctx context.Context, action, app, subject string, revision int64) error {
	return t.AuditChange(ctx, AuditEntry{Action: action, App: app, Subject: subject, Revision: revision})
}

// AuditChange is Audit for a change with its states before and after.
func (t *Tx) AuditChange(ctx context.Context, c AuditEntry) error {
	by := t.By
	by.Now = t.At
	return insertAuditEntry(ctx, t.Affect, t.Audits.ids.Add(1), by, c)
}

// drawAuditID draws the id of the first entry of a node. Later ids count up from it, so entries stay in order.
func drawAuditID() int64 { return rand.Int64N(1 << 62) }

func insertAuditEntry(ctx context.Context, do execute, id int64, by input.Change, c AuditEntry) error {
	e := access.AuditEntry{
		At: by.Now, Actor: by.Actor, TokenID: by.TokenID, Address: by.Address, RequestID: by.RequestID,
		Action: c.Action, App: c.App, Subject: c.Subject, Revision: c.Revision,
	}
	for _, side := range []struct {
		value any
		into  *json.RawMessage
	}{{c.Before, &e.Before}, {c.After, &e.After}} {
		if side.value == nil {
			continue
		}
		var err error
		if *side.into, err = boundedJSON(side.value); err != nil {
			return fmt.Errorf("audit %s %s: %w", c.Action, c.Subject, err)
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
	if _, err := do(ctx, insert, e.At.UnixMilli(), id, Storable(e.Actor), e.Action, e.App, Storable(e.Subject), e.Revision,
		e.TokenID, Storable(e.Address), Storable(e.RequestID), e.Refused, OrNullText(e.Before), OrNullText(e.After)); err != nil {
		return fmt.Errorf("audit %s %s: %w", e.Action, e.Subject, err)
	}
	return nil
}

// OrNullText turns JSON into a parameter: NULL if it is empty.
func OrNullText(raw json.RawMessage) *string {
	if raw == nil {
		return nil
	}
	text := Storable(string(raw))
	return &text
}

// cut replaces JSON that is too large for an entry.
type cut struct {
	Cut       string `json:"cut"`
	Bytes     int    `json:"bytes"`
	SHA256    string `json:"sha256"`
	Beginning string `json:"beginning,omitempty"`
}

// cutOf returns the replacement for a text: at most size bytes of it, as JSON with at most some 100 bytes more.
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

// boundedJSON returns the JSON of a definition. If it is too large, the payload is cut first: it is the largest part
// and matters least for access. The rest is cut only if that is not enough.
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

// AuditState is the state of a store for its audit log: the key that hashes the values of secrets, and the latest id.
type AuditState struct {
	key atomic.Pointer[[]byte]
	ids atomic.Int64
}

// HashKey reads the key. It is random, so that a leaked log does not reveal secrets to guessing; it does not change, so
// that two entries with the same secret have the same hash.
func (a *AuditState) HashKey(ctx context.Context, q db.Querier) ([]byte, error) {
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

// AuditedRun returns the form of a run in the audit log.
func AuditedRun(run run.Run) any {
	return map[string]any{"job": run.Job, "trigger": run.Trigger, "scheduled_at": run.ScheduledAt, "state": run.State}
}

// AuditedInput returns the form of a run's input in the audit log: not the payload, which may hold anything, but its
// sum. nil: no input.
func AuditedInput(input *run.Input) any {
	if input == nil || input.Payload == nil {
		return nil
	}
	return map[string]any{"payload": SumOf(input.Payload)}
}

// SumOf returns the form of a payload in the audit log.
func SumOf(payload json.RawMessage) any {
	sum := sha256.Sum256(payload)
	return map[string]any{"bytes": len(payload), "sha256": hex.EncodeToString(sum[:])}
}

// PartsOf returns the JSON of a definition by its fields.
func PartsOf(definition any) (parts map[string]json.RawMessage, err error) {
	raw, err := json.Marshal(definition)
	if err == nil {
		err = json.Unmarshal(raw, &parts)
	}
	return parts, err
}

// Without removes parts of a definition that the audit log does not show.
func Without(parts map[string]json.RawMessage, names ...string) {
	for _, name := range names {
		delete(parts, name)
	}
}

// RecordRefusal adds the refusal of a change to the audit log.
func (s *Store) RecordRefusal(ctx context.Context, entry access.AuditEntry) error {
	return s.Change(ctx, input.Change{Now: entry.At}, func(ctx context.Context, t *Tx) error {
		entry.At = t.At
		return writeAuditEntry(ctx, t.Affect, t.Audits.ids.Add(1), entry)
	})
}
