package dispatch

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

func inputTests() tests {
	return tests{
		"inputs of many runs are read at once":               testManyRunInputs,
		"a run keeps what it was given":                      testRunInputs,
		"a payload that cannot be sent or stored is refused": testRunInputRefused,
		"a retry keeps the trace of its request":             testRetryKeepsItsRequest,
		"a retry of a run that waits keeps its trace":        testRetryOfWaitingRunKeepsItsRequest,
		"parts of a whole keep the trace of its request":     testPartsKeepTheRequestOfTheWhole,
	}
}

// A run that is asked for with a payload has it until the history forgets the run: while it is live, once it has ended,
// and when it is retried.
func testRunInputs(t *testing.T, f *wing) {
	ctx := t.Context()
	f.PutBrief()
	for _, name := range []string{"with", "without"} {
		j := fixture.Job(name, nil)
		j.App = "brief"
		f.Put(j, fixture.T0)
	}
	given := json.RawMessage(`{"region":"eu <&> 壊","n":12345678901234567890}`)
	with, err := f.RequestRun(ctx, "brief", "with", given, fixture.At(fixture.T0))
	f.Must(err)
	f.Must(f.RequestRun(ctx, "brief", "without", nil, fixture.At(fixture.T0)))
	key, err := run.ParseKey(with.ID)
	f.Must(err)
	want := map[run.Key]run.Input{key: {Payload: given}}
	check := func(when string, held run.HeldRun) {
		t.Helper()
		got, err := f.RunInputs(ctx, []run.Key{held.Key, {TriggerID: 5, ScheduledAt: fixture.T0, Kind: run.KindManual}})
		f.Must(err)
		if diff := cmp.Diff(want, got); diff != "" || !held.HasInput {
			t.Errorf("%s: the held run has an input: %v, want true; inputs (-want +got):\n%s", when, held.HasInput, diff)
		}
		if got := f.RunOf(key).Payload; string(got) != string(given) {
			t.Errorf("%s: the run shows payload %s, want %s", when, got, given)
		}
	}
	now := fixture.T0.Add(time.Second)
	adopt := func() (one run.HeldRun) {
		t.Helper()
		for _, run := range f.AdoptIdle(fixture.NodeA, now) {
			if run.Key == key {
				one = run
			} else if run.HasInput {
				t.Errorf("run %s has an input, want none", run.Key)
			}
		}
		return one
	}
	held := adopt()
	check("adopted", held)
	f.End(held, now)
	f.Must(f.RetryRun(ctx, with.ID, fixture.At(now)))
	check("retried", adopt())
	listed, err := f.Held(ctx, fixture.NodeA, 0)
	f.Must(err)
	for _, run := range listed {
		if run.Key == key {
			check("read again", run)
			f.End(run, now)
		}
	}
	f.PurgeAll(now.Add(100 * time.Hour))
	if got, err := f.RunInputs(ctx, []run.Key{key}); err != nil || len(got) != 0 {
		t.Errorf("once the history has forgotten the run: inputs %v, %v, want none", got, err)
	}
}

// Inputs of many runs are read at once, whatever their days. All shards of a run have its input.
func testManyRunInputs(t *testing.T, f *wing) {
	f.PutBrief()
	j := fixture.Job("many", nil)
	j.App = "brief"
	f.Put(j, fixture.T0)
	want, keys := map[run.Key]run.Input{}, []run.Key{}
	for days := range 3 {
		now := fixture.T0.Add(time.Duration(days) * 24 * time.Hour)
		given := json.RawMessage(fmt.Sprintf(`{"day":%d}`, days))
		r, err := f.RequestRun(t.Context(), "brief", "many", given, fixture.At(now))
		f.Must(err)
		key, err := run.ParseKey(r.ID)
		f.Must(err)
		for _, of := range []run.Key{key, key.OfIndex(0), key.OfIndex(1)} {
			keys, want[of] = append(keys, of), run.Input{Payload: given}
		}
		without := key
		without.TriggerID++
		keys = append(keys, without)
	}
	got, err := f.RunInputs(t.Context(), keys)
	f.Must(err)
	fixture.WantDiff(t, "inputs", want, got)
	got, err = f.RunInputs(t.Context(), nil)
	f.Must(err)
	f.Expect("inputs of no runs", len(got), 0)
}

// A payload that could not be sent or stored is refused before anything is queued.
func testRunInputRefused(t *testing.T, f *wing) {
	f.Put(fixture.Job("job", nil), fixture.T0)
	for what, payload := range map[string]string{
		"no JSON": "{", "NUL": `"a\u0000b"`, "half a character": `"\ud800"`, "too large": `"` + strings.Repeat("x", input.MaxPayload) + `"`,
		"too deep": strings.Repeat("[", 33) + strings.Repeat("]", 33),
	} {
		if _, err := f.RequestRun(t.Context(), "shop", "job", json.RawMessage(payload), fixture.At(fixture.T0)); !errors.As(err,
			new(input.Problems)) {
			t.Errorf("%s: got error %v, want Problems", what, err)
		}
	}
	if runs, err := f.Runs(t.Context(), dispatcher.RunQuery{App: "shop", Page: input.Page{Limit: 10}}); err != nil || len(runs) != 0 {
		t.Errorf("got runs %v, %v, want none", runs, err)
	}
}
