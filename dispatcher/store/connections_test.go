package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/engine"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
	"github.com/carillon-dev/carillon/test/sqlitetest"
)

// line is a network path to PostgreSQL that can fall silent: it then accepts data and delivers none.
type line struct {
	net.Listener
	server func() (net.Conn, error)
	mu     sync.Mutex
	silent chan struct{} // open while the line is silent; nil: it is not silent
}

// newLine returns a line to a database, and its URL.
func newLine(t *testing.T, database string) (*line, string) {
	t.Helper()
	config, err := pgx.ParseConfig(database)
	must(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	network, address := pgconn.NetworkAddress(config.Host, config.Port)
	l := &line{Listener: listener, server: func() (net.Conn, error) { return config.DialFunc(t.Context(), network, address) }}
	t.Cleanup(func() { _ = listener.Close() })
	go l.accept()
	through := url.URL{Scheme: "postgres", User: url.UserPassword(config.User, config.Password),
		Host: listener.Addr().String(), Path: "/" + config.Database, RawQuery: "sslmode=disable"}
	return l, through.String()
}

func (l *line) accept() {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		out, err := l.server()
		if err != nil {
			_ = in.Close()
			continue
		}
		for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
			go func() {
				_, _ = io.Copy(pair[0], &heard{pair[1], l})
				_ = pair[0].Close()
				_ = pair[1].Close()
			}()
		}
	}
}

// heard is data that arrives on a line.
type heard struct {
	net.Conn
	line *line
}

// Read holds back data while the line is silent.
func (h *heard) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	h.line.mu.Lock()
	silent := h.line.silent
	h.line.mu.Unlock()
	if silent != nil {
		<-silent
	}
	return n, err
}

// silence makes the line silent until speak is called.
func (l *line) silence() (speak func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	silent := make(chan struct{})
	l.silent = silent
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.silent = nil
		close(silent)
	}
}

// minutely is a backfill of ten minutes.
var minutely = repeat.BackfillPlan{
	BackfillSpec: repeat.BackfillSpec{From: may1, To: may1.Add(10 * time.Minute)},
	Schedules: repeat.BackfillSchedules{Triggers: []repeat.BackfillTrigger{{ID: 1, Name: "a", Identity: "a", AnchorAt: may1,
		Schedule: dispatcher.Schedule{Expression: "rate(1m)"}}}},
}

// Each call ends by itself when the database falls silent, and calls succeed again afterwards.
func TestCallsEndWhenTheDatabaseFallsSilent(t *testing.T) {
	need.Step(t, "databases")
	t.Parallel()
	l, database := newLine(t, pgtest.New(t))
	s, err := store.Open(t.Context(), database, store.Options{})
	must(t, err)
	defer s.Close()
	must(t, s.Register(t.Context(), dispatcher.Node{ID: 1}, time.Time{}))
	_, err = s.Installation(t.Context())
	must(t, err)
	speak := l.silence()

	type end struct {
		method string
		err    error
	}
	ends := make(chan end)
	pending := map[string]bool{}
	asked := map[string]bool{} // of the parts of the store, only these calls bound their time themselves
	for _, user := range []reflect.Type{reflect.TypeFor[engine.Store](), reflect.TypeFor[api.Store]()} {
		for i := range user.NumMethod() {
			asked[user.Method(i).Name] = true
		}
	}
	calls := reflect.TypeFor[*store.Store]()
	for i := range calls.NumMethod() {
		method := calls.Method(i)
		// The methods that the store has from db.DB are left out: Listen does not end by its contract, and the others
		// run under the deadlines of their callers. A method without a context sends no query.
		_, ofDatabase := reflect.TypeFor[*db.DB]().MethodByName(method.Name)
		if !asked[method.Name] || ofDatabase || method.Type.NumIn() < 2 || method.Type.In(1) != reflect.TypeFor[context.Context]() {
			continue
		}
		pending[method.Name] = true
		args := []reflect.Value{reflect.ValueOf(context.WithoutCancel(t.Context()))}
		for in := 2; in < method.Type.NumIn(); in++ { // 0 is the receiver
			if of := method.Type.In(in); method.Name == "BackfillSkips" { // which queries the runs of these instants
				args = append(args, reflect.ValueOf(minutely))
			} else {
				args = append(args, something(of))
			}
		}
		go func() {
			results := reflect.ValueOf(s).MethodByName(method.Name).Call(args)
			err, _ := results[len(results)-1].Interface().(error)
			ends <- end{method.Name, err}
		}()
	}
	late := time.After(waitLimit) // the longest deadline is 10 s
	var answered []string
	if len(pending) < 100 {
		t.Fatalf("the store has %d methods that ask the database, want all", len(pending))
	}
	for len(pending) > 0 {
		select {
		case one := <-ends:
			delete(pending, one.method)
			if one.err == nil {
				answered = append(answered, one.method)
			}
		case <-late:
			t.Fatalf("calls that have not ended: %v", pending)
		}
	}
	slices.Sort(answered)
	if len(answered) > 0 {
		t.Errorf("calls that succeeded without a database: %v", answered)
	}
	speak()
	for deadline := time.Now().Add(waitLimit); ; {
		if _, err := s.Heartbeat(t.Context(), 1, dispatcher.NodeReport{}, time.Time{}); err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("when it speaks again: %v", err)
		}
	}
}

