// Package pgtest gives each test a separate PostgreSQL database.
//
// With DATABASE_URL in the environment, it creates databases with random names on that server and drops them
// afterwards; it touches nothing else there. Otherwise each test process starts one throwaway server on a
// unix socket in a temporary directory. The server ends with the process, however that ends.
package pgtest

import (
	"context"
	"crypto/rand"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres"
)

// Option changes the database that New returns.
type Option func(*wanted)

// wanted has the options of a database.
type wanted struct {
	durable bool
	without db.Capabilities
}

// Fsync requests a server that writes through to disk, as in production. It is for benchmarks, and
// has no effect with DATABASE_URL.
func Fsync(w *wanted) { w.durable = true }

// Without requests a database that was migrated without some capabilities.
func Without(without ...db.Capability) Option {
	return func(w *wanted) { w.without = without }
}

// servers are the throwaway servers of this process, by durability, each started at its first use.
type servers struct {
	mu      sync.Mutex
	durable map[bool]*server
}

var shared = servers{durable: map[bool]*server{}}

// New returns the URL of a migrated database that is dropped when the test ends. Without
// PostgreSQL on the machine the test is skipped; with CI=true it fails.
func New(t testing.TB, options ...Option) (databaseURL string) {
	t.Helper()
	var w wanted
	for _, o := range options {
		o(&w)
	}
	if given := os.Getenv("DATABASE_URL"); given != "" {
		database := create(t, given, "")
		if err := store.MigrateAs(t.Context(), database, db.Login{}, w.without...); err != nil {
			t.Fatal(err)
		}
		return database
	}
	s := shared.server(t, w.durable)
	template, err := s.template(t.Context(), w.without)
	if err != nil {
		t.Fatalf("migrate a template: %v", err)
	}
	return create(t, s.URL("postgres"), template)
}

// server returns the running server; the first call starts it.
func (s *servers) server(t testing.TB, durable bool) *server {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if running := s.durable[durable]; running != nil {
		return running
	}
	bin, ok := postgres.Find()
	if !ok {
		need.Missing(t, "no initdb on this machine and no DATABASE_URL; install PostgreSQL: apt-get install -y postgresql")
	}
	started, err := start(t.Context(), bin, durable)
	if err != nil {
		t.Fatalf("start PostgreSQL: %v", err)
	}
	s.durable[durable] = started
	return started
}

// create creates a database on the server at admin, as a copy of template unless that is empty, and
// returns its URL.
func create(t testing.TB, admin, template string) string {
	t.Helper()
	name := "carillon_" + strings.ToLower(rand.Text()[:12])
	if err := createNamed(t.Context(), admin, name, template); err != nil {
		t.Fatalf("create database: %v", err)
	}
	t.Cleanup(func() {
		// The test's own context has ended.
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := postgres.Execute(ctx, admin, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("drop database: %v", err)
		}
	})
	u, err := url.Parse(admin)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

func createNamed(ctx context.Context, admin, name, template string) error {
	statement := "CREATE DATABASE " + name
	if template != "" {
		statement += " TEMPLATE " + template
	}
	return postgres.Execute(ctx, admin, statement)
}
