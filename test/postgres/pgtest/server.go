package pgtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"

	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/test/postgres"
)

// server is a throwaway PostgreSQL.
type server struct {
	*postgres.Server

	mu        sync.Mutex
	templates map[string]bool // migrated databases to copy, by name
}

// template returns the name of a migrated database, with or without partitions. The first call makes it.
func (s *server) template(ctx context.Context, without db.Capabilities) (string, error) {
	name, by := "carillon_template", db.Capabilities(nil)
	if without.Has(db.DayPartitions) {
		name, by = "carillon_template_plain", db.Capabilities{db.DayPartitions}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.templates[name] {
		return name, nil
	}
	if err := s.Execute(ctx, "postgres", "CREATE DATABASE "+name); err != nil {
		return "", err
	}
	if err := store.MigrateAs(ctx, s.URL(name), db.Login{}, by...); err != nil {
		return "", err
	}
	s.templates[name] = true
	return name, nil
}

// start makes and starts a server.
func start(ctx context.Context, bin string, durable bool) (*server, error) {
	parent := ""
	switch {
	case !durable && memory() != "":
		parent = memory() // a new database has a thousand files, which take ten times as long on a disk
	case len(os.TempDir()) > 60:
		parent = "/tmp" // the path of a socket is at most 107 bytes
	}
	// The name contains that of the directory for temporary files, so that each step can find its servers.
	dir, err := os.MkdirTemp(parent, "carillon-pg-"+filepath.Base(os.TempDir())+"-")
	if err != nil {
		return nil, err
	}
	sync := "off"
	if durable {
		sync = "on"
	}
	s := &server{templates: map[string]bool{}, Server: postgres.New(bin, dir,
		"listen_addresses=", "max_connections=200", "shared_buffers=256MB", "max_wal_size=512MB",
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
	return s, nil
}
