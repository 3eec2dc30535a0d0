package web

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"testing"
)

// A process may open only a limited number of files. Idle connections to earlier hosts must not keep new ones out.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	t.Parallel()
	const most = 3
	pool := newClientPool(newGuard(Egress{Loopback: true}, nil), 8, most)
	t.Cleanup(pool.closeIdle)
	kept := 0
	for range 4 * most {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
		t.Cleanup(server.Close)
		idle := make(chan error, 1)
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{PutIdleConn: func(err error) { idle <- err }})
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := pool.plain.kept.GetClient().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(response.Body); err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if <-idle != nil {
			continue // closed, because others were, so it will not be open
		}
		kept++
		if open := pool.open.Load(); open > 2*most {
			t.Fatalf("%d connections are open, want %d at most, and some that are being closed", open, most)
		}
	}
	if kept < most {
		t.Errorf("%d connections were kept, want at least %d", kept, most)
	}
}
