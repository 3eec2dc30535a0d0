package simulate

import (
	"bufio"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

var (
	seed  = flag.Uint64("seed", 1, "seed of the injected faults")
	years = flag.Float64("node-years", 0.1, "years of all nodes together")
	fires = flag.Int("fires", 1_000, "fires that come out of a failing store")
)

// unhurried are the intervals of simulated fleets. They are long, because only their proportions to each other and to
// the schedules and faults matter to correctness.
var unhurried = engine.Options{
	Window: 3 * time.Hour, Handler: 6 * time.Hour, Heartbeat: 3 * time.Hour, DeadAfter: 18 * time.Hour, Grace: 3 * time.Hour,
	PurgeInterval: 3 * 24 * time.Hour, Drain: time.Minute,
}

// simulated is how many nodes a simulation has.
const simulated = 3

// longest is how many years one simulation lasts at most. The rest goes to further seeds, which find more, are quicker
// to replay, and use a processor each.
const longest = 1

func TestSimulation(t *testing.T) {
	if testing.Short() {
		simulate(t, *seed, shortest)
		return
	}
	if *years <= longest {
		simulate(t, *seed, *years)
		return
	}
	t.Parallel()
	n := math.Ceil(*years / longest)
	for i := range uint64(n) {
		t.Run(fmt.Sprint(*seed+i), func(t *testing.T) {
			t.Parallel()
			// In a process of its own, because each process has one source of random numbers.
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), self, "-test.run=^TestSimulation$", "-test.v", "-test.timeout=30m",
				"-seed", fmt.Sprint(*seed+i), "-node-years", fmt.Sprint(*years/n)).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for line := range strings.Lines(string(out)) {
				if _, summary, ok := strings.Cut(line, "seed "); ok {
					t.Log("seed " + strings.TrimSpace(summary))
				}
			}
		})
	}
}

// shortest is the number of node-years with -short.
const shortest = 0.05

// Seeds that once found a fault, and some that never did; with -short, those that find it soon.
func TestSimulationOfKnownSeeds(t *testing.T) {
	file, err := os.Open("testdata/seeds.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		t.Run(text, func(t *testing.T) {
			var seed uint64
			var years float64
			if _, err := fmt.Sscanln(text, &seed, &years); err != nil {
				t.Fatal(err)
			}
			if testing.Short() && years > shortest {
				t.Skip("SKIPPED: in make check, step simulate") // also with CI=true
			}
			simulate(t, seed, years)
		})
	}
}

// simulate lets some nodes live for a number of years, taken together, with all faults that happen in reality, and
// checks every fire after each step.
//
// The seed decides which faults happen to which node and when, how long each call takes, and every random number of the
// engine. A replay differs only by the runtime's own choices: which of several ready cases a select takes, and which of
// two goroutines is first in the same nanosecond.
func simulate(t *testing.T, seed uint64, years float64) {
	// Ids and tokens are random, and the ids determine the preferred node of a fire.
	cryptotest.SetGlobalRandom(t, seed)
	// Virtual time does not pass any faster with more, and locks are not contended with one.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(seed, 0))
		w := newWorld(t, seed, unhurried)
		w.fenced, w.longest, w.response = true, 2*time.Hour, responses
		w.skew = time.Duration(r.Int64N(int64(400 * 24 * time.Hour)))
		w.declareAll()
		w.crowd()
		a := newAuditor(w)
		for i := range simulated {
			w.add(fmt.Sprintf("n%d", i), 20)
			time.Sleep(time.Minute)
		}
		span, steps := time.Duration(years/simulated*365.25*24*float64(time.Hour)), 0
		for at := time.Duration(0); at < span && !t.Failed(); steps++ {
			w.happen(r)
			if steps%4 == 0 {
				w.declareAgain(true)
			}
			at += time.Duration(r.ExpFloat64() * float64(12*time.Hour))
			time.Sleep(time.Until(w.begun.Add(at)))
			w.markDead()
			a.account()
			a.tables()
		}
		w.recover()
		w.enable(noisy, false)
		// Dead after 18 h, handler 6 h, window 3 h, and the resulting misfires.
		time.Sleep(3 * 24 * time.Hour)
		if behind := a.account(); behind > 6*time.Hour {
			t.Errorf("three days after the last fault a trigger is %s behind", behind)
		}
		a.ended(3 * 24 * time.Hour)
		a.purged()
		for _, n := range w.nodes {
			n.drain()
		}
		a.tables()
		a.unclaimed()
		if t.Failed() {
			t.Errorf("replay with: make simulate SEED=%d NODE_YEARS=%g", seed, years)
		}
		t.Logf("seed %d: %.1f node-years, %d steps, %d fires, %d requests",
			seed, time.Since(w.begun).Hours()*simulated/24/365.25, steps, a.fires, len(w.requests))
	})
}

