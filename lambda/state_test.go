package lambda_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/carillon-dev/carillon/lambda"
)

func TestResultWithAState(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		result, state any
		want          string // empty: refused
	}{
		"next to a result":  {map[string]int{"rows": 5}, map[string]int{"n": 2}, `{"carillon":{"state":{"n":2}},"rows":5}`},
		"alone":             {nil, 2, `{"carillon":{"state":2}}`},
		"cleared":           {nil, nil, `{"carillon":{"state":null}}`},
		"next to no object": {5, 2, ""},
		"that is no JSON":   {nil, func() {}, ""},
	} {
		got, err := lambda.WithState(tt.result, tt.state)
		if string(got) != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("%s: got %s, %v; want %s", name, got, err, tt.want)
		}
	}
}

func TestEventHasTheState(t *testing.T) {
	t.Parallel()
	var e lambda.Event
	if err := json.Unmarshal([]byte(`{"carillon":{"state":{"n":1}}}`), &e); err != nil || string(e.Carillon.State) != `{"n":1}` {
		t.Errorf("state %s, %v; want that of the event", e.Carillon.State, err)
	}
}

func TestCallbackCompletesWithAState(t *testing.T) {
	t.Parallel()
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.URL.Path + " " + string(body)
	}))
	defer server.Close()
	c := lambda.Callback{URL: server.URL + "/v1/runs/r", Token: "t"}
	if err := c.CompleteWithState(t.Context(), "done", 7); err != nil || got != `/v1/runs/r/complete {"message":"done","state":7}` {
		t.Errorf("got %s, %v", got, err)
	}
}
