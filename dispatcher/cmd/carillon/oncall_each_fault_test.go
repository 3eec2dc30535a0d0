package main

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/test/need"
)

// fault is a row of TestEachFaultRingsAlone: a fault of a fleet that is healthy otherwise.
type fault struct {
	name string
	// declares are things of the app of the fault, by their paths in the API. {target} is the URL of its target.
	declares map[string]string
	// respond serves the target; nil responds 200.
	respond http.HandlerFunc
	// inject causes what the declarations do not, and returns how to restore the fleet; nil for no such thing.
	inject func(w *vigil, app string) (restore func())
	// rings are the signals and the rules that are to be seen. Signals name the app of the fault "app".
	rings []string
	// may are consequences that depend on the time: rules, and what signals begin with.
	may []string
	// doctor is a text that doctor is to say while the fault lasts; empty for none.
	doctor string
}

// faultOf is what the names of the apps of faults begin with.
const faultOf = "fault-"

// Each fault, alone on a fleet that uses every policy, rings what names it within its time, and nothing else.
func TestEachFaultRingsAlone(t *testing.T) {
	need.Step(t, "oncall-faults")
	w := watch(t, 3*time.Second, "--poll-window=1s", "--handler-interval=1s", "--heartbeat=1s", "--dead-after=10s", "--breaker-failures=5",
		"--share-grace=500ms", "--secret-lifetime=1s")
	w.declareEveryPolicy()
	rows := 0
	for _, kind := range []struct {
		name   string
		faults []fault
	}{
		{"targets", targetFaults()}, {"secrets", secretFaults(t)}, {"jobs", jobFaults()}, {"nodes", nodeFaults()},
		{"database", databaseFaults()},
	} {
		rows += len(kind.faults)
		t.Run(kind.name, func(t *testing.T) {
			for i, f := range kind.faults {
				t.Run(f.name, func(t *testing.T) {
					w.t = t
					defer func() { w.t = w.root }()
					w.suffer(fmt.Sprint(faultOf, kind.name, i), f)
				})
			}
		})
	}
	if rows < 40 {
		t.Errorf("%d faults, want forty", rows)
	}
}

// suffer injects a fault, waits for what it rings, restores the fleet, and requires that nothing else has rung.
func (w *vigil) suffer(app string, f fault) {
	w.t.Helper()
	w.settle()
	w.forget()
	standing := w.metrics.ringing(w.t, true) // some gauges are counted once a minute, and an open circuit is forgotten later
	respond := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	if f.respond != nil {
		respond = f.respond
	}
	target := httptest.NewServer(respond)
	defer target.Close()
	defer target.CloseClientConnections()
	bodies := map[string]string{}
	for path, body := range f.declares {
		bodies[path] = strings.NewReplacer(
			"{target}", target.URL, "{host}", strings.TrimPrefix(target.URL, "http://"), "{app}", app).Replace(body)
	}
	if len(bodies) > 0 {
		w.writeSecret(app)
		w.put(app, bodies)
	}
	restore := func() {}
	if f.inject != nil {
		restore = f.inject(w, app)
	}
	w.requireRings(app, f, standing)
	if f.doctor != "" {
		out, errs, _ := carillon(w.t, healthy(), "doctor", "--database", w.urls["b"])
		if !strings.Contains(out+errs, f.doctor) {
			w.t.Errorf("doctor does not say %q: %s%s", f.doctor, out, errs)
		}
	}
	restore()
	if len(bodies) > 0 {
		w.remove(app, bodies)
	}
	w.settle()
	for _, text := range w.heard(app) {
		expected := slices.Contains(f.rings, text) || strings.HasSuffix(text, " of resolved") ||
			slices.ContainsFunc(f.may, func(begin string) bool { return strings.HasPrefix(text, begin) })
		if !expected && !lateness.MatchString(text) { // those depend on this machine, and TestHealthyFleetIsQuiet has them
			w.t.Errorf("it also rings: %s", text)
		}
	}
}

