package store_test

import (
	"context"
	"io"
	"net"
	"net/url"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/engine"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// line is a way to a PostgreSQL that can fall silent: what is sent is taken and gets nowhere.
type line struct {
	net.Listener
	server func() (net.Conn, error)
	mu     sync.Mutex
	silent chan struct{} // open while it is; nil: it is not
}

// newLine returns a line to a database, and the URL by which it leads there.
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

// heard is what comes along a line.
type heard struct {
	net.Conn
	line *line
}

// Read keeps what has come while the line is silent.
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

// silence has the line fall silent until speak.
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

// Whatever is asked of a database that says nothing ends by itself, and afterwards all goes on.
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
	asked := map[string]bool{} // of the wings, only what is asked of the store bounds its time by itself
	for _, user := range []reflect.Type{reflect.TypeFor[engine.Store](), reflect.TypeFor[api.Store]()} {
		for i := range user.NumMethod() {
			asked[user.Method(i).Name] = true
		}
	}
	calls := reflect.TypeFor[*store.Store]()
	for i := range calls.NumMethod() {
		method := calls.Method(i)
		// What the store has from its database bounds no call: Listen has no end by its contract, and the rest runs within the bounds
		// of who calls it. What takes no context asks for nothing.
		_, ofDatabase := reflect.TypeFor[*db.DB]().MethodByName(method.Name)
		if !asked[method.Name] || ofDatabase || method.Type.NumIn() < 2 || method.Type.In(1) != reflect.TypeFor[context.Context]() {
			continue
		}
		pending[method.Name] = true
		args := []reflect.Value{reflect.ValueOf(context.WithoutCancel(t.Context()))}
		for in := 2; in < method.Type.NumIn(); in++ { // the first is the store
			if of := method.Type.In(in); method.Name == "BackfillSkips" { // which asks for the runs of instants
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
	late := time.After(waitLimit) // the longest deadline is of 10 s
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

// something returns an argument with which a call has something to ask: a list with one element.
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
