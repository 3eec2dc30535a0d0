package main

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// T9: 400 idle connections to the API took all 256 files of a node. All fires failed, and the log was empty.
func TestIdleConnectionsLeaveFilesToFires(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	database := pgtest.New(t)
	token := newToken(t, database)
	r := newReceiver(t, func(w http.ResponseWriter, _ arrival) {
		w.Header().Set("Connection", "close") // so that each fire needs a new file
		w.WriteHeader(http.StatusNoContent)
	})
	n := launchNodeIn(t, surroundings{files: 256}, database, token, nil, quick()...)
	n.awaitReady()
	n.tick("calm", r.URL)
	r.await(t, "fires before the flood", func(all []arrival) bool { return len(all) >= 2 })
	address := strings.TrimPrefix(n.endpoint, "http://")
	var dial net.Dialer
	for i := range 400 {
		conn, err := dial.DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = fmt.Fprint(conn, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n") // it may be closed already
	}
	before := len(r.all())
	r.await(t, "fires during the flood", func(all []arrival) bool { return len(all) >= before+5 })
	for _, probe := range []string{"/livez", "/readyz"} {
		until(t, probe+" to pass during the flood", func() bool { return n.status(probe) == http.StatusOK })
	}
	for _, run := range n.allRuns("calm") {
		if run.Class != "" {
			t.Errorf("run %s failed: %s %s", run.ID, run.Class, run.Error)
		}
	}
	if logs := n.logs.String(); !strings.Contains(logs, "too many connections to the API") || !strings.Contains(logs, "few open files") ||
		strings.Count(logs, "too many connections to the API") > 20 {
		t.Error("the log does not tell of the flood, or too often")
	}
	if got := n.metric(t, "carillon_api_connections "); got > 64 {
		t.Errorf("%v connections, want a quarter of 256 at most", got)
	}
	until(t, "most of 400 idle connections to be closed", func() bool {
		return n.metric(t, `carillon_api_connections_refused_total{reason="idle"}`) >= 300
	})
	n.terminate()
}

// metric returns a metric of the node, by the beginning of its line.
func (n *process) metric(t *testing.T, begin string) (value float64) {
	t.Helper()
	text := n.get(t, "/metrics")
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, begin); ok {
			if _, err := fmt.Sscan(rest, &value); err != nil {
				t.Fatal(err)
			}
			return value
		}
	}
	t.Fatalf("no metric %s in %d bytes", begin, len(text))
	return 0
}
