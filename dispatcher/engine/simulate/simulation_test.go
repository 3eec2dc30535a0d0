package simulate

import (
	"bufio"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine"
)

var (
	seed  = flag.Uint64("seed", 1, "what faults are drawn from")
	years = flag.Float64("node-years", 0.1, "years that the nodes of a simulation live, taken together")
	fires = flag.Int("fires", 1_000, "fires that come out of a failing store")
)

// A day of the fleets that are simulated here is as long as that of others, but the engine takes its
// time: what matters to correctness is how its intervals relate to each other and to those of
// schedules and faults.
var unhurried = engine.Options{
	Window: 3 * time.Hour, Handler: 6 * time.Hour, Heartbeat: 3 * time.Hour, DeadAfter: 18 * time.Hour, Grace: 3 * time.Hour,
	Tidy: 3 * 24 * time.Hour, Drain: time.Minute,
}

// simulated is how many nodes a simulation has.
const simulated = 3

func TestSimulation(t *testing.T) {
	simulate(t, *seed, *years)
}

// Seeds that once found a fault, and some that never did.
func TestSimulationOfSeedsThatFailedOnce(t *testing.T) {
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
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(text, func(t *testing.T) { simulate(t, seed, 0.1) })
	}
}

// simulate lets some nodes live for so many years, taken together, in which everything happens to them that
// does happen, and accounts for every fire after each step.
func simulate(t *testing.T, seed uint64, years float64) {
	// Ids and tokens are drawn at random, and from the ids follows who prefers which fires.
	cryptotest.SetGlobalRandom(t, seed)
	synctest.Test(t, func(t *testing.T) {
		trace := fnv.New64a()
		w := newWorld(t, seed, unhurried)
		w.fenced, w.log = true, trace
		w.latency = func(r *rand.Rand) time.Duration { return time.Duration(r.ExpFloat64() * float64(3*time.Minute)) }
		w.declareAll()
		a := newAuditor(w)
		for i := range simulated {
			w.add(fmt.Sprintf("n%d", i), 20)
		}
		r := rand.New(rand.NewPCG(seed, 0))
		span, steps := time.Duration(years/simulated*365.25*24*float64(time.Hour)), 0
		for time.Since(w.begun) < span && !t.Failed() {
			w.happen(r)
			a.account()
			steps++
		}
		w.recover()
		// Dead after 18 h, handler 6 h, window 3 h, and the misfires that come of it.
		<-time.After(3 * 24 * time.Hour)
		if behind := a.account(); behind > 6*time.Hour {
			t.Errorf("three days after the last fault a trigger is %s behind", behind)
		}
		a.ended(0)
		for _, n := range w.nodes {
			n.drain()
		}
		if t.Failed() {
			t.Errorf("replay with: make simulate SEED=%d NODE_YEARS=%g", seed, years)
		}
		t.Logf("seed %d: %.1f node-years, %d steps, %d fires, %d requests, trace %x",
			seed, time.Since(w.begun).Hours()*simulated/24/365.25, steps, a.fires, len(w.requests), trace.Sum64())
	})
}

// declareAll declares jobs of many kinds of schedules.
func (w *world) declareAll() {
	in := func(zone string) func(*dispatcher.Trigger) {
		return func(t *dispatcher.Trigger) { t.Timezone, t.MisfireAfter = zone, dispatcher.Duration(3*time.Hour) }
	}
	w.declare("hourly", "0 0 * * * ?", dispatcher.AtLeastOnce, in("UTC"))
	w.declare("steady", "rate(5h)", dispatcher.AtMostOnce, nil)
	w.declare("nightly", "0 30 2 * * ?", dispatcher.AtLeastOnce, in("America/New_York"))
	w.declare("twice", "0 15 1,13 * * ?", dispatcher.AtMostOnce, in("Australia/Lord_Howe"))
	w.declare("weekly", "0 0 9 ? * MON", dispatcher.AtLeastOnce, in("Europe/Berlin"))
	w.declare("monthly", "0 0 0 L * ?", dispatcher.AtMostOnce, in("Asia/Kathmandu"))
	w.declare("spread", "0 H H * * ?", dispatcher.AtLeastOnce, nil)
	w.declare("late", "0 0 6 * * ?", dispatcher.AtLeastOnce, func(t *dispatcher.Trigger) { t.Jitter = dispatcher.Duration(40 * time.Minute) })
	w.declare("patient", "rate(36h)", dispatcher.AtLeastOnce, func(t *dispatcher.Trigger) { t.MisfireAfter = dispatcher.Duration(24 * time.Hour) })
	w.declare("delay", "delay(11h)", dispatcher.AtLeastOnce, nil)
	w.declare("payout", "delay(17h)", dispatcher.AtMostOnce, nil)
}

// happen lets something happen to a node, and some time pass.
func (w *world) happen(r *rand.Rand) {
	n := w.nodes[r.IntN(len(w.nodes))]
	what := []string{"nothing", "kill", "kill", "drain", "freeze", "freeze", "cut", "cut", "rate"}[r.IntN(9)]
	fmt.Fprintln(w.log, time.Since(w.begun), n.name, what)
	// Half of them are over before the node is declared dead.
	lasts := time.Duration(r.ExpFloat64() * float64(18*time.Hour))
	switch store := n.store; {
	case store == nil:
		n.start(int64(r.IntN(100)))
	case what == "kill":
		n.kill()
	case what == "drain":
		n.drain()
	case what == "freeze":
		store.freeze()
		time.AfterFunc(lasts, store.thaw)
	case what == "cut":
		store.set(&store.cut, true)
		time.AfterFunc(lasts, func() { store.set(&store.cut, false) })
	case what == "rate":
		store.rate.Store(int64(r.IntN(300)))
		time.AfterFunc(lasts, func() { store.rate.Store(20) })
	}
	<-time.After(time.Duration(r.ExpFloat64() * float64(12*time.Hour)))
}

// recover ends all faults.
func (w *world) recover() {
	for _, n := range w.nodes {
		if n.store == nil {
			n.start(0)
		}
		n.store.thaw()
		n.store.set(&n.store.cut, false)
		n.store.rate.Store(0)
	}
}
