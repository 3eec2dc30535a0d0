//go:build chaos

package failpoint

import (
	"errors"
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

// Enabled reports whether this program has failpoints.
const Enabled = true

// action is the action of a point at its nth visit.
type action struct {
	signal syscall.Signal // 0: hang
	nth    int64
	within time.Duration
	visits atomic.Int64
}

// armed reads CHAOS once, because a process dies at its points and is started again with others.
var armed = sync.OnceValue(func() map[Point]*action {
	actions, err := parse(os.Getenv("CHAOS"))
	if err != nil {
		panic(err) // a chaos run without faults would prove nothing
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
			case i == 0 && word == "hang":
			case i > 0 && key == "nth":
				a.nth, err = strconv.ParseInt(value, 10, 64)
			case i > 0 && key == "within":
				a.within, err = time.ParseDuration(value)
			default:
				err = errors.New("not one of kill, stop, hang, nth=N, within=DURATION")
			}
			if err != nil {
				return nil, fmt.Errorf("CHAOS: %q: %q: %w", item, word, err)
			}
		}
		actions[Point(name)] = a
	}
	return actions, nil
}

// due counts a visit and returns its action, or nil if there is none.
func due(p Point) *action {
	a := armed()[p]
	if a == nil || a.visits.Add(1) != a.nth {
		return nil
	}
	return a
}

func (a *action) act() { _ = syscall.Kill(os.Getpid(), a.signal) }

// Hit counts a visit of the point, and acts if the action is due.
func Hit(p Point) {
	if a := due(p); a != nil {
		if a.signal == 0 {
			select {}
		}
		a.act()
		// The signal may arrive through another thread. Until then, nothing after this point may run.
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // there is no way to wait for the signal
	}
}

// During is Hit for a point that is a stretch of time and begins now. It returns at once, and the
// action happens a little later.
func During(p Point) {
	if a := due(p); a != nil {
		time.AfterFunc(rand.N(a.within+1), a.act)
	}
}
