package lambda_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/lambda"
)

func TestEventHasTheCallback(t *testing.T) {
	t.Parallel()
	var e lambda.Event
	if err := json.Unmarshal([]byte(`{"carillon":{"callback":{"url":"https://c/v1/runs/r","token":"t"}}}`), &e); err != nil {
		t.Fatal(err)
	}
	if c := e.Carillon.Callback; c.URL != "https://c/v1/runs/r" || c.Token != "t" {
		t.Errorf("callback: got %+v, want that of the event", c)
	}
}

// A database takes minutes to fail over. A function reports its outcome once the API is back; a heartbeat gives up.
func TestCallbacksThatEndTheWorkOutlastAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		down := time.Now().Add(10 * time.Minute)
		api := transport(func(r *http.Request) *http.Response {
			status := http.StatusOK
			if time.Now().Before(down) {
				status = http.StatusServiceUnavailable
			}
			return &http.Response{StatusCode: status, Body: http.NoBody, Request: r}
		})
		c := lambda.Callback{URL: "http://carillon/v1/runs/r", Token: "t", Client: &http.Client{Transport: api}}
		if err := c.Heartbeat(t.Context(), lambda.Progress{}); err == nil || time.Until(down) < 9*time.Minute {
			t.Errorf("heartbeat: got %v with %s of the outage left, want an error after half a minute", err, time.Until(down))
		}
		for what, tell := range map[string]func(context.Context, string) error{"complete": c.Complete, "fail": c.Fail} {
			if err := tell(t.Context(), "done"); err != nil {
				t.Errorf("%s: %v, want it told after the outage", what, err)
			}
			down = time.Now().Add(10 * time.Minute)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if err := c.Complete(ctx, "done"); err == nil || ctx.Err() == nil {
			t.Errorf("complete: got %v before its context ended, want an error once it has", err)
		}
	})
}

// transport responds in place of a server.
type transport func(*http.Request) *http.Response

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r), nil }

func TestLongMessagesAreCutBetweenLetters(t *testing.T) {
	t.Parallel()
	var got string
	api := transport(func(r *http.Request) *http.Response {
		var said struct{ Message string }
		_ = json.NewDecoder(r.Body).Decode(&said)
		got = said.Message
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}
	})
	c := lambda.Callback{URL: "http://carillon/v1/runs/r", Token: "t", Client: &http.Client{Transport: api}}
	if err := c.Fail(t.Context(), strings.Repeat("x", 1023)+"éé"); err != nil || got != strings.Repeat("x", 1023) {
		t.Errorf("message of %d bytes, %v, want the 1023 before the letter that does not fit", len(got), err)
	}
}

func TestCallbacksReportTheOutcomeOfTheWork(t *testing.T) {
	t.Parallel()
	var got []string
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, fmt.Sprintf("%s %s %s", r.URL.Path, r.Header.Get("Authorization"), body))
		w.WriteHeader(status)
	}))
	defer server.Close()
	c := lambda.Callback{URL: server.URL + "/v1/runs/r", Token: "t"}
	half := 50
	for _, err := range []error{
		c.Heartbeat(t.Context(), lambda.Progress{Text: "half", Percent: &half}),
		c.Complete(t.Context(), "42 rows"),
		c.Fail(t.Context(), "disk full"),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	want := []string{
		`/v1/runs/r/heartbeat Bearer t {"progress":"half","percent":50}`,
		`/v1/runs/r/complete Bearer t {"message":"42 rows"}`,
		`/v1/runs/r/fail Bearer t {"message":"disk full"}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	status = http.StatusConflict
	if err := c.Complete(t.Context(), ""); !errors.Is(err, lambda.ErrOver) {
		t.Errorf("status 409: got %v, want ErrOver", err)
	}
	status = http.StatusUnauthorized
	if err := c.Complete(t.Context(), ""); err == nil || errors.Is(err, lambda.ErrOver) {
		t.Errorf("status 401: got %v, want another error", err)
	}
	if err := (lambda.Callback{}).Complete(t.Context(), ""); !errors.Is(err, lambda.ErrNoCallback) {
		t.Errorf("a job without callback: got %v, want ErrNoCallback", err)
	}
}