// something returns an argument that makes a call send a query: a list with one element.
func something(of reflect.Type) reflect.Value {
	value := reflect.New(of).Elem()
	switch of.Kind() {
	case reflect.Slice:
		value.Set(reflect.MakeSlice(of, 1, 1))
	case reflect.Map:
		value.Set(reflect.MakeMap(of))
		value.SetMapIndex(reflect.Zero(of.Key()), reflect.Zero(of.Elem()))
	case reflect.Struct:
		for i := range of.NumField() {
			if field := of.Field(i); field.IsExported() && field.Type.Kind() == reflect.Slice {
				value.Field(i).Set(reflect.MakeSlice(field.Type, 1, 1))
			}
		}
	}
	return value
}

// openForRequests opens a database with connections for requests.
func openForRequests(t *testing.T, database string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), database, store.Options{Options: db.Options{Requests: true}})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

// flood keeps many callers busy until the test ends or end is called. It returns once they are under way.
func flood(t *testing.T, call func(ctx context.Context) error) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for range 30 {
		group.Go(func() {
			for ctx.Err() == nil {
				_ = call(ctx) // fails while the table is locked
			}
		})
	}
	return func() { cancel(); group.Wait() }
}

// T12: requests that wait for a lock took all connections, those of claims and of the handler too.
func TestRequestsTakeNoConnectionOfClaims(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	must(t, ownClaims(t, database, 3).Close())
	s := openForRequests(t, database)
	due, err := s.Due(t.Context(), dispatcher.DueQuery{Until: may1.Add(time.Hour), Now: may1, Limit: 1000})
	must(t, err)
	lock := meanwhileIn(t, database)
	// The flood reads misfires and triggers, and a claim reads neither.
	_, err = lock.Exec(t.Context(), `LOCK TABLE misfires, triggers IN ACCESS EXCLUSIVE MODE`)
	must(t, err)
	requests := s.ForRequests()
	endMisfires := flood(t, func(ctx context.Context) error {
		_, err := requests.Misfires(ctx, dispatcher.RunQuery{App: "app", Page: input.Page{Limit: 10}})
		return err
	})
	endJobs := flood(t, func(ctx context.Context) error {
		_, err := requests.Jobs(ctx, "app", input.Page{Limit: 10})
		return err
	})
	other := open(t, database)
	for count(t, other, waitingForLocks) < 2 {
	}
	for round := range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit) // the requests wait longer, for the lock
		batch := dispatcher.ClaimBatch{Node: claimer, Token: run.Token(round + 1), Now: may1.Add(time.Hour)}
		batch.Advances = append(batch.Advances, dispatcher.Advance{
			TriggerID: due[round].ID, JobID: run.JobID("app", "job"), Revision: due[round].Revision,
			Prev: due[round].PrevFireTime, Next: due[round].NextFireTime, Then: due[round].NextFireTime.Add(time.Minute),
		})
		if held, err := s.Claim(ctx, batch); err != nil || len(held) != 1 {
			t.Errorf("claim %d during the flood: %d runs, error %v, want one", round, len(held), err)
		}
		if locks, err := s.Lock(ctx, dispatcher.LockRequest{Node: claimer, Names: []string{dispatcher.LockStates},
			AtMost: time.Millisecond}); err != nil {
			t.Errorf("lock %d during the flood: %v, error %v", round, locks, err)
		}
		cancel()
	}
	must(t, lock.Rollback(t.Context()))
	endMisfires()
	endJobs()
	if jobs, err := requests.Jobs(t.Context(), "app", input.Page{Limit: 10}); err != nil || len(jobs) != 1 {
		t.Errorf("after the flood: %d jobs, error %v, want one", len(jobs), err)
	}
}

