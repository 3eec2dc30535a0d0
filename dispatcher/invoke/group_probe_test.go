package invoke_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/routing"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// answering sets the responses of endpoints to probes, and returns the URIs of the probes.
func (f *fleet) answering(statuses ...int) *sync.Map {
	uris := &sync.Map{}
	f.respond = func(n int, w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			uris.Store(r.URL.RequestURI(), r.Header)
			w.WriteHeader(statuses[n])
		}
	}
	return uris
}

func TestFailoverChoosesTheFirstEndpointThatIsAlive(t *testing.T) {
	t.Parallel()
	f, i := newFleet(t, 5), newInvoker(t)
	f.refusing(t, 0)
	uris := f.answering(200, 503, 302, 204, 200)
	var mu sync.Mutex
	asked, respond := make([][]time.Time, 5), f.respond // when each endpoint was asked
	f.respond = func(n int, w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			mu.Lock()
			asked[n] = append(asked[n], time.Now())
			mu.Unlock()
		}
		respond(n, w, r)
	}
	f.group.Path = "/base"
	f.group.Auth = &target.Auth{Bearer: &target.BearerAuth{Token: target.Secret{Value: input.NewSensitive("hunter2")}}}
	var group errgroup.Group
	for n := range 100 { // fires at once send one probe
		group.Go(func() error {
			o := i.Invoke(t.Context(), f.call(fmt.Sprint("job", n), routing.Failover))
			if o.State != run.Succeeded || o.Response.Endpoint != "e3" {
				return fmt.Errorf("outcome = %+v, want success at e3", o)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		mustSucceed(t, i, f.call("later", routing.Failover))
	}
	for n, times := range asked {
		if (len(times) > 0) != (n >= 1 && n <= 3) {
			t.Errorf("e%d was asked %d times", n, len(times))
		}
		// An answer counts for a second, however many requests a machine makes within it.
		for at := 1; at < len(times); at++ {
			if pause := times[at].Sub(times[at-1]); pause < time.Second {
				t.Errorf("e%d was asked %s after it was asked before, want a second", n, pause)
			}
		}
	}
	header, found := uris.Load("/base" + target.DefaultAlivePath)
	if !found {
		t.Fatal("no endpoint was asked at the path of the group and the default path")
	}
	got := header.(http.Header)
	if got.Get("Authorization") != "Bearer hunter2" || got.Get("Webhook-Id") != "" || got.Get("Carillon-Endpoint") == "" {
		t.Errorf("header of a probe = %v, want that of the group's auth and no id of a run", got)
	}
}

func TestFailoverGoesToBackupsWhenNoPrimaryIsAlive(t *testing.T) {
	t.Parallel()
	f, i := newFleet(t, 4), newInvoker(t)
	f.group.Live[0].Backup, f.group.Live[1].Backup = true, true
	f.answering(200, 200, 500, 500)
	if at := mustSucceed(t, i, f.call("ping", routing.Failover)); at != "e0" {
		t.Errorf("request went to %s, want the first backup", at)
	}
	f, i = newFleet(t, 4), newInvoker(t)
	f.group.Live[0].Backup, f.group.Live[1].Backup = true, true
	f.refusing(t, 2)
	f.refusing(t, 3)
	if at := mustSucceed(t, i, f.call("ping", routing.Last)); at != "e1" {
		t.Errorf("request went to %s, want the last backup", at)
	}
	f, i = newFleet(t, 2), newInvoker(t)
	f.answering(500, 404)
	if o := i.Invoke(t.Context(), f.call("ping", routing.Failover)); o.Class != run.ClassNoEndpoint || !o.NotSent ||
		!strings.HasSuffix(o.Error, "e0: responded to the probe with status 500; e1: responded to the probe with status 404") {
		t.Errorf("outcome = %+v, want what each endpoint said", o)
	}
}

func TestProbeIsBoundedByItsTimeout(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	f.respond = func(n int, _ http.ResponseWriter, r *http.Request) {
		if n == 0 && r.Method == http.MethodGet {
			<-r.Context().Done()
		}
	}
	for timeout := 200 * time.Millisecond; ; timeout *= 2 { // a slow machine may need longer for the probe of e1
		f.group.Probe.Timeout = input.Duration(timeout)
		o := newInvoker(t).Invoke(t.Context(), f.call("ping", routing.Failover))
		if o.Class == run.ClassNoEndpoint && timeout < ample/4 && !strings.Contains(o.Error, "within the timeout of") {
			continue
		}
		if o.State != run.Succeeded || o.Response.Endpoint != "e1" {
			t.Errorf("outcome = %+v, want success at e1", o)
		}
		return
	}
}

func TestBusyoverChoosesTheFirstEndpointThatIsIdle(t *testing.T) {
	t.Parallel()
	for strategy, query := range map[target.Strategy]string{routing.BusyOver: "?job=demo%2Fping", routing.GlobalBusyOver: ""} {
		t.Run(string(strategy), func(t *testing.T) {
			t.Parallel()
			f, i := newFleet(t, 5), newInvoker(t)
			f.group.Live[4].Backup = true
			uris := f.answering(423, 503, 200, 200, 200)
			if at := mustSucceed(t, i, f.call("ping", strategy)); at != "e2" {
				t.Errorf("request went to %s, want e2", at)
			}
			if _, asked := uris.Load(target.DefaultIdlePath + query); !asked {
				t.Error("no endpoint was asked for " + target.DefaultIdlePath + query)
			}
			f.answering(423, 503, 500, 409, 200)
			o := newInvoker(t).Invoke(t.Context(), f.call("ping", strategy))
			if o.State != failed || o.Class != run.ClassEndpointsBusy || !o.NotSent || !o.Class.NeverSent() || !o.Class.Repeatable(0) ||
				!strings.Contains(o.Error, "no endpoint of group workers is idle; of 5, 4 were asked and 4 are busy: e0: responded") {
				t.Errorf("outcome = %+v, want busy without a request to the backup", o)
			}
		})
	}
}

// Fires at once go to different endpoints, even before the first has reported to be busy.
func TestIdleEndpointGetsOneOfManyRequestsAtOnce(t *testing.T) {
	t.Parallel()
	f, i := newFleet(t, 5), newInvoker(t)
	release := make(chan struct{})
	var took, busy atomic.Int64
	f.respond = func(_ int, _ http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			<-release
		}
	}
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			switch o := i.Invoke(t.Context(), f.call("ping", routing.BusyOver)); {
			case o.State == run.Succeeded:
				took.Add(1)
			case o.Class == run.ClassEndpointsBusy:
				if busy.Add(1) == 45 {
					close(release)
				}
			default:
				t.Errorf("outcome = %+v", o)
			}
		})
	}
	group.Wait()
	if counts := f.counts(); took.Load() != 5 || busy.Load() != 45 || fmt.Sprint(counts) != "[1 1 1 1 1]" {
		t.Errorf("%d took, %d found all busy, counts = %v; want 5, 45 and one each", took.Load(), busy.Load(), counts)
	}
	// A request that has ended keeps no endpoint busy.
	if at := mustSucceed(t, i, f.call("ping", routing.BusyOver)); at != "e0" {
		t.Errorf("request went to %s, want e0", at)
	}
}
