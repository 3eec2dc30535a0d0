//go:build chaos

package failpoint

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Enabled tells whether this program has failpoints.
const Enabled = true

// action is what a point does at its nth visit.
type action struct {
	signal syscall.Signal
	nth    int64
	within time.Duration
	visits atomic.Int64
}

// armed is read once: a process dies at its points and is started again with others.
var armed = sync.OnceValue(func() map[Point]*action {
	actions, err := parse(os.Getenv("CHAOS"))
	if err != nil {
		panic(err) // a chaos run that injects nothing would prove nothing
	}
	return actions
})

// parse reads the value of CHAOS.
func parse(text string) (map[Point]*action, error) {
	actions := map[Point]*action{}
	for item := range strings.SplitSeq(text, ";") {
		if item == "" {
			continue
		}
		name, rest, _ := strings.Cut(item, ":")
		a := &action{nth: 1, within: 2 * time.Millisecond}
		for i, word := range strings.Split(rest, ",") {
			key, value, _ := strings.Cut(word, "=")
			var err error
			switch {
			case i == 0 && word == "kill":
				a.signal = syscall.SIGKILL
			case i == 0 && word == "stop":
				a.signal = syscall.SIGSTOP
			case i > 0 && key == "nth":
				a.nth, err = strconv.ParseInt(value, 10, 64)
			case i > 0 && key == "within":
				a.within, err = time.ParseDuration(value)
			default:
				err = fmt.Errorf("it is none of kill, stop, nth=N, within=DURATION")
			}
			if err != nil {
				return nil, fmt.Errorf("CHAOS: %q: %q: %w", item, word, err)
			}
		}
		actions[Point(name)] = a
	}
	return actions, nil
}

// due counts a visit, and returns what is to be done at it, nil for nothing.
func due(p Point) *action {
	a := armed()[p]
	if a == nil || a.visits.Add(1) != a.nth {
		return nil
	}
	return a
}

func (a *action) act() { _ = syscall.Kill(os.Getpid(), a.signal) }

// Hit acts if the point is due to act.
func Hit(p Point) {
	if a := due(p); a != nil {
		a.act()
		// The signal may reach the process by another thread. Nothing happens behind this point.
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // for the kernel, which nobody can wait for
	}
}

// During is Hit for a stretch of time that begins now: it returns at once, and the action
// comes a little later.
func During(p Point) {
	if a := due(p); a != nil {
		time.AfterFunc(rand.N(a.within+1), a.act)
	}
}
