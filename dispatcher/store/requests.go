package store

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5/pgxpool"
)

// ForRequests returns what s has for the requests of the API if it was opened with Options.Requests, otherwise s. It is
// the same database over connections of its own, so that no number of requests takes those that claims, records and
// heartbeats need. It ends with s, and is not to be closed.
func (s *Store) ForRequests() *Store {
	if s.requests != nil {
		return s.requests
	}
	return s
}

// apart is connections for requests.
type apart struct {
	flavor
	write, read *sql.DB
	// gate, if not nil, lets one request at a time write: SQLite has one connection that writes, and serves those
	// who wait for it in any order. A claim then waits for one request at most.
	gate chan struct{}
}

// openRequests opens what ForRequests returns, and makes its first connection, so that a server that has none to spare
// for it later has given it one.
func (s *Store) openRequests(ctx context.Context) error {
	a, err := s.apart(ctx)
	if err != nil {
		return err
	}
	own := *s
	own.flavor, own.write, own.read, own.gate = a.flavor, a.write, a.read, a.gate
	// The clock that requests read is not worth the connection of the heartbeats.
	own.heartbeat = a.read
	s.requests = &own
	return a.read.PingContext(ctx)
}

// closeRequests closes what openRequests opened, but for what the flavor closes.
func (s *Store) closeRequests() error {
	if s.requests == nil {
		return nil
	}
	return s.requests.read.Close()
}

// enter waits until a change may begin, and returns what to call when it has ended.
func (s *Store) enter(ctx context.Context) (leave func(), err error) {
	if s.gate == nil {
		return func() {}, nil
	}
	select {
	case s.gate <- struct{}{}:
		return func() { <-s.gate }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// requestConns is how many connections requests have in a node whose pool has conns: three of five.
func requestConns(conns int32) int32 { return max(2, conns*3/5) }

func (p *postgres) apart(ctx context.Context) (apart, error) {
	config := p.config.Copy()
	config.MaxConns, config.MinConns = requestConns(config.MaxConns), 0
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return apart{}, err
	}
	p.requests = pool
	own := *p
	own.pool, own.db = pool, openDB(pool)
	// A transaction reads triggers by a hot statement, which takes a second connection.
	own.db.SetMaxOpenConns(int(config.MaxConns) - 1)
	return apart{flavor: &own, write: own.db, read: own.db}, nil
}

func (s *sqlite) apart(context.Context) (apart, error) {
	read, err := openReaders(s.file)
	if err != nil {
		return apart{}, err
	}
	own := &sqlite{write: s.write, read: read, file: s.file, hub: s.hub, shared: s.shared, prepared: map[string]*sql.Stmt{}}
	return apart{flavor: own, write: s.write, read: read, gate: make(chan struct{}, 1)}, nil
}
