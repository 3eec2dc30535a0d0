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

// The rota decides which steps a run of .ci/run takes next to those that it always takes: the steps that the change has
// to do with, and the one that has waited longest. All of it follows from the commit and its history, so that a run
// can be repeated; no clock and no state of a machine has a say.
//
// History is cut into slots of three hours by the dates of its commits. Each slot that has commits counts as one
// run, for which the same decision is made, from the oldest on: so it is known when each step was last taken. The
// change of a run is what it is given as base, or else the commits of the three hours before its newest one.

// slot is the time, in seconds, within which commits count as one change.
const slot = 3 * 60 * 60

// budget bounds the minutes of the steps that one run takes from the rota. Steps beyond it wait for a later run, where they
// come first.
const budget = 14

// commit is one commit of the history, and the files it changed.
type commit struct {
	at    int64 // Unix seconds, of the committer
	files []string
}

// choice is what the rota decides for one run.
type choice struct {
	taken []step
	left  []step // that the change has to do with, beyond the budget
}

// decide returns what the run of a change takes. waited is when each step was last taken; greater is later. A step that
// was never taken has waited longest, and of two the first of the table.
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

// lastTaken goes through the history, oldest first, and returns the slot in which each step was last taken.
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

// rota decides for the newest commit of a checkout. base is the commit before the change; if the checkout does not know it,
// as after a forced push, it is as if there were none.
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

// historyOf returns the commits of a range with their files, the oldest first. It returns all of them: what a part of the
// history decides would depend on where it begins. Of a merge, it has the commits that were merged and not the merge.
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
