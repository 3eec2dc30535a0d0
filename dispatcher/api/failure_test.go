package api_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store"
)

// failing is a store whose AppWithUsage calls a function of the test.
type failing struct {
	*store.Store
	app func() error
}

func (f failing) AppWithUsage(context.Context, string) (access.App, error) {
	return access.App{}, f.app()
}

func TestInternalErrorsHideTheirCause(t *testing.T) {
	t.Parallel()
	const secret = "password=hunter2"
	for name, tt := range map[string]struct {
		app    func() error
		status int
		code   string
	}{
		"an unknown error":  {func() error { return errors.New(secret) }, 500, " internal"},
		"a panic":           {func() error { panic(secret) }, 500, " internal"},
		"a deadline":        {func() error { return errors.Join(errors.New(secret), context.DeadlineExceeded) }, 503, " unavailable"},
		"a lost connection": {func() error { return &net.OpError{Op: "read", Err: errors.New(secret)} }, 503, " unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, api.Options{})
			var logs bytes.Buffer
			w.api = api.New(failing{w.store, tt.app}, api.Options{Logger: slog.New(slog.NewTextHandler(&logs, nil))})
			got := w.do("GET", oneApp, "", "X-Request-Id: id-7")
			got.refused(tt.status, tt.code)
			if strings.Contains(got.Body.String(), secret) {
				t.Errorf("the cause is in the response: %s", got.Body)
			}
			if n := strings.Count(logs.String(), "request_id=id-7"); n != 1 || !strings.Contains(logs.String(), secret) {
				t.Errorf("the cause is logged %d times, want once with the request id: %s", n, &logs)
			}
			if after := got.Header().Get("Retry-After"); (after != "") != (tt.status == 503) {
				t.Errorf("Retry-After is %q at status %d", after, tt.status)
			}
		})
	}
}

func TestClosedDatabaseIsUnavailable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	if err := w.store.Close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{oneApp, oneJob, "/v1/apps", "/readyz"} {
		w.do("GET", path, "").refused(http.StatusServiceUnavailable, " unavailable")
	}
	w.must(http.StatusOK, "GET", "/livez", "")
}

func TestReadinessIncludesTheEngine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{Ready: func(context.Context) error { return errors.New("poll is late: hunter2") }})
	got := w.do("GET", "/readyz", "", "Authorization:")
	got.refused(http.StatusServiceUnavailable, " unavailable")
	if strings.Contains(got.Body.String(), "hunter2") {
		t.Errorf("the cause is in the response: %s", got.Body)
	}
}

func TestReadinessNamesACauseThatIsMeantForUsers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{Ready: func(context.Context) error { return input.Refuse(input.CodeUnavailable, "the disk is full") }})
	got := w.do("GET", "/readyz", "", "Authorization:")
	got.refused(http.StatusServiceUnavailable, " unavailable")
	if !strings.Contains(got.Body.String(), "the disk is full") {
		t.Errorf("the cause is not in the response: %s", got.Body)
	}
}

// onFullDisk is a store whose errors are all those of a full disk.
type onFullDisk struct{ *store.Store }

func (onFullDisk) Refused(error) error {
	return input.Refuse(input.CodeUnavailable, "the disk is full")
}

func TestDatabaseThatRefusesWritesIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	w.api = api.New(onFullDisk{w.store}, api.Options{Logger: slog.New(slog.DiscardHandler)})
	if err := w.store.Close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{oneJob, "/readyz"} {
		got := w.do("GET", path, "")
		got.refused(http.StatusServiceUnavailable, " unavailable")
		if !strings.Contains(got.Body.String(), "the disk is full") {
			t.Errorf("%s does not name the cause: %s", path, got.Body)
		}
	}
}

func TestTruncatedBodyIsNotAnInternalError(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	r := httptest.NewRequestWithContext(t.Context(), "PUT", oneApp, errReader{})
	r.Header.Set("Authorization", "Bearer "+w.token)
	r.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	w.api.ServeHTTP(recorder, r)
	reply{recorder, t, "a truncated body"}.refused(http.StatusBadRequest, " json_syntax")
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errors.New("connection reset") }
