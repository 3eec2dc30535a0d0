package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func threeSteps() []step {
	return []step{
		{name: "a", paths: []string{"a/"}, minutes: budget - 6},
		{name: "b", paths: []string{"b/"}, minutes: budget - 6},
		{name: "c", paths: []string{"c/"}, minutes: 6},
	}
}

func TestRotaTakesStepsOfTheChangeAndTheLongestWaiting(t *testing.T) {
	t.Parallel()
	inTurn := map[string]int64{"a": 1, "b": 2, "c": 3}
	type row struct {
		files       []string
		waited      map[string]int64
		taken, left []string
	}
	for name, tt := range map[string]row{
		"no step was ever taken":      {taken: []string{"a"}},
		"one has waited longest":      {waited: map[string]int64{"a": 3, "b": 1, "c": 2}, taken: []string{"b"}},
		"the change touches another":  {files: []string{"c/x"}, waited: inTurn, taken: []string{"a", "c"}},
		"the change touches that one": {files: []string{"a/x"}, waited: inTurn, taken: []string{"a"}},
		"the change touches more than fit": {
			files: []string{"a/x", "b/x", "c/x"}, waited: map[string]int64{"a": 3, "b": 2, "c": 1}, taken: []string{"c", "b"}, left: []string{"a"},
		},
		"what does not fit leaves room for less": {
			files: []string{"b/x", "c/x"}, waited: inTurn, taken: []string{"a", "c"}, left: []string{"b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := decide(threeSteps(), tt.files, tt.waited)
			if diff := cmp.Diff(append([]string{}, tt.taken...), names(got.taken)); diff != "" {
				t.Errorf("taken (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(append([]string{}, tt.left...), names(got.left)); diff != "" {
				t.Errorf("left (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRotaReachesEachStep(t *testing.T) {
	t.Parallel()
	var history []commit
	for n := range int64(6) {
		history = append(history, commit{at: (n + 1) * slot, files: []string{"docs/x"}})
	}
	got := lastTaken(threeSteps(), history)
	if diff := cmp.Diff(map[string]int64{"a": 4, "b": 5, "c": 6}, got); diff != "" {
		t.Errorf("the slots in which the steps were last taken (-want +got):\n%s", diff)
	}
}

// The rota decides twice from the same history: the decision does not depend on the time.
func TestRotaFollowsFromTheCommit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	git := func(at int64, args ...string) {
		t.Helper()
		date := "@" + strconv.FormatInt(at, 10) + " +0000"
		command := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=n", "-c", "user.email=e@example.com"}, args...)...)
		command.Env = append(os.Environ(), "GIT_AUTHOR_DATE="+date, "GIT_COMMITTER_DATE="+date)
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	commitFile := func(at int64, file string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(strconv.FormatInt(at, 10)), 0o644); err != nil {
			t.Fatal(err)
		}
		git(at, "add", ".")
		git(at, "commit", "-q", "-m", file)
	}
	git(0, "init", "-q")
	commitFile(1*slot, "a/x")
	commitFile(4*slot, "c/x")
	commitFile(8*slot, "docs/x")
	commitFile(8*slot+60, "c/y")
	decided := func(base string) string {
		t.Helper()
		got, err := rota(context.WithoutCancel(t.Context()), dir, threeSteps(), base)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(names(got.taken), " ")
	}
	// The first change took a, the second b and c. The third change, as a run of its own, took a again.
	for base, want := range map[string]string{"": "a c", "HEAD~1": "b c", "HEAD~3": "b c", "0000000000000000000000000000000000000000": "a c"} {
		if got := decided(base); got != want {
			t.Errorf("base %q: the rota takes %q, want %q", base, got, want)
		}
	}
}
