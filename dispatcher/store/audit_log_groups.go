package store

import (
	"context"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher/target"
)

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
