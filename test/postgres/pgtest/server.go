package pgtest

import (
	"context"
	"errors"
	"os"

	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/test/postgres"
)

// server is a throwaway PostgreSQL.
type server struct {
	*postgres.Server
	template string // a migrated database to copy
}

// start makes and starts a server, and migrates its template database.
func start(ctx context.Context, bin string, durable bool) (*server, error) {
	parent := ""
	if len(os.TempDir()) > 60 {
		parent = "/tmp" // the path of a socket is at most 107 bytes
	}
	dir, err := os.MkdirTemp(parent, "carillon-pg-")
	if err != nil {
		return nil, err
	}
	sync := "off"
	if durable {
		sync = "on"
	}
	s := &server{template: "carillon_template", Server: postgres.New(bin, dir,
		"listen_addresses=", "max_connections=200", "shared_buffers=256MB", "max_wal_size=2GB",
		"fsync="+sync, "full_page_writes="+sync, "synchronous_commit="+sync)}
	if err = s.Init(ctx); err == nil {
		err = s.Start(ctx, dir)
	}
	if err != nil {
		if !s.Started() {
			err = errors.Join(err, os.RemoveAll(dir))
		}
		return nil, err
	}
	if err := s.Execute(ctx, "postgres", "CREATE DATABASE "+s.template); err != nil {
		return nil, err
	}
	return s, store.Migrate(ctx, s.URL(s.template))
}
