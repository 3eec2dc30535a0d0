package store_test

import (
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// lacking is a proxy that removes features from a PostgreSQL: it refuses statements, or delivers no notifications.
type lacking struct {
	refuse string // part of the refused statements
	code   string // of the refusal
	deaf   bool   // notifications are dropped
}

// before returns the URL of a database behind l.
func (l lacking) before(t *testing.T, database string) string {
	t.Helper()
	config, err := pgx.ParseConfig(database)
	must(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	var relays sync.WaitGroup
	relays.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			relays.Go(func() {
				defer client.Close()
				network, address := pgconn.NetworkAddress(config.Host, config.Port)
				server, err := net.Dial(network, address)
				if err != nil {
					t.Error(err)
					return
				}
				defer server.Close()
				l.relay(client, server)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		relays.Wait() // the store has closed its connections
	})
	u := url.URL{
		Scheme: "postgres", User: url.User(config.User), Host: listener.Addr().String(), Path: config.Database, RawQuery: "sslmode=disable",
	}
	return u.String()
}

// relay passes on messages between a client and a server until one of them ends.
func (l lacking) relay(client, server net.Conn) {
	backend, frontend := pgproto3.NewBackend(client, client), pgproto3.NewFrontend(server, server)
	startup, err := backend.ReceiveStartupMessage()
	if err != nil {
		return
	}
	first, err := startup.Encode(nil)
	if err != nil {
		return
	}
	if _, err := server.Write(first); err != nil {
		return
	}
	var sending sync.Mutex
	send := func(messages ...pgproto3.BackendMessage) error {
		sending.Lock()
		defer sending.Unlock()
		for _, m := range messages {
			backend.Send(m)
		}
		return backend.Flush()
	}
	responded := make(chan struct{})
	go func() {
		defer close(responded)
		defer client.Close()
		for {
			m, err := frontend.Receive()
			if err != nil {
				return
			}
			if _, heard := m.(*pgproto3.NotificationResponse); heard && l.deaf {
				continue
			}
			if send(m) != nil {
				return
			}
		}
	}()
	l.requests(backend, server, send)
	_ = server.Close()
	<-responded
}

// requests passes on requests of a client, and answers refused ones.
func (l lacking) requests(backend *pgproto3.Backend, server net.Conn, send func(...pgproto3.BackendMessage) error) {
	refused := &pgproto3.ErrorResponse{Severity: "ERROR", Code: l.code, Message: "there is no " + l.refuse}
	skip := false // until the client synchronizes
	for {
		m, err := backend.Receive()
		if err != nil {
			return
		}
		switch m := m.(type) {
		case *pgproto3.Query:
			if l.refuses(m.String) {
				err = send(refused, &pgproto3.ReadyForQuery{TxStatus: 'I'})
				if err != nil {
					return
				}
				continue
			}
		case *pgproto3.Parse:
			skip = skip || l.refuses(m.Query)
		case *pgproto3.Sync:
			if skip {
				skip = false
				if send(refused, &pgproto3.ReadyForQuery{TxStatus: 'I'}) != nil {
					return
				}
				continue
			}
		}
		if skip {
			continue
		}
		text, err := m.Encode(nil)
		if err != nil {
			return
		}
		if _, err := server.Write(text); err != nil {
			return
		}
	}
}

func (l lacking) refuses(statement string) bool {
	return l.refuse != "" && strings.Contains(statement, l.refuse)
}

// Missing features of a database are found by trying, and then not used.
func TestProbeFindsMissingCapabilities(t *testing.T) {
	t.Parallel()
	if os.Getenv("DATABASE_URL") != "" {
		t.Skip("SKIPPED: this test reads what is said to the server, which TLS hides") // even with CI=true
	}
	for name, test := range map[string]struct {
		lacking
		want db.Capabilities
	}{
		"nothing": {},
		"LISTEN is refused": {
			lacking: lacking{refuse: "LISTEN", code: "0A000"}, want: db.Capabilities{db.Notifications},
		},
		"LISTEN is unknown": {
			lacking: lacking{refuse: "LISTEN", code: "42601"}, want: db.Capabilities{db.Notifications},
		},
		"notifications are never heard": {lacking: lacking{deaf: true}, want: db.Capabilities{db.Notifications}},
		"SKIP LOCKED is unknown": {
			lacking: lacking{refuse: "SKIP LOCKED", code: "42601"}, want: db.Capabilities{db.SkipLocked},
		},
		"a setting is unknown": {
			lacking: lacking{refuse: "enable_hashjoin", code: "42704"}, want: db.Capabilities{db.SessionSettings},
		},
		"tables have no ids": {
			lacking: lacking{refuse: "regclass AS oid", code: "42704"}, want: db.Capabilities{db.Identity},
		},
		"only the server hides its identity": {lacking: lacking{refuse: "pg_control_system", code: "42501"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, test.before(t, pgtest.New(t)))
			if diff := cmp.Diff(test.want.String(), db.AllCapabilities().Without(s.Capabilities()).String()); diff != "" {
				t.Errorf("lacks (-want +got):\n%s", diff)
			}
			_, _, err := s.PutApp(t.Context(), access.App{Name: "app", AppSpec: access.AppSpec{Enabled: true}}, input.Change{Actor: "test"})
			must(t, err)
			must(t, s.Register(t.Context(), dispatcher.Node{ID: firstNode}, may1))
			_, err = adopt(t.Context(), s, dispatcher.AdoptQuery{Node: firstNode, Token: 1, Limit: 10})
			must(t, err)
		})
	}
}

// The suite passes without all features that other databases may lack.
func TestPostgreSQLWithoutCapabilities(t *testing.T) {
	need.Step(t, "databases")
	t.Parallel()
	suiteWithout(t, db.AllCapabilities())
}

// touched are words in the names of the tests that use each capability.
var touched = map[db.Capability][]string{
	db.Notifications:   {"listeners", "replace", "cancelled"},
	db.DayPartitions:   {"retention", "listed", "kept from", "over", "misfires"},
	db.SkipLocked:      {"dead", "adopt", "retr", "slots", "concurrent"},
	db.SessionSettings: {"retention", "claim"},
	db.Identity:        {"rollback", "register"},
}

// Each capability is also removed alone. Step capabilities of make check runs the whole suite without each.
func TestPostgreSQLWithoutEachCapability(t *testing.T) {
	need.Step(t, "databases")
	t.Parallel()
	for one, words := range touched {
		if os.Getenv("CARILLON_EACH_CAPABILITY") != "" {
			words = nil
		}
		t.Run(string(one), func(t *testing.T) {
			t.Parallel()
			suiteWithout(t, db.Capabilities{one}, words...)
		})
	}
}

func suiteWithout(t *testing.T, without db.Capabilities, words ...string) {
	t.Helper()
	storetest.Run(t, func(t *testing.T) *store.Store {
		s := openAs(t, pgtest.New(t, pgtest.Without(without...)), store.Options{Options: db.Options{Without: without}})
		for _, one := range without {
			if s.Capabilities().Has(one) {
				t.Errorf("the store uses %s", one)
			}
		}
		return s
	}, words...)
}

func TestPostgreSQLHasAllCapabilities(t *testing.T) {
	t.Parallel()
	if missing := db.AllCapabilities().Without(open(t, pgtest.New(t)).Capabilities()); len(missing) > 0 {
		t.Errorf("it lacks %s", missing)
	}
}

// The first migration decides, regardless of options for later ones and for nodes.
func TestFirstMigrationDecidesAboutPartitions(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		first, then db.Capabilities
		want        bool
	}{
		"without, then with": {first: db.Capabilities{db.DayPartitions}, want: false},
		"with, then without": {then: db.Capabilities{db.DayPartitions}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := pgtest.New(t, pgtest.Without(tt.first...))
			must(t, store.MigrateAs(t.Context(), database, db.Login{}, tt.then...))
			s := openAs(t, database, store.Options{Options: db.Options{Without: tt.then}})
			if got := s.Capabilities().Has(db.DayPartitions); got != tt.want {
				t.Errorf("partitions: got %v, want %v", got, tt.want)
			}
			purge(t, s, time.Now())
			const partitioned = `SELECT count(*) FROM pg_class WHERE relname IN ('runs', 'attempts', 'responses') AND relkind = 'p'`
			if got := count(t, s, partitioned) > 0; got != tt.want {
				t.Errorf("the tables have partitions: %v, want %v", got, tt.want)
			}
		})
	}
}

