package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/engine"
	"github.com/carillon-dev/carillon/dispatcher/invoke"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/sqlitetest"
)

// names is a name server. A name with several addresses returns one after the other, and then the
// last one repeatedly.
type names struct {
	mu sync.Mutex
	of map[string][]string
}

// lead sets the addresses of a name.
func (n *names) lead(name string, addresses ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.of[name] = addresses
}

// dial connects a resolver with the name server.
func (n *names) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	go func() {
		defer there.Close()
		for n.respond(there) == nil {
		}
	}()
	return here, nil
}

// respond responds to one DNS query over TCP.
func (n *names) respond(conn net.Conn) error {
	frame := make([]byte, 2)
	if _, err := io.ReadFull(conn, frame); err != nil {
		return err
	}
	packet := make([]byte, binary.BigEndian.Uint16(frame))
	if _, err := io.ReadFull(conn, packet); err != nil {
		return err
	}
	var m dnsmessage.Message
	if err := m.Unpack(packet); err != nil {
		return err
	}
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	q := m.Questions[0]
	name := strings.TrimSuffix(q.Name.String(), ".")
	n.mu.Lock()
	if addresses := n.of[name]; len(addresses) == 0 {
		m.RCode = dnsmessage.RCodeNameError
	} else if q.Type == dnsmessage.TypeA {
		m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class},
			Body: &dnsmessage.AResource{A: netip.MustParseAddr(addresses[0]).As4()}}}
		n.of[name] = addresses[min(1, len(addresses)-1):]
	}
	n.mu.Unlock()
	packed, err := m.Pack()
	if err == nil {
		_, err = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(packed))), packed...))
	}
	return err
}

const guardedSecret = "s3cr3t-of-the-group"

// guardedGroup is a node in this process, with a group that accepts registrations only from
// 127.0.0.7. Listeners at other addresses of the same port must not be reached.
type guardedGroup struct {
	t        *testing.T
	admin    *client.Client
	worker   *client.Client // has the scope register in the app
	names    *names
	port     string
	arrived  chan string  // the Authorization headers that the worker received
	trespass atomic.Int32 // connections to forbidden addresses
}

func newGuardedGroup(t *testing.T) *guardedGroup {
	t.Helper()
	h := &guardedGroup{t: t, names: &names{of: map[string][]string{}}, arrived: make(chan string, 100)}
	h.listen()
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "shop"), 0o700),
		os.WriteFile(filepath.Join(dir, "shop", "token"), []byte(guardedSecret), 0o600)); err != nil {
		t.Fatal(err)
	}
	database := sqlitetest.At(t, filepath.Join(dir, "carillon.db"))
	s := must[*store.Store](t)(store.Open(t.Context(), database, store.Options{}))
	t.Cleanup(func() { _ = s.Close() })
	silent := slog.New(slog.DiscardHandler)
	server := httptest.NewServer(api.New(s, api.Options{Logger: silent}))
	t.Cleanup(server.Close)
	as := func(name string, scopes []access.Scope, apps ...string) *client.Client {
		secret, hash := access.NewToken()
		if err := s.CreateToken(t.Context(), access.APIToken{ID: name, Name: name, Hash: hash,
			TokenSpec: access.TokenSpec{Scopes: scopes, Apps: apps}}); err != nil {
			t.Fatal(err)
		}
		return must[*client.Client](t)(client.New(server.URL, secret, client.Options{}))
	}
	h.admin, h.worker = as("admin", access.Scopes()), as("worker", []access.Scope{access.ScopeRegister}, "shop")
	invoker := invoke.New(invoke.Options{
		SecretDir: dir, Egress: web.Egress{Loopback: true}, Resolver: &net.Resolver{PreferGo: true, Dial: h.names.dial},
	})
	e := engine.New(s, invoker, engine.Options{Name: "node", Logger: silent, Window: time.Second, Heartbeat: 500 * time.Millisecond,
		Handler: time.Second, Grace: 200 * time.Millisecond})
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { e.Run(ctx); invoker.Close() })
	t.Cleanup(func() { end(); running.Wait() })
	h.declare()
	return h
}

// listen starts the worker at 127.0.0.7, and listeners on its port at other addresses of this machine.
func (h *guardedGroup) listen() {
	h.t.Helper()
	address := freeAddress(h.t) // its port is free at the other addresses, too, unless a program chose it there
	_, h.port, _ = net.SplitHostPort(address)
	worker := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		h.arrived <- r.Header.Get("Authorization")
	}))
	_ = worker.Listener.Close()
	worker.Listener = must[net.Listener](h.t)(net.Listen("tcp", "127.0.0.7:"+h.port))
	worker.Start()
	h.t.Cleanup(worker.Close)
	for _, address := range []string{"127.0.0.1", "127.0.0.9", "::1"} {
		l, err := net.Listen("tcp", net.JoinHostPort(address, h.port))
		if err != nil && address == "::1" {
			continue // a machine without IPv6
		}
		if err != nil {
			h.t.Fatal(err)
		}
		h.t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				h.trespass.Add(1)
				_ = conn.Close()
			}
		}()
	}
}

