package db

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5/pgxpool"
)

// apart is connections for requests.
type apart struct {
	Flavor
	write, read *sql.DB
	// gate, if not nil, lets one request at a time write: SQLite has one connection that writes, and serves waiting
	// callers in any order. A claim then waits for at most one request.
	gate chan struct{}
}

// Apart returns the same database over separate connections. It opens the first one at once, so that it has one
// even if the server has none to spare later.
func (d *DB) Apart(ctx context.Context) (*DB, error) {
	a, err := d.apart(ctx)
	if err != nil {
		return nil, err
	}
	own := *d
	own.Flavor, own.Write, own.Read, own.gate = a.Flavor, a.write, a.read, a.gate
	// Reading the clock for requests is not worth a separate connection for heartbeats.
	own.Heartbeats = a.read
	return &own, a.read.PingContext(ctx)
}

// Enter waits until a change may begin. The caller calls leave when it has ended.
func (d *DB) Enter(ctx context.Context) (leave func(), err error) {
	if d.gate == nil {
		return func() {}, nil
	}
	select {
	case d.gate <- struct{}{}:
		return func() { <-d.gate }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *Postgres) apart(ctx context.Context) (apart, error) {
	config := p.config.Copy()
	config.MaxConns, config.MinConns = max(2, config.MaxConns*3/5), 0 // three for each five connections of a node
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return apart{}, err
	}
	p.requests = pool
	own := *p
	own.Pool, own.db = pool, overPool(pool)
	// A transaction reads triggers by a hot statement, which takes a second connection.
	own.db.SetMaxOpenConns(int(config.MaxConns) - 1)
	return apart{Flavor: &own, write: own.db, read: own.db}, nil
}

func (s *SQLite) apart(context.Context) (apart, error) {
	read, err := openReaders(s.File)
	if err != nil {
		return apart{}, err
	}
	own := &SQLite{write: s.write, Read: read, File: s.File, hub: s.hub, shared: s.shared, prepared: map[string]*sql.Stmt{}}
	return apart{Flavor: own, write: s.write, read: read, gate: make(chan struct{}, 1)}, nil
}
