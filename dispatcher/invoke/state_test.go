package invoke_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/invoke"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// carrying gives a call a state of revision 7.
func carrying(call target.Call, state string) target.Call {
	call.Carried = &run.CarriedState{State: []byte(state), Revision: 7}
	return call
}

func TestTargetGetsTheState(t *testing.T) {
	t.Parallel()
	var header string
	var has bool
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, has = r.Header[run.HeaderState]
		header = r.Header.Get(run.HeaderState)
		body, _ = io.ReadAll(r.Body)
	}))
	defer server.Close()
	call := callTo(server.URL, "POST", ample)
	call.Payload = nil
	newInvoker(t).Invoke(t.Context(), carrying(call, `{"n":1}`))
	if header != `{"n":1}` || !strings.Contains(string(body), `"state":{"n":1}`) {
		t.Errorf("header %q and body %s, want the state in both", header, body)
	}
	newInvoker(t).Invoke(t.Context(), carrying(call, `null`))
	if has || strings.Contains(string(body), `"state"`) {
		t.Errorf("header %q and body %s, want no state where there is none", header, body)
	}
}

func TestReturnedStateIsKeptOrRefused(t *testing.T) {
	t.Parallel()
	long, deep := strings.Repeat("x", run.MaxCarriedState), strings.Repeat("[", 33)+strings.Repeat("]", 33)
	of := func(change func(*run.Key)) func(*target.Call) {
		return func(c *target.Call) { change(&c.Key) }
	}
	tooLong := `{"pad": "` + strings.Repeat(long, 18) + `", "carillon": {"state": 2}}`
	shard := of(func(k *run.Key) { k.Shard = 1 })
	backfill := of(func(k *run.Key) { k.Kind = run.KindBackfill })
	for name, tt := range map[string]struct {
		status         int
		header, body   string
		change         func(*target.Call)
		state, problem string // problem is the beginning of the response's message
	}{
		"in the header":                {header: `{"n": 2}`, state: `{"n":2}`},
		"in the body":                  {body: `{"rows": 5, "carillon": {"state": [1, "ä€😀"]}}`, state: `[1,"\u00e4\u20ac\ud83d\ude00"]`},
		"in both, the header decides":  {header: `1`, body: `{"carillon": {"state": 2}}`, state: `1`},
		"null clears":                  {header: `null`, state: `null`},
		"none":                         {body: `{"rows": 5}`},
		"none outside of an object":    {body: `"carillon"`},
		"of an attempt that failed":    {status: 500, header: `2`},
		"of a job without a state":     {header: `2`, change: func(c *target.Call) { c.Carried = nil }},
		"that is not JSON":             {header: `{n: 2}`, problem: "the state is not JSON"},
		"that is too long":             {header: `"` + long + `"`, problem: "the state has 4098 bytes without white space"},
		"nested too deep":              {body: `{"carillon": {"state": ` + deep + `}}`, problem: "the state is nested 33 deep"},
		"with NUL":                     {header: `"\u0000"`, problem: "the state holds NUL"},
		"after the part that is read":  {body: tooLong, problem: "the body is longer than the 64 KiB"},
		"of a backfill":                {header: `2`, change: backfill, problem: "a run of kind backfill"},
		"of a shard":                   {header: `2`, change: shard, problem: "a shard of a broadcast"},
		"with a secret of the request": {header: `"s3cret-of-the-job"`, problem: "the state repeats a secret"},
		"of a catch-up":                {header: `2`, change: of(func(k *run.Key) { k.Kind = run.KindCatchUp }), state: `2`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if tt.header != "" {
					w.Header().Set(run.HeaderState, tt.header)
				}
				if tt.status != 0 {
					w.WriteHeader(tt.status)
				}
				_, _ = io.WriteString(w, tt.body)
			}))
			defer server.Close()
			call := carrying(callTo(server.URL, "POST", ample), `1`)
			call.Target.Webhook.Auth = &target.Auth{Bearer: &target.BearerAuth{
				Token: target.Secret{Value: input.NewSensitive("s3cret-of-the-job")}}}
			if tt.change != nil {
				tt.change(&call)
			}
			outcome := newInvoker(t).Invoke(t.Context(), call)
			var got run.ReturnedState
			if outcome.Returned != nil {
				got = *outcome.Returned
			}
			want := run.ReturnedState{}
			if tt.state != "" {
				want = run.ReturnedState{State: []byte(tt.state), Revision: 7}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("returned (-want +got):\n%s", diff)
			}
			kept := run.Response{}
			if outcome.Response != nil {
				kept = *outcome.Response
			}
			if !strings.HasPrefix(kept.StateProblem, tt.problem) || (tt.problem == "") != (kept.StateProblem == "") ||
				string(kept.State) != tt.state {
				t.Errorf("the response has state %s and problem %q, want %s and %q", kept.State, kept.StateProblem, tt.state, tt.problem)
			}
			if tt.status == 0 && outcome.State != run.Succeeded {
				t.Errorf("the attempt is %s, want succeeded whatever the state is", outcome.State)
			}
		})
	}
}

func TestStateOfAcceptedAttemptComesWithItsCallback(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(run.HeaderState, `2`)
		w.WriteHeader(http.StatusAccepted)
	}))
	defer server.Close()
	call, _ := longCall(server.URL)
	i := invoke.New(invoke.Options{Egress: web.Egress{Loopback: true}, CallbackURL: callbackURL, CallbackKey: callbackKey})
	t.Cleanup(i.Close)
	outcome := i.Invoke(t.Context(), carrying(call, `1`))
	if outcome.Returned != nil || outcome.Callback == nil || outcome.Callback.StateRevision == nil || *outcome.Callback.StateRevision != 7 ||
		!strings.Contains(outcome.Response.StateProblem, "expected with complete") {
		t.Errorf("outcome %+v, want it to wait for the state of the callback, of revision 7", outcome)
	}
}

func TestFunctionGetsAndReturnsAState(t *testing.T) {
	t.Parallel()
	s := newAWS(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"rows": 5, "carillon": {"state": {"n": 2}}}`)
	})
	outcome := s.invoker().Invoke(t.Context(), carrying(invocation(nil), `{"n":1}`))
	if outcome.Returned == nil || string(outcome.Returned.State) != `{"n":2}` || outcome.Returned.Revision != 7 {
		t.Errorf("returned %+v of %+v, want the state in the result", outcome.Returned, outcome)
	}
	if !strings.Contains(s.bodies[0], `"state":{"n":1}`) {
		t.Errorf("event %s, want the state in it", s.bodies[0])
	}
}