// SQLite has one connection that writes. At most one of the waiting requests is served before a claim.
func TestClaimWaitsForOneRequestOnSQLite(t *testing.T) {
	t.Parallel()
	database := sqlitetest.New(t)
	s := openForRequests(t, database)
	must(t, s.Register(t.Context(), dispatcher.Node{ID: claimer}, may1))
	requests := s.ForRequests()
	release, err := store.Freeze(t.Context(), s, `UPDATE installation SET id = id`)
	must(t, err)
	var written, asked atomic.Int64
	end := flood(t, func(ctx context.Context) error {
		app := access.App{Name: "app", AppSpec: access.AppSpec{Description: fmt.Sprint("change ", asked.Add(1)), Enabled: true}}
		_, _, err := requests.PutApp(ctx, app, input.Change{Actor: "test"})
		if err == nil {
			written.Add(1)
		}
		return err
	})
	for store.Writers(s) < 1 {
	}
	locked := make(chan error, 1)
	before := make(chan int64, 1)
	go func() {
		_, err := s.Lock(t.Context(), dispatcher.LockRequest{Node: claimer, Names: []string{dispatcher.LockStates}, AtMost: time.Second})
		before <- written.Load()
		locked <- err
	}()
	for store.Writers(s) < 2 {
	}
	release()
	must(t, <-locked)
	if n := <-before; n > 3 { // some may have been written since
		t.Errorf("%d requests wrote before the engine, want one or two", n)
	}
	end()
}

// sleepers occupies connections of a store with long statements until the test ends. It returns when want of them
// have a connection.
func sleepers(t *testing.T, s *store.Store, database string, count int, want int64) {
	t.Helper()
	busy, end := context.WithCancel(t.Context())
	ended := make(chan error, count)
	for range count {
		go func() { ended <- store.Exec(busy, s, `SELECT pg_sleep(3600)`) }()
	}
	t.Cleanup(func() {
		end()
		for range count {
			<-ended
		}
	})
	watch := open(t, database)
	for taken := int64(0); taken < want; {
		var err error
		if taken, err = store.Count(t.Context(), watch,
			`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'SELECT pg_sleep%'
				AND state = 'active'`); err != nil {
			t.Fatal(err)
		}
	}
}

// Heartbeats have their own connection: a node with no free connection stays alive.
func TestHeartbeatsContinueWhileAllConnectionsAreTaken(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	s, err := store.Open(t.Context(), database, store.Options{Options: db.Options{MaxConns: 1}})
	must(t, err)
	defer s.Close()
	must(t, s.Register(t.Context(), dispatcher.Node{ID: 1}, time.Time{}))
	t.Run("while they are taken", func(t *testing.T) {
		sleepers(t, s, database, 2, 1)
		for range 3 {
			if _, err := s.Clock(t.Context()); err != nil {
				t.Errorf("clock: %v", err)
			}
			heartbeat, err := s.Heartbeat(t.Context(), 1, dispatcher.NodeReport{}, time.Time{})
			if err != nil || len(heartbeat.Live) != 1 {
				t.Errorf("heartbeat: got %+v, %v", heartbeat, err)
			}
		}
	})
}

