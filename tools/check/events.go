package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// event is a line of "go test -json"; see "go doc test2json".
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64
}

// tally counts the tests of one run of "go test -json", and subtests as tests.
type tally struct {
	Passed, Failed, Skipped int

	failures []string           // "package test" without the parents of subtests, and packages that failed as a whole
	skips    map[string]int     // tests by the reason that they print
	seconds  map[string]float64 // of top-level tests, by "package test"
}

// reasonOf finds the reason of a skipped test: t.Skip prints "    file.go:12: reason".
var reasonOf = regexp.MustCompile(`^\s*[\w.-]+\.go:\d+: (?:SKIPPED: )?(.*)$`)

// read counts the tests of a stream of events. It ignores lines that are no events, such as those
// of a program that does not compile: their command has failed.
func read(events io.Reader) (tally, error) {
	t := tally{skips: map[string]int{}, seconds: map[string]float64{}}
	said := map[string]string{} // the latest reason by test
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		if len(line) > 0 && line[0] == '{' && json.Unmarshal(line, &e) == nil {
			t.count(e, said)
		}
		if err == io.EOF {
			return t, nil
		}
		if err != nil {
			return t, err
		}
	}
}

func (t *tally) count(e event, said map[string]string) {
	name := nameOf(e)
	switch e.Action {
	case "output":
		if m := reasonOf.FindStringSubmatch(strings.TrimRight(e.Output, "\n")); m != nil && e.Test != "" {
			said[name] = m[1]
		}
		return
	case "pass", "fail", "skip":
	default:
		return
	}
	if e.Test == "" {
		if e.Action == "fail" && !slices.ContainsFunc(t.failures, func(f string) bool { return strings.HasPrefix(f, name) }) {
			t.failures = append(t.failures, strings.TrimSpace(name)+" (no test of its own failed)")
			t.Failed++
		}
		return
	}
	if !strings.Contains(e.Test, "/") {
		t.seconds[name] += e.Elapsed
	}
	switch e.Action {
	case "pass":
		t.Passed++
	case "skip":
		t.Skipped++
		t.skips[cmp.Or(said[name], "no reason given")]++
	case "fail":
		t.Failed++
		if !slices.ContainsFunc(t.failures, func(f string) bool { return strings.HasPrefix(f, name+"/") }) {
			t.failures = append(t.failures, name)
		}
	}
	delete(said, name)
}

// add adds the counts of another run.
func (t *tally) add(more tally) {
	t.Passed, t.Failed, t.Skipped = t.Passed+more.Passed, t.Failed+more.Failed, t.Skipped+more.Skipped
	t.failures = append(t.failures, more.failures...)
	if t.skips == nil {
		t.skips, t.seconds = map[string]int{}, map[string]float64{}
	}
	for reason, count := range more.skips {
		t.skips[reason] += count
	}
	maps.Copy(t.seconds, more.seconds)
}

// nameOf returns "package test", with the package as a folder of the repository.
func nameOf(e event) string { return strings.TrimPrefix(e.Package, module+"/") + " " + e.Test }

// print writes the slowest tests, the reasons for skips and, as the last line, the totals.
func (t *tally) print(w io.Writer) {
	byTime := slices.SortedFunc(maps.Keys(t.seconds), func(a, b string) int { return cmp.Compare(t.seconds[b], t.seconds[a]) })
	fmt.Fprintln(w, "\nslowest tests:")
	for _, name := range byTime[:min(10, len(byTime))] {
		fmt.Fprintf(w, "  %6.1f s  %s\n", t.seconds[name], name)
	}
	if len(t.skips) > 0 {
		fmt.Fprintln(w, "\nskipped tests, by reason:")
		byCount := slices.SortedFunc(maps.Keys(t.skips), func(a, b string) int {
			return cmp.Or(cmp.Compare(t.skips[b], t.skips[a]), cmp.Compare(a, b))
		})
		for _, reason := range byCount {
			fmt.Fprintf(w, "  %5d  %s\n", t.skips[reason], reason)
		}
	}
	if len(t.failures) > 0 {
		fmt.Fprintln(w, "\nfailed tests:")
		for _, name := range t.failures {
			fmt.Fprintf(w, "  %s\n", name)
		}
	}
	fmt.Fprintf(w, "\n%d passed, %d failed, %d skipped\n", t.Passed, t.Failed, t.Skipped)
}
