package console_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/console"
)

// canned is an API with responses set by a test, so that pages are the same each time. The sessions are real.
type canned struct {
	console.API
	mu        sync.Mutex
	responses map[string]any // by method and path, such as "GET /v1/apps"
	requests  []string       // with their bodies
}

// newCanned starts a console over canned responses.
func newCanned(t *testing.T, responses map[string]any) (*trial, *canned) {
	t.Helper()
	c := &canned{responses: responses}
	w := newTrial(t, func(o *console.Options) { c.API, o.API = o.API, c })
	return w, c
}

// As returns a transport with the canned responses.
func (c *canned) As(*http.Request, access.APIToken) http.RoundTripper { return c }

// RoundTrip responds to one request.
func (c *canned) RoundTrip(r *http.Request) (*http.Response, error) {
	request := r.Method + " " + r.URL.Path
	body := ""
	if r.Body != nil {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		body = strings.TrimSpace(string(raw))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, strings.TrimSpace(request+" "+body))
	status, kind, given := http.StatusOK, "application/json", c.responses[request]
	if given == nil {
		status, kind = http.StatusNotFound, "application/problem+json"
		given = map[string]any{"status": status, "title": "Not Found", "errors": []map[string]string{{"code": "not_found",
			"message": "nothing at " + request}}}
		if r.Method == http.MethodDelete {
			status, given = http.StatusNoContent, nil
		}
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // as the API does
	if err := encoder.Encode(limited(given, r.URL.Query().Get("limit"))); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Request: r, Body: io.NopCloser(&text)}, nil
}

// limited returns no more items of a list than the limit.
func limited(given any, limit string) any {
	list, is := given.(map[string]any)
	most, err := strconv.Atoi(limit)
	if !is || list["items"] == nil || err != nil {
		return given
	}
	if all := reflect.ValueOf(list["items"]); all.Len() > most {
		return map[string]any{"items": all.Slice(0, most).Interface(), "next": "cursor"}
	}
	return given
}

// take returns the requests since the last call.
func (c *canned) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.requests
	c.requests = nil
	return all
}

// changing are the parts of a page that differ each time.
var changing = regexp.MustCompile(`Request [A-Z2-7]{26}|/assets/[a-z]+-[0-9a-f]+\.|` +
	`>[^<>]* ago</time>|>in [^<>]*</time>|<p class="muted" data-key="span">.*</p>|<p class="scale days">.*?</p>|` +
	`<title>[0-9-]{10}: runs 0[^<]*</title>|<p class="scale"><span>[0-9-]{10}</span>.*?</p>`)

// golden compares the main part of a page with a file.
func golden(t *testing.T, name, text string) {
	t.Helper()
	_, text, _ = strings.Cut(text, `<main id="main" tabindex="-1">`)
	text, _, _ = strings.Cut(text, "</main>")
	text = changing.ReplaceAllString(strings.TrimSpace(text), "*") + "\n"
	if day := time.Now().UTC().Format(time.DateOnly); strings.Contains(text, day) {
		t.Errorf("page %s has the day %s in it: name what shows it in `changing`, or this test fails tomorrow", name, day)
	}
	file := filepath.Join("testdata", name+".html")
	if console.Update() {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil { //nolint:gosec // a golden file
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("page %s (-want +got); -update writes it:\n%s", name, diff)
	}
}