// remove deletes an app with what was declared in it.
func (w *vigil) remove(app string, bodies map[string]string) {
	w.t.Helper()
	ctx, n, existing := w.t.Context(), w.nodes["a"], client.Condition{Existing: true}
	del := map[string]func(name string) error{
		"alerts":    func(name string) error { return n.DeleteAlert(ctx, app, name, existing) },
		"jobs":      func(name string) error { return n.DeleteJob(ctx, app, name, existing) },
		"groups":    func(name string) error { return n.DeleteGroup(ctx, app, name, existing) },
		"calendars": func(name string) error { return n.DeleteCalendar(ctx, app, name, existing) },
	}
	for _, kind := range []string{"alerts", "jobs", "groups", "calendars"} {
		for _, path := range slices.Sorted(maps.Keys(bodies)) {
			if of, name, _ := strings.Cut(path, "/"); of == kind {
				if err := del[kind](name); err != nil {
					w.t.Errorf("delete %s: %v", path, err)
				}
			}
		}
	}
	if err := n.DeleteApp(ctx, app, existing); err != nil {
		w.t.Error(err)
	}
}

// heard are the texts of the signals since the fault began.
func (w *vigil) heard(app string) (texts []string) {
	for _, text := range w.texts(true) {
		switch name, rest, _ := strings.Cut(text, ":"); {
		case name == app:
			texts = append(texts, "app:"+rest)
		case !strings.HasPrefix(name, faultOf): // the history of a fault before
			texts = append(texts, text)
		}
	}
	return texts
}

// patienceWithFaults is how long a fault may need to ring.
const patienceWithFaults = patience

// requireRings waits for the signals and rules of a fault, and requires that no other rule fires if the fault lasts,
// except for those that stood before.
func (w *vigil) requireRings(app string, f fault, standing map[string]bool) {
	w.t.Helper()
	var missing []string
	isRule := func(text string) bool { return strings.HasPrefix(text, "Carillon") }
	deadline := time.Now().Add(patienceWithFaults)
	without := func(kind func(string) bool, seen []string) bool {
		missing = nil
		for _, want := range f.rings {
			if kind(want) && !slices.Contains(seen, want) {
				missing = append(missing, want)
			}
		}
		return len(missing) == 0
	}
	for w.look(); !without(func(text string) bool { return !isRule(text) }, w.heard(app)); w.look() {
		if time.Now().After(deadline) {
			w.t.Errorf("%q does not ring; got %q", missing, w.heard(app))
			return // the fault still has to end, or it would ring in each row that follows
		}
		elapse(100 * time.Millisecond)
	}
	var rules []string
	for {
		for from := len(w.metrics.scrapes); len(w.metrics.scrapes) <= from+recent; w.look() { // the fault lasts
			elapse(100 * time.Millisecond)
		}
		// Each may fire in another look: an app whose circuit is open fails only while it is probed.
		rules = slices.AppendSeq(rules, maps.Keys(w.metrics.ringing(w.t, true)))
		slices.Sort(rules)
		if rules = slices.Compact(rules); without(isRule, rules) {
			break
		}
		if time.Now().After(deadline) {
			w.t.Errorf("the rules %v do not fire, only %v", missing, rules)
			break
		}
	}
	for _, rule := range rules {
		if !slices.Contains(f.rings, rule) && !slices.Contains(f.may, rule) && !standing[rule] && !lateness.MatchString(rule) {
			w.t.Errorf("the rule %s fires, too", rule)
		}
	}
}

// settle waits until the fleet is healthy again: what stands is history. An objective burns for minutes after its cause.
func (w *vigil) settle() {
	w.t.Helper()
	history := []string{" failed", " misfires", " credentials", " paused", " objectives"}
	for deadline := time.Now().Add(patienceWithFaults); ; elapse(100 * time.Millisecond) {
		now := slices.DeleteFunc(w.look(), func(text string) bool {
			_, kind, _ := strings.Cut(text, ":")
			return slices.ContainsFunc(history, func(h string) bool { return strings.HasPrefix(kind, h) }) || w.excused(text) ||
				strings.HasSuffix(kind, " objective")
		})
		if len(now) == 0 {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("the fleet is not healthy: %q", now)
		}
	}
}