// responses draws the responses of declareAll's targets: within minutes, some after hours, some failures.
func responses(job string, r *rand.Rand) (takes time.Duration, status int) {
	if takes, status, noisy := noisyResponse(job, r); noisy {
		return takes, status
	}
	mean, status := 3*time.Minute, http.StatusOK
	switch job {
	case "skipped", "queued", "replaced":
		mean = 2 * time.Hour
	case "flaky":
		if r.IntN(3) == 0 {
			status = http.StatusInternalServerError
		}
	}
	return time.Duration(r.ExpFloat64() * float64(mean)), status
}

// declareAll declares jobs with many kinds of schedules, deliveries and concurrency policies.
func (w *world) declareAll() {
	type job = *dispatcher.Job
	type trigger = *dispatcher.Trigger
	in := func(zone string, delivery run.Delivery) func(job, trigger) {
		return func(j job, t trigger) {
			j.Delivery, t.Timezone, t.MisfireAfter = delivery, zone, input.Duration(3*time.Hour)
		}
	}
	once := func(j job, _ trigger) { j.Delivery = dispatcher.AtMostOnce }
	w.declare("hourly", "0 0 * * * ?", in("UTC", dispatcher.AtLeastOnce))
	w.declare("steady", "rate(5h)", once)
	w.declare("nightly", "0 30 2 * * ?", in("America/New_York", dispatcher.AtLeastOnce))
	w.declare("twice", "0 15 1,13 * * ?", in("Australia/Lord_Howe", dispatcher.AtMostOnce))
	w.declare("weekly", "0 0 9 ? * MON", in("Europe/Berlin", dispatcher.AtLeastOnce))
	w.declare("monthly", "0 0 0 L * ?", in("Asia/Kathmandu", dispatcher.AtMostOnce))
	w.declare("spread", "0 H H * * ?", nil)
	w.declare("late", "0 0 6 * * ?", func(_ job, t trigger) { t.Jitter = input.Duration(40 * time.Minute) })
	w.declare("patient", "rate(36h)", func(_ job, t trigger) { t.MisfireAfter = input.Duration(24 * time.Hour) })
	w.declare("delay", "delay(11h)", nil)
	w.declare("payout", "delay(17h)", once)
	w.declare("flaky", "rate(7h)", func(j job, _ trigger) {
		j.Retry = run.Retry{
			MaxAttempts: 4, Base: input.Duration(time.Hour),
			Cap: input.Duration(4 * time.Hour), MaxAge: input.Duration(24 * time.Hour),
		}
	})
	for name, policy := range map[string]run.ConcurrencyPolicy{
		"skipped": run.ConcurrencyForbid, "queued": run.ConcurrencyQueue, "replaced": run.ConcurrencyReplace,
	} {
		w.declare(name, "rate(3h)", func(j job, _ trigger) { j.ConcurrencyPolicy, j.QueueLimit = policy, 2 })
	}
}

// happen injects a fault into a node. It draws the same numbers in any state of the nodes.
func (w *world) happen(r *rand.Rand) {
	n := w.nodes[r.IntN(len(w.nodes))]
	what := []string{"nothing", "kill", "kill", "drain", "freeze", "freeze", "cut", "cut", "rate", "clock"}[r.IntN(10)]
	at := crucial[r.IntN(len(crucial))]
	if r.IntN(2) == 0 {
		at = ""
	}
	rate := r.Int64N(300)
	// Half of them are over before the node is marked dead.
	lasts := time.Duration(r.ExpFloat64() * float64(18*time.Hour))
	back := time.Duration(r.ExpFloat64() * float64(20*time.Minute))
	switch store := n.store; {
	case store == nil:
		n.start(rate / 3)
	case what == "kill" && at != "":
		store.trapAt(at, func() { store.set(&store.gone, true) })
	case what == "kill":
		n.kill()
	case what == "drain":
		n.drain()
	case what == "freeze":
		freeze := func() {
			store.freeze()
			time.AfterFunc(lasts, store.thaw)
		}
		if at == "" {
			freeze()
		} else {
			store.trapAt(at, freeze)
		}
	case what == "cut":
		store.set(&store.cut, true)
		time.AfterFunc(lasts, func() { store.set(&store.cut, false) })
	case what == "clock":
		w.setBack(back)
	case what == "rate":
		store.rate.Store(rate)
		time.AfterFunc(lasts, func() { store.rate.Store(20) })
	}
}

// mark dead ends the processes of nodes that a trap has killed.
func (w *world) markDead() {
	for _, n := range w.nodes {
		if n.store != nil && n.store.dead() {
			n.kill()
		}
	}
}

// recover ends all faults.
func (w *world) recover() {
	for _, n := range w.nodes {
		if n.store != nil {
			n.store.trapAt("", nil)
		}
	}
	w.markDead()
	for _, n := range w.nodes {
		if n.store == nil {
			n.start(0)
		}
		n.store.thaw()
		n.store.set(&n.store.cut, false)
		n.store.rate.Store(0)
	}
}
