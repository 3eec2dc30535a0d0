package main

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// The rota decides which steps a run of .ci/run takes in addition to the fixed ones: the steps that the
// change concerns, and the step that has waited longest. The decision depends only on the commit and its
// history, so a run can be repeated; it uses no clock and no state of the machine.
//
// History is cut into slots of three hours by commit date. Each slot with commits counts as one run. The rota
// makes the same decision for each, from the oldest on, and so knows when each step was last taken. The
// change of a run starts at its base, or else covers the commits of the three hours before its newest one.

// slot is the time, in seconds, during which commits count as one change.
const slot = 3 * 60 * 60

// budget bounds the minutes of the steps that one run takes from the rota. Steps beyond it wait for a later run, where they
// come first.
const budget = 14

// commit is one commit of the history with its changed files.
type commit struct {
	at    int64 // Unix seconds, of the committer
	files []string
}

// choice is the decision of the rota for one run.
type choice struct {
	taken []step
	left  []step // steps of the change that exceed the budget
}

// decide returns the steps for the run of a change. waited has the time at which each step was last taken;
// greater is later. A step that was never taken has waited longest; the order of the table breaks ties.
func decide(table []step, files []string, waited map[string]int64) choice {
	order := slices.Clone(table)
	slices.SortStableFunc(order, func(a, b step) int { return cmp.Compare(waited[a.name], waited[b.name]) })
	var taken choice
	minutes, longest := 0, true
	for _, s := range order {
		touched := slices.ContainsFunc(files, s.touchedBy)
		switch {
		case !touched && !longest:
		case longest || minutes+s.minutes <= budget:
			taken.taken, minutes = append(taken.taken, s), minutes+s.minutes
		default:
			taken.left = append(taken.left, s)
		}
		longest = false
	}
	return taken
}

// lastTaken walks through the history, oldest first, and returns the slot in which each step was last taken.
func lastTaken(table []step, history []commit) map[string]int64 {
	taken := map[string]int64{}
	for len(history) > 0 {
		now := history[0].at / slot
		var files []string
		for len(history) > 0 && history[0].at/slot <= now {
			files = append(files, history[0].files...)
			history = history[1:]
		}
		for _, s := range decide(table, files, taken).taken {
			taken[s.name] = now
		}
	}
	return taken
}

// rota decides for the newest commit of a checkout. base is the commit before the change; an
// unknown base, as after a forced push, is ignored.
func rota(ctx context.Context, root string, table []step, base string) (choice, error) {
	history, err := historyOf(ctx, root, "HEAD")
	if err != nil {
		return choice{}, err
	}
	newest := history[len(history)-1].at
	change := slices.IndexFunc(history, func(c commit) bool { return c.at > newest-slot })
	if exec.CommandContext(ctx, "git", "-C", root, "cat-file", "-e", base+"^{commit}").Run() == nil {
		since, err := historyOf(ctx, root, base+"..HEAD")
		if err != nil {
			return choice{}, err
		}
		change = len(history) - len(since)
	}
	var files []string
	for _, c := range history[change:] {
		files = append(files, c.files...)
	}
	return decide(table, files, lastTaken(table, history[:change])), nil
}

// historyOf returns all commits of a range with their files, oldest first. A part of the history would make
// the decision depend on where it begins. For a merge, it has the merged commits and not the merge.
func historyOf(ctx context.Context, root, revisions string) ([]commit, error) {
	log := exec.CommandContext(ctx, "git", "-C", root, "log", "--reverse", "--no-merges", "--no-renames", "--name-only",
		"--format=%x00%ct", revisions)
	out, err := log.Output()
	if err != nil {
		return nil, fmt.Errorf("git log %s: %w", revisions, err)
	}
	var history []commit
	for _, text := range strings.Split(string(out), "\x00")[1:] {
		date, files, _ := strings.Cut(strings.TrimSpace(text), "\n\n")
		at, err := strconv.ParseInt(date, 10, 64)
		if err != nil {
			return nil, err
		}
		history = append(history, commit{at: at, files: strings.Split(files, "\n")})
	}
	if len(history) == 0 && revisions == "HEAD" {
		return nil, fmt.Errorf("the checkout has no history")
	}
	return history, nil
}
