package invoke_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/routing"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// slotsOf lets a call take slots of endpoints. It notes the requested endpoints, and grants the response of respond.
func slotsOf(call *target.Call, respond func(endpoint string, ifFree bool) target.EndpointGrant) (asked *[]string) {
	asked = new([]string)
	call.Occupy = func(endpoint string, ifFree bool) target.EndpointGrant {
		*asked = append(*asked, endpoint)
		return respond(endpoint, ifFree)
	}
	return asked
}

func granted(endpoint string, _ bool) target.EndpointGrant {
	return target.EndpointGrant{Endpoint: endpoint}
}

func TestSlotIsTakenForEachEndpointThatIsTried(t *testing.T) {
	t.Parallel()
	f, i := newFleet(t, 3), newInvoker(t)
	f.refusing(t, 0)
	call := f.call("ping", routing.First)
	asked := slotsOf(&call, granted)
	if at := mustSucceed(t, i, call); at != "e1" || !slices.Equal(*asked, []string{"e0", "e1"}) {
		t.Errorf("request went to %s after slots of %v", at, *asked)
	}
}

// A run that waited for an endpoint goes there, with any strategy, unless the endpoint refuses or is deleted.
func TestRunGoesToItsAwaitedEndpoint(t *testing.T) {
	t.Parallel()
	waited := func(at string) func(string, bool) target.EndpointGrant {
		first := true
		return func(endpoint string, ifFree bool) target.EndpointGrant {
			if first {
				first = false
				return target.EndpointGrant{Endpoint: at}
			}
			return granted(endpoint, ifFree)
		}
	}
	for what, tt := range map[string]struct {
		waited, want string
		asked        []string
		change       func(*testing.T, *fleet)
	}{
		"there":    {"e2", "e2", []string{"e0"}, func(*testing.T, *fleet) {}},
		"refuses":  {"e2", "e0", []string{"e0", "e0"}, func(t *testing.T, f *fleet) { f.refusing(t, 2) }},
		"gone":     {"e9", "e0", []string{"e0", "e0"}, func(*testing.T, *fleet) {}},
		"draining": {"e1", "e0", []string{"e0", "e0"}, func(_ *testing.T, f *fleet) { f.group.Live[1].Draining = true }},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f, i := newFleet(t, 3), newInvoker(t)
			tt.change(t, f)
			call := f.call("ping", routing.First)
			asked := slotsOf(&call, waited(tt.waited))
			if at := mustSucceed(t, i, call); at != tt.want || !slices.Equal(*asked, tt.asked) {
				t.Errorf("request went to %s after slots of %v, want %s and %v", at, *asked, tt.want, tt.asked)
			}
		})
	}
}

func TestNothingIsSentWithoutASlot(t *testing.T) {
	t.Parallel()
	f, i := newFleet(t, 3), newInvoker(t)
	call := f.call("ping", routing.RoundRobin)
	asked := slotsOf(&call, func(string, bool) target.EndpointGrant { return target.EndpointGrant{} })
	if o := i.Invoke(t.Context(), call); !o.NotSent || len(*asked) != 1 || slices.Max(f.counts()) != 0 {
		t.Errorf("outcome = %+v after slots of %v and requests %v, want none", o, *asked, f.counts())
	}
}

func TestBusyEndpointsArePassedOverByTheirSlots(t *testing.T) {
	t.Parallel()
	f, i := newFleet(t, 2), newInvoker(t)
	busy := map[string]bool{"e0": true}
	call := f.call("ping", routing.BusyOver)
	slotsOf(&call, func(endpoint string, ifFree bool) target.EndpointGrant {
		if !ifFree {
			t.Error("asked for a slot to wait for")
		}
		if busy[endpoint] {
			return target.EndpointGrant{Busy: "runs run 7 of the job already"}
		}
		return granted(endpoint, ifFree)
	})
	if at := mustSucceed(t, i, call); at != "e1" || f.probes[0].Load() != 0 {
		t.Errorf("request went to %s, and e0 was asked %d times, want e1 and none", at, f.probes[0].Load())
	}
	busy["e1"] = true
	if o := i.Invoke(t.Context(), call); o.Class != run.ClassEndpointsBusy || !o.NotSent ||
		!strings.Contains(o.Error, "e1: runs run 7 of the job already") {
		t.Errorf("outcome = %+v, want that both are busy", o)
	}
}
