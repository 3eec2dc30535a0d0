package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// act is a part of a run with its own database, nodes and verdict.
type act struct {
	name string
	options
	play func(*chaos, context.Context) error
}

// rollbackFault is the only fault of the second act: with others, the checker could not tell which
// fault lost a run.
const rollbackFault = "rollback"

// leastSecond is the shortest second act in seconds: enough for both choices.
const leastSecond = 75

// acts returns the acts of a run: first all faults except rollbacks, and then rollbacks, for half as long.
func (o options) acts() (acts []act) {
	given := listed(o.faults, append(slices.Clone(order), rollbackFault))
	others := slices.DeleteFunc(slices.Clone(given), func(fault string) bool { return fault == rollbackFault })
	if len(others) > 0 || len(given) == 0 {
		first := act{name: "faults", options: o, play: (*chaos).run}
		if len(given) > len(others) && o.faults != "" {
			first.faults = strings.Join(others, ",")
		}
		acts = append(acts, first)
	}
	if len(given) > len(others) {
		second := act{name: "rollbacks", options: o, play: (*chaos).runRollbacks}
		second.dir, second.seconds, second.look = filepath.Join(o.dir, "rollbacks"), max(o.seconds/2, leastSecond), ""
		acts = append(acts, second)
	}
	return acts
}

// runHere runs the acts in this process, and runs the checker after each.
func runHere(ctx context.Context, o options, w io.Writer) (err error) {
	for _, a := range o.acts() {
		fmt.Fprintf(w, "chaos: act %s, %d s\n", a.name, a.seconds)
		failed := a.perform(ctx, w)
		if err = errors.Join(err, failed); failed != nil && !errors.Is(failed, errVerdict) {
			break
		}
	}
	return err
}

// perform runs one act.
func (a act) perform(ctx context.Context, w io.Writer) error {
	if err := os.MkdirAll(a.dir, 0o755); err != nil {
		return err
	}
	c, err := newChaos(ctx, a.options)
	if err != nil {
		return err
	}
	if err := a.play(c, ctx); err != nil {
		return errors.Join(err, c.close())
	}
	check := exec.CommandContext(ctx, a.checker, "-database", c.database.URL(databaseName), "-dir", a.dir,
		"-dead-after", c.deadAfter.String(), "-drain", c.drain.String(), "-recovery", c.recovery.String())
	check.Stdout, check.Stderr = w, w
	err = check.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = errVerdict
	}
	return errors.Join(err, c.close())
}
