package engine

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/routing"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/test/freeport"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// victimEnv makes the test program an endpoint to be killed, on its value as address: see serveVictim.
const victimEnv = "CARILLON_TEST_VICTIM"

// victimResponds is how many requests a victim responds to.
const victimResponds = 20

// serveVictim serves an endpoint. It prints its URL, and a line for each request before it responds to it. It keeps the
// requests after the first ones, so that some are in flight when the process is killed.
func serveVictim() {
	listener, err := net.Listen("tcp", os.Getenv(victimEnv))
	if err != nil {
		panic(err)
	}
	fmt.Println("http://" + listener.Addr().String())
	var got atomic.Int32
	//nolint:gosec // It ends with the test.
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		n := got.Add(1)
		fmt.Println(r.Header.Get("Webhook-Id"))
		if n > victimResponds {
			<-r.Context().Done()
		}
	})}
	panic(server.Serve(listener))
}

// victim is a running endpoint.
type victim struct {
	url     string
	command *exec.Cmd
	lines   *bufio.Scanner
	events  map[string]bool // that it has received
}

func startVictim(t *testing.T) *victim {
	t.Helper()
	address, err := freeport.Address(t.Context()) // no other program gets it after its death
	if err != nil {
		t.Fatal(err)
	}
	v := &victim{command: exec.Command(os.Args[0]), events: map[string]bool{}}
	v.command.Env = append(os.Environ(), victimEnv+"="+address)
	out, err := v.command.StdoutPipe()
	if err == nil {
		err = v.command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.command.Process.Kill() })
	if v.lines = bufio.NewScanner(out); !v.lines.Scan() {
		t.Fatal("the endpoint did not start")
	}
	v.url = v.lines.Text()
	return v
}

// kill waits until some requests are in flight, and kills the process. It returns when the process has ended.
func (v *victim) kill(t *testing.T, inFlight int) (died time.Time) {
	t.Helper()
	for len(v.events) < victimResponds+inFlight && v.lines.Scan() {
		v.events[v.lines.Text()] = true
	}
	if err := v.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for v.lines.Scan() {
		v.events[v.lines.Text()] = true
	}
	_ = v.command.Wait()
	return time.Now()
}

// When an endpoint is killed, its requests in flight lose an attempt. From then on it gets no more fires, and each fire
// is done.
func TestKilledEndpointGetsNoFireAndLosesNone(t *testing.T) {
	need.Step(t, "fleets")
	t.Parallel()
	s, stop := startFleet(t, pgtest.New(t), strategyNodes)
	a := &arrivals{at: map[string]map[string]string{}, again: map[string]int{}, came: make(chan struct{}, 1)}
	killed := startVictim(t)
	urls := map[string]string{"e0": killed.url}
	for n := range 4 {
		id := fmt.Sprint("e", n+1)
		urls[id] = a.serve(t, id, func(string) bool { return false })
	}
	const inFlight = 10
	declareStrategy(t, s, "steady", strategyCase{strategy: routing.RoundRobin, job: func(j *dispatcher.Job) {
		for name, trigger := range j.Triggers {
			trigger.Jitter = input.Duration(time.Second) // a steady rate
			j.Triggers[name] = trigger
		}
	}}, urls, time.Now().Add(3*time.Second).Truncate(time.Second))
	died := killed.kill(t, inFlight)
	// It responded to the first ones. All others arrive elsewhere.
	a.await(t, "steady", strategyFires-victimResponds)
	stop()
	runs, err := s.Runs(t.Context(), dispatcher.RunQuery{App: "app", Page: input.Page{Limit: 1000}})
	if err != nil || len(runs) != strategyFires {
		t.Fatalf("%d runs, %v, want %d", len(runs), err, strategyFires)
	}
	repeated, afterDeath := 0, 0
	for _, summary := range runs {
		r, err := s.Run(t.Context(), summary.ID)
		if err != nil {
			t.Fatal(err)
		}
		if r.State != run.Succeeded {
			t.Errorf("run %s ended as %s: %s", r.ID, r.State, r.Error)
		}
		for _, attempt := range r.Attempts {
			if attempt.State == run.Succeeded {
				continue
			}
			repeated++
			if attempt.StartedAt.After(died) {
				afterDeath++
			}
		}
	}
	least := len(killed.events) - victimResponds
	if least < inFlight || repeated < least || a.again["steady"] > 0 {
		t.Errorf("%d attempts failed and %d fires arrived again, want %d at least and none", repeated, a.again["steady"], least)
	}
	// No new connection succeeds any more, and a node notices that a kept one is closed when it uses it once, if not
	// before. Only connections with a response were kept.
	if afterDeath > victimResponds {
		t.Errorf("%d attempts that began after the death failed, want one for each of %d connections at most", afterDeath, victimResponds)
	}
}
