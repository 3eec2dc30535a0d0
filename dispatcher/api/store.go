package api

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/verify"
)

// Store is what the API asks of a store. The interfaces of package dispatcher say what the methods
// do.
type Store interface {
	dispatcher.Definitions
	dispatcher.Ledger
	verify.Reader

	// Of dispatcher.Credentials:
	TokenByHash(ctx context.Context, hash [32]byte) (dispatcher.APIToken, error)

	// Of dispatcher.Fleet:
	Installation(ctx context.Context) (string, error)
	Clock(ctx context.Context) (time.Time, error)
	Nodes(ctx context.Context) ([]dispatcher.Node, error)
	SetNodeState(ctx context.Context, id dispatcher.NodeID, state dispatcher.NodeState, change dispatcher.Change) (
		dispatcher.Node, error)

	// Of dispatcher.Dispatch:
	AppCalendars(ctx context.Context, app string) (revision int64, all []dispatcher.Calendar, err error)

	// Of dispatcher.Rollbacks:
	Rollback(ctx context.Context) (*dispatcher.Rollback, error)
	ResolveRollback(ctx context.Context, choice dispatcher.RollbackChoice, change dispatcher.Change) (
		dispatcher.Rollback, error)
}
