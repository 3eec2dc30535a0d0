package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// maxAuditBytes bounds the definitions in a page of the audit log. One entry more may fit in after it is reached.
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
	statement, args, err := auditStatement(query)
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

// statementArgs are the parameters of a statement that is being written.
type statementArgs []any

func (a *statementArgs) add(value any) string {
	*a = append(*a, value)
	return fmt.Sprintf("$%d", len(*a))
}

// auditStatement returns the statement for a page, and an entry more. Each app, and each of the two meanings of an actor,
// is looked up by itself, so that each look reads an index in the order of the page and no more than a page.
func auditStatement(query access.AuditQuery) (string, []any, error) {
	var args statementArgs
	limit := args.add(query.Limit + 1)
	common, err := auditConditions(query, &args)
	if err != nil {
		return "", nil, err
	}
	looks := []string{""}
	if query.Apps != nil {
		looks = nil
		for _, app := range query.Apps {
			looks = append(looks, ` AND a.app = `+args.add(app))
		}
	}
	if query.Actor != "" {
		actor := args.add(query.Actor)
		var both []string
		for _, look := range looks {
			// The index of token ids has those that are not empty.
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

// auditConditions returns those that every look has, with an AND before each.
func auditConditions(query access.AuditQuery, args *statementArgs) (string, error) {
	var all strings.Builder
	where := func(condition string, values ...any) {
		names := make([]any, len(values))
		for i, value := range values {
			names[i] = args.add(value)
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

// auditedGroup returns what the audit log shows of a group: what was declared. The values of its secrets are replaced by
// hashes; nil is none.
func auditedGroup(ctx context.Context, t *tx, group *target.EndpointGroup) (any, error) {
	if group == nil {
		return nil, nil
	}
	hashes, err := hashed(ctx, t, target.Secrets(*group))
	if err != nil {
		return nil, err
	}
	parts, err := partsOf(target.ForWire(target.WithSecrets(*group, hashes)))
	without(parts, "revision", "created_at", "updated_at")
	return parts, err
}

// auditGroup adds a change of a group to the audit log.
func auditGroup(ctx context.Context, t *tx, c auditEntry, before, after *target.EndpointGroup) (err error) {
	if c.before, err = auditedGroup(ctx, t, before); err == nil {
		c.after, err = auditedGroup(ctx, t, after)
	}
	if err != nil {
		return fmt.Errorf("audit %s %s: %w", c.action, c.subject, err)
	}
	return t.auditChange(ctx, c)
}
