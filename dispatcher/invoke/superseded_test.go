package invoke_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/routing"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// refusal is the response of a target.
type refusal struct {
	status int
	header string // the value of carillon-outcome
	body   string
}

func (r refusal) serve(w http.ResponseWriter) {
	if r.header != "" {
		w.Header().Set("Carillon-Outcome", r.header)
	}
	w.WriteHeader(r.status)
	_, _ = io.WriteString(w, r.body)
}

const superseded = run.State("superseded")

// Only the receiver knows which requests are stale. A status of 409 without the mark means something else.
func TestReceiverRefusesARequestAsSuperseded(t *testing.T) {
	t.Parallel()
	const mark = `{"carillon":{"outcome":"superseded"}}`
	for name, tt := range map[string]struct {
		refusal
		codes []target.SuccessCode
		kind  run.Kind
		want  run.State
	}{
		"409 alone":             {refusal: refusal{409, "", `{"error":"conflict"}`}, want: run.Failed},
		"409 with the header":   {refusal: refusal{409, "superseded", ""}, want: superseded},
		"in other letters":      {refusal: refusal{409, " Superseded", ""}, want: superseded},
		"409 with the member":   {refusal: refusal{409, "", mark}, want: superseded},
		"in a problem document": {refusal: refusal{409, "", `{"status":409,"carillon":{"outcome":"superseded"}}`}, want: superseded},
		"another outcome":       {refusal: refusal{409, "busy", `{"carillon":{"outcome":"busy"}}`}, want: run.Failed},
		"the word elsewhere":    {refusal: refusal{409, "", `{"outcome":"superseded"}`}, want: run.Failed},
		"a state and no object": {refusal: refusal{409, "", `{"carillon":"superseded"}`}, want: run.Failed},
		"a mark cut off":        {refusal: refusal{409, "", mark[:20]}, want: run.Failed},
		"409 as success":        {refusal: refusal{409, "superseded", ""}, codes: []target.SuccessCode{"2xx", "409"}, want: superseded},
		"500 with the header":   {refusal: refusal{500, "superseded", mark}, want: run.Failed},
		"412 with the header":   {refusal: refusal{412, "superseded", mark}, want: run.Failed},
		"200 with the header":   {refusal: refusal{200, "superseded", mark}, want: run.Succeeded},
		"a manual run":          {refusal: refusal{409, "superseded", ""}, kind: run.KindManual, want: superseded},
		"a notification":        {refusal: refusal{409, "superseded", ""}, kind: run.KindAlert, want: run.Failed},
		"a delivery of an end":  {refusal: refusal{409, "superseded", ""}, kind: run.KindFollow, want: run.Failed},
	} {
		call := callTo(serve(t, func(w http.ResponseWriter, _ *http.Request) { tt.serve(w) }), "POST", ample)
		call.Target.Webhook.SuccessCodes = tt.codes
		if tt.kind != "" {
			call.Key.Kind = tt.kind
		}
		checkSuperseded(t, name, newInvoker(t).Invoke(t.Context(), call), tt.want, tt.status)
	}
}

func checkSuperseded(t *testing.T, name string, o run.Outcome, want run.State, status int) {
	t.Helper()
	if o.State != want || o.HTTPStatus != status {
		t.Errorf("%s: outcome = %+v, want %s with status %d", name, o, want, status)
	}
	if want == superseded && (o.Class != "" || !strings.Contains(o.Error, "newer")) {
		t.Errorf("%s: class %q, error %q, want no class and the reason", name, o.Class, o.Error)
	}
}

func TestEndpointRefusesARequestAsSuperseded(t *testing.T) {
	t.Parallel()
	f, i := newFleet(t, 2), newInvoker(t)
	f.respond = func(_ int, w http.ResponseWriter, _ *http.Request) { refusal{409, "superseded", ""}.serve(w) }
	o := i.Invoke(t.Context(), f.call("sync", routing.RoundRobin))
	checkSuperseded(t, "an endpoint", o, superseded, 409)
	if o.Response == nil || o.Response.Endpoint == "" || o.Response.Headers["carillon-outcome"] != "superseded" {
		t.Errorf("response %+v, want the endpoint and the header", o.Response)
	}
}

func TestFunctionRefusesAnEventAsSuperseded(t *testing.T) {
	t.Parallel()
	result := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
	}
	for name, tt := range map[string]struct {
		respond http.HandlerFunc
		want    run.State
	}{
		"a result":            {result(`{"carillon":{"outcome":"superseded"}}`), superseded},
		"a result with more":  {result(`{"seen":7,"carillon":{"outcome":"superseded","state":{}}}`), superseded},
		"another result":      {result(`{"carillon":{"outcome":"done"}}`), run.Succeeded},
		"a text":              {result(`"superseded"`), run.Succeeded},
		"an error in Go":      {failWith("Unhandled", `{"errorType":"Superseded","errorMessage":"attempt 1"}`), superseded},
		"an exception":        {failWith("Unhandled", `{"errorType":"com.example.Superseded","errorMessage":"x"}`), superseded},
		"one in Ruby":         {failWith("Unhandled", `{"errorType":"Function<Superseded>","errorMessage":"x"}`), superseded},
		"another error":       {failWith("Unhandled", `{"errorType":"NotSuperseded","errorMessage":"superseded"}`), run.Failed},
		"an error's message":  {failWith("Handled", `{"errorType":"Error","errorMessage":"Superseded"}`), run.Failed},
		"an error's own mark": {failWith("Handled", `{"errorType":"E","carillon":{"outcome":"superseded"}}`), run.Failed},
	} {
		server := newAWS(t, tt.respond)
		checkSuperseded(t, name, server.invoker().Invoke(t.Context(), invocation(nil)), tt.want, 200)
	}
}
