package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/definitions"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/store/feeds"
	"github.com/carillon-dev/carillon/dispatcher/store/reads"
	"github.com/carillon-dev/carillon/dispatcher/store/retention"
	"github.com/carillon-dev/carillon/dispatcher/store/seal"
)

// Options tunes a store. The zero value works.
type Options struct {
	db.Options
	// Keys encrypt the values of secrets; nil: secrets cannot be stored.
	Keys *seal.Keys
	// AuditRetention is how long Purge keeps entries of the audit log, independent of the retentions of apps; default
	// access.DefaultAuditRetention.
	AuditRetention time.Duration
	// Logger gets a line for each row that is set aside; default slog.Default().
	Logger *slog.Logger
}

// The parts of a store, under names that other packages cannot access.
type (
	dispatchStore    = dispatch.Store
	definitionsStore = definitions.Store
	readsStore       = reads.Store
	feedsStore       = feeds.Store
	retentionStore   = retention.Store
)

// Store stores definitions and the ledger in PostgreSQL or SQLite: the sum of its parts. Package storetest tests it.
type Store struct {
	dispatchStore
	definitionsStore
	readsStore
	feedsStore
	retentionStore
	db *db.DB
	// requests is the same database over separate connections, nil without Options.Requests.
	requests *Store
}

func assembled(below *dispatch.Store, d *db.DB, o Options) *Store {
	s := &Store{db: d, dispatchStore: *below.Over(d)}
	s.definitionsStore = *definitions.New(&s.dispatchStore, d, o.Keys)
	s.readsStore = *reads.New(&s.dispatchStore, &s.definitionsStore, d)
	s.feedsStore = *feeds.New(&s.dispatchStore, &s.definitionsStore, &s.readsStore, d)
	s.retentionStore = *retention.New(&s.dispatchStore, &s.definitionsStore, d, access.AuditRetention(o.AuditRetention))
	return s
}

// Refused is db.RefusesWrites.
func (*Store) Refused(err error) error { return db.RefusesWrites(err) }

// Open opens a migrated database: postgres://…, postgresql://… or sqlite:PATH. The error is
// ErrSchemaTooNew if a newer version has migrated it, ErrKeyMissing if it has secrets that the keys cannot open.
func Open(ctx context.Context, address string, o Options) (*Store, error) {
	a, err := db.ParseAddress(address)
	if err != nil {
		return nil, err
	}
	a.Login = o.Login
	below := dispatch.New(cmp.Or(o.Logger, slog.Default()))
	database, err := db.Open(ctx, a, o.Options, below.Watch())
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", a, err)
	}
	s := assembled(below, database, o)
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	err = checkSchema(ctx, database.Read, a)
	if err == nil && !o.AlongsideNode {
		err = s.CheckKeys(ctx)
	}
	if err == nil && o.Requests {
		if database, err = s.db.Apart(ctx); err == nil {
			s.requests = assembled(below, database, o)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", a, errors.Join(err, s.Close()))
	}
	if o.Metrics != nil {
		o.Metrics.MustRegister(append(s.db.Metrics, below.Metrics()...)...)
	}
	return s, nil
}

// Close releases the database.
func (s *Store) Close() error {
	if s.requests != nil {
		return errors.Join(s.requests.db.Read.Close(), s.db.Close())
	}
	return s.db.Close()
}

// Capabilities returns the capabilities of the database.
func (s *Store) Capabilities() db.Capabilities { return s.db.Capabilities() }

// Listen calls notification for each change that concerns nodes, until ctx ends.
func (s *Store) Listen(ctx context.Context, notification func(dispatcher.Notification)) error {
	return s.db.Listen(ctx, notification)
}

// ForRequests returns a store for the requests of the API if s was opened with Options.Requests, otherwise s. It is the
// same database over separate connections, so that requests cannot take those that claims, records and heartbeats need.
// It ends with s, and must not be closed.
func (s *Store) ForRequests() *Store {
	if s.requests != nil {
		return s.requests
	}
	return s
}