// Notifications in the table are removed, so it does not grow.
func TestLeftNotificationsAreRemoved(t *testing.T) {
	t.Parallel()
	s := openAs(t, pgtest.New(t), store.Options{Options: db.Options{Without: db.Capabilities{db.Notifications}}})
	_, _, err := s.PutApp(t.Context(), access.App{Name: "app", AppSpec: access.AppSpec{Enabled: true}}, input.Change{Actor: "test"})
	must(t, err)
	if got := count(t, s, `SELECT count(*) FROM notifications`); got != 1 {
		t.Errorf("%d notifications are left, want 1", got)
	}
	must(t, store.Exec(t.Context(), s, `UPDATE notifications SET at = at - 61000`))
	must(t, store.RemoveNotifications(t.Context(), s))
	if got := count(t, s, `SELECT count(*) FROM notifications`); got != 0 {
		t.Errorf("%d notifications stay for longer than a minute", got)
	}
}

// A pooler that gives each transaction another connection affects only notifications. Prepared statements, locks and
// notifications are all in dispatch; the other packages send plain statements in transactions.
func TestPooledPostgreSQL(t *testing.T) {
	need.Step(t, "databases")
	t.Parallel()
	storetest.Run(t, func(t *testing.T) *store.Store {
		database := pgtest.New(t)
		return openAs(t, pgtest.NewPooler(t, database).URL(), store.Options{Options: db.Options{Notify: database}})
	}, "dispatch/")
}
