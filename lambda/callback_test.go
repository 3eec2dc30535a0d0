package lambda_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/lambda"
)

func TestEventSaysHowToCallBack(t *testing.T) {
	t.Parallel()
	var e lambda.Event
	if err := json.Unmarshal([]byte(`{"carillon":{"callback":{"url":"https://c/v1/runs/r","token":"t"}}}`), &e); err != nil {
		t.Fatal(err)
	}
	if c := e.Carillon.Callback; c.URL != "https://c/v1/runs/r" || c.Token != "t" {
		t.Errorf("callback: got %+v, want that of the event", c)
	}
}

func TestCallbacksSayWhatBecameOfTheWork(t *testing.T) {
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