// declare stores the group of the app shop, one of another app, and a job without triggers.
func (h *guardedGroup) declare() {
	h.t.Helper()
	port := 0
	_, _ = fmt.Sscan(h.port, &port)
	for _, app := range []string{"shop", "bank"} {
		must[access.App](h.t)(h.admin.PutApp(h.t.Context(), access.App{Name: app, AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
		group := target.EndpointGroup{App: app, Name: "workers"}
		group.SetDefaults()
		group.Registration = &target.Registration{Networks: []string{"127.0.0.7/32"}, Ports: []int{port}}
		group.Registration.SetDefaults()
		if app == "shop" {
			group.Auth = &target.Auth{Bearer: &target.BearerAuth{Token: target.Secret{Reference: "file:shop/token"}}}
		}
		must[target.EndpointGroup](h.t)(h.admin.PutGroup(h.t.Context(), group, client.Condition{}))
	}
	job := webhookJob("shop", "work", "", nil)
	job.SetDefaults()
	job.Retry.MaxAttempts = 1
	job.Target = target.Target{Group: &target.GroupTarget{Name: "workers", Path: "/run"}}
	job.Target.Group.SetDefaults()
	must[dispatcher.Job](h.t)(h.admin.PutJob(h.t.Context(), job, client.Condition{}))
}

// register registers an endpoint of the app with the worker's token.
func (h *guardedGroup) register(app, id, url string) error {
	_, err := h.worker.RegisterEndpoint(h.t.Context(), app, "workers", id, target.StaticEndpoint{URL: url})
	return err
}

// run runs the job by hand, and returns the run after its end.
func (h *guardedGroup) run() (r run.Run) {
	h.t.Helper()
	requested := must[run.Run](h.t)(h.admin.RunJob(h.t.Context(), "shop", "work"))
	until(h.t, "the run to end", func() bool {
		r = must[run.Run](h.t)(h.admin.Run(h.t.Context(), requested.ID))
		return r.EndedAt != nil
	})
	return r
}

// Registrations with a stolen worker token send no request, no probe and no secret outside the
// networks and ports of the group, and each refusal says why.
func TestHostileRegistrantReachesNoOtherAddress(t *testing.T) {
	t.Parallel()
	h := newGuardedGroup(t)
	for url, says := range map[string]string{
		"http://127.0.0.1:PORT":              "registration.networks",
		"http://127.0.0.9:PORT":              "registration.networks", // another tenant's
		"http://10.1.2.3:PORT":               "registration.networks",
		"http://[::1]:PORT":                  "registration.networks",
		"http://[::ffff:127.0.0.9]:PORT":     "registration.networks",
		"http://[64:ff9b::127.0.0.9]:PORT":   "registration.networks",
		"http://169.254.169.254:PORT":        "169.254.169.254",
		"http://[::ffff:a9fe:a9fe]:PORT":     "a9fe",
		"http://[fd00:ec2::254]:PORT":        "fd00:ec2::254",
		"http://[fe80::1]:PORT":              "fe80::1",
		"http://metadata.google.internal:80": "metadata.google.internal",
		"http://2130706433:PORT":             "2130706433",
		"http://0x7f.1:PORT":                 "0x7f.1",
		"http://127.0.0.7:1":                 "registration.ports",
		"http://user:hunter2@127.0.0.7:PORT": "user",
		"ftp://127.0.0.7:PORT":               "scheme",
		"http://127.0.0.7:PORT/?x=1":         "query",
	} {
		url = strings.ReplaceAll(url, "PORT", h.port)
		var refused *client.Error
		if err := h.register("shop", "evil", url); !errors.As(err, &refused) || refused.Status != http.StatusUnprocessableEntity ||
			!strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("registering %s: %v, want it refused because of %s", url, err, says)
		}
	}
	var refused *client.Error
	if err := h.register("bank", "evil", "http://127.0.0.7:"+h.port); !errors.As(err, &refused) || refused.Status != http.StatusForbidden {
		t.Errorf("registering in the group of another app: %v, want it forbidden", err)
	}
	// The networks are loopback networks, so this name could resolve into them; it does not.
	if err := h.register("shop", "evil", "http://localhost:"+h.port); err != nil {
		t.Fatal(err)
	}
	if r := h.run(); r.State != run.Failed || r.Class != run.ClassNoEndpoint {
		t.Errorf("run = %+v, want no endpoint", r)
	}

	// A name is accepted. Each connection checks the address that it resolves to.
	url := "http://worker.test:" + h.port
	if err := h.register("shop", "evil", url); err != nil {
		t.Fatal(err)
	}
	h.names.lead("worker.test", "127.0.0.7")
	until(t, "the endpoint to be known", func() bool { return h.run().State == run.Succeeded })
	if got := <-h.arrived; got != "Bearer "+guardedSecret {
		t.Errorf("the worker got the Authorization %q", got)
	}
	for what, addresses := range map[string][]string{
		"another tenant's":    {"127.0.0.9"},
		"loopback":            {"127.0.0.1"},
		"metadata":            {"169.254.169.254"},
		"between look and go": {"127.0.0.7", "127.0.0.9"},
	} {
		h.names.lead("worker.test", addresses...)
		r := h.run()
		if r.State != run.Failed || r.Class != run.ClassNoEndpoint ||
			!strings.Contains(r.Error, "registration.networks") || strings.Contains(r.Error, guardedSecret) {
			t.Errorf("%s: run = %+v, want it refused because of registration.networks", what, r)
		}
	}
	if n := h.trespass.Load(); n != 0 || len(h.arrived) != 0 {
		t.Errorf("%d connections to what nobody may call, %d requests to the worker", n, len(h.arrived))
	}
}
