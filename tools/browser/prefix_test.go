package browser_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
)

const prefix = "/ops/carillon"

// proxy serves a node under a prefix, which it strips or passes on.
func proxy(t *testing.T, node string, strip bool) string {
	t.Helper()
	target, err := url.Parse(node)
	if err != nil {
		t.Fatal(err)
	}
	var handler http.Handler = &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host
	}}
	if strip {
		handler = http.StripPrefix(prefix, handler)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, prefix+"/") {
			http.Error(w, "another service", http.StatusTeapot)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// The console works under a prefix, whether the proxy strips it or passes it on.
func TestConsoleWorksUnderAPrefix(t *testing.T) {
	for name, strip := range map[string]bool{"stripped": true, "passed on": false} {
		t.Run(name, func(t *testing.T) {
			n := start(t, "--console-url", "http://127.0.0.1"+prefix+"/")
			n.fill(t, hostile)
			front := proxy(t, n.url, strip)
			b := open(t, front+prefix)
			console := front + prefix + "/console/"
			b.signIn(console, n.tokens[operator])
			if found := b.crawl(console, func(string) {}); len(found.pages) < 20 {
				t.Errorf("a crawl found %d pages, want 20 or more: %v", len(found.pages), found.pages)
			}
		})
	}
}
