package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/test/need"
)

// flood describes slow clients, each with its own connections.
type flood struct {
	request string // incomplete, unless mute
	mute    bool   // the request is complete, but the response is not read
	// addresses is the number of client addresses, and each the number of connections from one.
	addresses, each int
}

// run keeps the connections of the flood until ctx ends, and reopens those that the node closes. It
// returns after all have been opened once.
func (f flood) run(ctx context.Context, t *testing.T, address string) {
	t.Helper()
	var opened, all sync.WaitGroup
	t.Cleanup(all.Wait)
	for i := range f.addresses * f.each {
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i%f.addresses))}}
		opened.Add(1)
		once := sync.OnceFunc(opened.Done)
		all.Go(func() {
			defer once()
			for ctx.Err() == nil {
				f.hold(ctx, dialer, address, once)
			}
		})
	}
	opened.Wait()
}

// hold keeps one connection until the node closes it.
func (f flood) hold(ctx context.Context, dialer *net.Dialer, address string, opened func()) {
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if f.mute {
		_ = conn.(*net.TCPConn).SetReadBuffer(4096)
	}
	_, err = fmt.Fprint(conn, f.request)
	opened()
	switch {
	case err != nil:
	case f.mute:
		<-ctx.Done()
	default:
		_, _ = io.Copy(io.Discard, conn)
	}
}

// passes sends requests over new connections, and counts those that were not served.
func (n *process) passes(t *testing.T, path, token string) {
	t.Helper()
	const times = 25
	failed := 0
	var last string
	c := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	for range times {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.endpoint+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := c.Do(request)
		if err != nil {
			failed, last = failed+1, err.Error()
			continue
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			failed, last = failed+1, response.Status
		}
	}
	if failed > 0 {
		t.Errorf("GET %s: %d of %d failed, the last with %s", path, failed, times, last)
	}
}

func TestSlowClientsDoNotBlockOthers(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	const token = "{token}"
	slowBody := func(method, path string, headers ...string) string {
		lines := append([]string{method + " " + path + " HTTP/1.1", "Host: x", "Content-Type: application/json", "Content-Length: 1000"},
			headers...)
		return strings.Join(lines, "\r\n") + "\r\n\r\n{"
	}
	bearer := "Authorization: Bearer " + token
	for name, tt := range map[string]struct {
		flood flood
		args  []string
	}{
		"bodies with a token": {flood{request: slowBody("POST", "/v1/schedules/preview", bearer), addresses: 10, each: 57}, nil},
		"bodies behind a proxy": {flood{request: slowBody("POST", "/v1/schedules/preview", bearer, "X-Forwarded-For: 192.0.2.1"),
			addresses: 1, each: 540}, []string{"--trusted-proxies=127.0.1.0/24"}},
		"bodies that no route reads": {flood{request: slowBody("GET", "/livez"), addresses: 10, each: 57}, nil},
		"bodies of an unknown route": {flood{request: slowBody("POST", "/nowhere"), addresses: 10, each: 57}, nil},
		"chunks of the console": {flood{request: "POST /console/login HTTP/1.1\r\nHost: x\r\n" +
			"Content-Type: application/x-www-form-urlencoded\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nt", addresses: 10, each: 57}, nil},
		"responses that are not read": {flood{request: strings.Repeat("GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n", 100), mute: true,
			addresses: 10, each: 57}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
			operator := newToken(t, database)
			n := startNode(t, database, operator, append(tt.args, "--log-level=error")...)
			bound := map[string]string{}
			for _, app := range []string{"evil", "victim"} {
				must[access.App](t)(n.PutApp(t.Context(), access.App{Name: app, AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
				bound[app] = must[access.IssuedToken](t)(n.PutToken(t.Context(), access.APIToken{
					Name:      app,
					TokenSpec: access.TokenSpec{Apps: []string{app}, Scopes: []access.Scope{access.ScopeRead}}}, client.Condition{Absent: true})).Secret
			}
			tt.flood.request = strings.ReplaceAll(tt.flood.request, token, bound["evil"])
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tt.flood.run(ctx, t, strings.TrimPrefix(n.endpoint, "http://"))
			for _, probe := range []string{"/livez", "/readyz"} {
				n.passes(t, probe, "")
			}
			n.passes(t, "/metrics", operator)
			n.passes(t, "/v1/apps/victim", operator)
			n.passes(t, "/v1/apps/victim", bound["victim"])
			cancel()
			n.terminate()
		})
	}
}
