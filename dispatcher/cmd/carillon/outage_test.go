package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/verify"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// gate is a proxy to a PostgreSQL that can be closed, or hang.
type gate struct {
	t        *testing.T
	address  string
	server   func() (net.Conn, error) // the server for later connections
	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]bool
	hanging  chan struct{} // blocks all traffic until it is closed; nil lets it pass
	held     int           // connection directions with blocked traffic
}

// newGate returns a closed gate to a database, and the URL of the database behind it.
func newGate(t *testing.T, database string) (*gate, string) {
	t.Helper()
	config := must[*pgx.ConnConfig](t)(pgx.ParseConfig(database))
	network, address := pgconn.NetworkAddress(config.Host, config.Port)
	g := &gate{t: t, conns: map[net.Conn]bool{}}
	g.server = func() (net.Conn, error) { return config.DialFunc(t.Context(), network, address) }
	g.address = freeAddress(t)
	t.Cleanup(g.close)
	through := url.URL{Scheme: "postgres", User: url.UserPassword(config.User, "hunter2"), Host: g.address,
		Path: "/" + config.Database, RawQuery: "sslmode=disable"}
	return g, through.String()
}

// open accepts connections.
func (g *gate) open() {
	g.t.Helper()
	listener := must[net.Listener](g.t)(net.Listen("tcp", g.address))
	g.mu.Lock()
	g.listener = listener
	server := g.server
	g.mu.Unlock()
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := server()
			if err != nil {
				_ = in.Close()
				continue
			}
			g.mu.Lock()
			g.conns[in], g.conns[out] = true, true
			g.mu.Unlock()
			for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
				go func() {
					_, _ = io.Copy(pair[0], passing{pair[1], g})
					_ = pair[0].Close()
				}()
			}
		}
	}()
}

// passing reads from one side, and forwards nothing while the gate hangs.
type passing struct {
	io.Reader
	gate *gate
}

func (p passing) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	p.gate.mu.Lock()
	hanging := p.gate.hanging
	if hanging != nil {
		p.gate.held++
	}
	p.gate.mu.Unlock()
	if hanging != nil {
		<-hanging
	}
	return n, err
}

// hang blocks all traffic, like a stuck database, until the test ends.
func (g *gate) hang() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hanging = make(chan struct{})
	g.t.Cleanup(sync.OnceFunc(func() { close(g.hanging) }))
}

// waiting returns the number of connection directions with traffic that a hanging gate blocks.
func (g *gate) waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held
}

// close refuses new connections and cuts existing ones.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.listener != nil {
		_ = g.listener.Close()
	}
	for conn := range g.conns {
		_ = conn.Close()
	}
	g.listener, g.conns = nil, map[net.Conn]bool{}
}

// status returns the status of a probe, or 0 without a response.
func (n *process) status(path string) int {
	response, err := http.Get(n.endpoint + path)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// An unreachable database stops no process, at its start or later. Readiness depends on it and
// liveness does not. When it is back, the node recovers by itself.
func TestNodeOutlivesItsDatabase(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	direct := pgtest.New(t)
	token := newToken(t, direct)
	g, database := newGate(t, direct)
	r := newReceiver(t, nil)
	n := launchNode(t, database, token, nil, quick()...)
	alive := func(what string) {
		t.Helper()
		if live := n.status("/livez"); live != http.StatusOK {
			t.Errorf("%s: /livez is %d, want 200", what, live)
		}
	}
	until(t, "the node to serve without its database", func() bool { return n.status("/readyz") == http.StatusServiceUnavailable })
	alive("before the database has come")
	if route := n.status("/v1/apps"); route != http.StatusServiceUnavailable {
		t.Errorf("before the database has come: /v1/apps is %d, want 503", route)
	}
	g.open()
	until(t, "the node to be ready", func() bool { return n.status("/readyz") == http.StatusOK })
	must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "away", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
	must[dispatcher.Job](t)(n.PutJob(t.Context(),
		webhookJob("away", "ticks", r.URL, map[string]string{"tick": "* * * * * ?"}), client.Condition{}))
	r.await(t, "fires", func(all []arrival) bool { return len(all) >= 2 })

	g.close()
	until(t, "the node not to be ready", func() bool { return n.status("/readyz") == http.StatusServiceUnavailable })
	alive("while the database is away")
	elapse(time.Second) // several heartbeats fail
	g.open()
	until(t, "the node to be ready again", func() bool { return n.status("/readyz") == http.StatusOK })
	before := len(r.all())
	r.await(t, "fires after the outage", func(all []arrival) bool { return len(all) >= before+3 })
	var outage dispatcher.Outage
	until(t, "the outage to be in the audit log", func() bool {
		log := must[client.List[access.AuditEntry]](t)(n.Audit(t.Context(), access.AuditQuery{Action: "reconnect"}))
		return len(log.Items) > 0 && json.Unmarshal(log.Items[len(log.Items)-1].After, &outage) == nil
	})
	if at := outage.From.Truncate(time.Second).Add(time.Second); at.Before(outage.To) {
		found := must[verify.Explanation](t)(n.Explain(t.Context(), "away", "ticks", "tick", at))
		if !slices.ContainsFunc(found.Steps, func(s verify.Step) bool { return s.What == outage.Who()+" lost the database" }) {
			t.Errorf("the explanation of %s, in the outage %+v, has the steps %v", at, outage, found.Steps)
		}
	}

	// A read-only server, such as a standby, counts as unreachable: its data may be old.
	admin := must[*pgx.Conn](t)(pgx.Connect(t.Context(), direct))
	defer admin.Close(t.Context())
	name := admin.Config().Database
	exec := func(statement string) {
		t.Helper()
		if _, err := admin.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	exec(`ALTER DATABASE ` + name + ` SET default_transaction_read_only = on`)
	g.close()
	g.open()
	until(t, "the node not to be ready over a standby", func() bool { return n.status("/readyz") == http.StatusServiceUnavailable })
	exec(`SET default_transaction_read_only = off`)
	exec(`ALTER DATABASE ` + name + ` RESET default_transaction_read_only`)
	until(t, "the node to be ready once more", func() bool { return n.status("/readyz") == http.StatusOK })
	before = len(r.all())
	r.await(t, "fires after the promotion", func(all []arrival) bool { return len(all) >= before+3 })

	n.checkVerify("away")
	n.terminate()
	if strings.Contains(n.logs.String(), "hunter2") {
		t.Error("the log shows the password")
	}
}