// Users who read long lists occupy connections for seconds. Two are kept for statements that fires wait for.
func TestHotStatementsContinueWhileOthersTakeConnections(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	s, err := store.Open(t.Context(), database, store.Options{Options: db.Options{MaxConns: 3}})
	must(t, err)
	defer s.Close()
	t.Run("while the others are taken", func(t *testing.T) {
		sleepers(t, s, database, 5, 1)
		within, cancel := context.WithTimeout(t.Context(), waitLimit) // the others sleep longer
		defer cancel()
		for range 3 {
			if _, err := s.Due(within, dispatcher.DueQuery{Until: may1, Limit: 10}); err != nil {
				t.Errorf("due: %v", err)
			}
			one := dispatcher.Advance{TriggerID: 1, JobID: 1, Next: may1}
			if _, err := s.Claim(within, dispatcher.ClaimBatch{Node: 1, Token: 1, Advances: []dispatcher.Advance{one}}); err != nil {
				t.Errorf("claim: %v", err)
			}
		}
	})
}

// A heartbeat stamped by another server may be ahead by the clock margin. One further ahead is set back.
func TestHeartbeatOfAServerAheadIsAccepted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ margin, ahead, want time.Duration }{
		"one clock":         {ahead: 300 * time.Millisecond},
		"within the margin": {margin: 500 * time.Millisecond, ahead: 300 * time.Millisecond, want: 300 * time.Millisecond},
		"beyond the margin": {margin: 500 * time.Millisecond, ahead: 700 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, s := t.Context(), openAs(t, pgtest.New(t), store.Options{Options: db.Options{ClockMargin: test.margin}})
			for _, node := range []run.NodeID{firstNode, secondNode} {
				must(t, s.Register(ctx, dispatcher.Node{ID: node, Name: node.String()}, may1))
			}
			_, err := s.Heartbeat(ctx, firstNode, dispatcher.NodeReport{}, may1.Add(test.ahead))
			must(t, err)
			_, err = s.MarkDead(ctx, secondNode, may1, time.Minute, may1)
			must(t, err)
			nodes, err := s.Nodes(ctx)
			must(t, err)
			for _, node := range nodes {
				if node.ID == firstNode && node.HeartbeatAt.Sub(may1) != test.want {
					t.Errorf("the heartbeat is %s ahead, want %s", node.HeartbeatAt.Sub(may1), test.want)
				}
			}
		})
	}
}

// A machine may be suspended for hours in the middle of a transaction. Other nodes do not wait as long for its locks.
func TestSuspendedNodeLosesItsLocks(t *testing.T) {
	need.Step(t, "databases")
	t.Parallel()
	database := pgtest.New(t)
	suspended, s := open(t, database), open(t, database)
	change := input.Change{Actor: "test", Now: may1}
	if _, _, err := s.PutApp(t.Context(), access.App{Name: "shop", AppSpec: access.AppSpec{Enabled: true}}, change); err != nil {
		t.Fatal(err)
	}
	end, err := store.Freeze(t.Context(), suspended, `SELECT id FROM apps FOR UPDATE`)
	must(t, err)
	defer end()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	for {
		_, _, err := s.PutApp(ctx, access.App{Name: "shop", AppSpec: access.AppSpec{Enabled: false}}, change) // waits for the lock
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("the lock is still held: %v", err)
		}
	}
}

// SQLite has one node at a time: a node that registers replaces the previous one, and no other process can register.
// PostgreSQL has many nodes.
func TestNodeThatRegistersOverSQLiteIsAlone(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		s := openAs(t, database, store.Options{})
		for _, id := range []run.NodeID{1, 2} {
			must(t, s.Register(t.Context(), dispatcher.Node{ID: id}, time.Time{}))
		}
		single := strings.HasPrefix(database, "sqlite:")
		_, err := s.Heartbeat(t.Context(), 1, dispatcher.NodeReport{}, time.Time{})
		if single != errors.Is(err, dispatcher.ErrNodeDead) || !single && err != nil {
			t.Errorf("heartbeat of the first node: %v", err)
		}
		reply, err := s.Heartbeat(t.Context(), 2, dispatcher.NodeReport{}, time.Time{})
		if err != nil || single != (len(reply.Live) == 1) {
			t.Errorf("heartbeat of the second node: %+v, %v", reply, err)
		}
		other, err := store.Open(t.Context(), database, store.Options{})
		if single != (err != nil && strings.Contains(err.Error(), "is locked")) {
			t.Errorf("another node opens the database: %v", err)
		}
		if err == nil {
			must(t, other.Close())
		}
	})
}
