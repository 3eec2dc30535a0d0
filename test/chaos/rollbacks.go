package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// goesOn is how long jobs may take after a rollback until each has sent another request: until its
// slots are free, older hanging requests have ended, and blocked fires have run.
func (p pace) goesOn() time.Duration { return p.recovery + 11300*time.Millisecond }

// rollbackTakes is roughly the duration of one rollback, from its dump to the end of goesOn.
func (p pace) rollbackTakes() time.Duration { return 10*time.Second + p.deadAfter + p.goesOn() }

// runRollbacks makes the database lose commits repeatedly, while jobs of every concurrency policy fire.
func (c *chaos) runRollbacks(ctx context.Context) (err error) {
	begun := time.Now()
	if err := c.prepare(ctx); err != nil {
		return err
	}
	if err := c.declared.create(ctx, "north", "south"); err != nil {
		return err
	}
	var jobs []job
	for _, j := range append(plain(), c.declared.bounded()...) {
		if j.app != history.Noisy {
			jobs = append(jobs, j)
		}
	}
	if err := all(ctx, jobs, func(ctx context.Context, j job) error { return c.declared.put(ctx, j, true) }); err != nil {
		return err
	}
	log, err := history.Create(c.dir, history.Rollbacks, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	deadline := begun.Add(time.Duration(c.seconds)*time.Second - c.settle)
	faulty, end := context.WithDeadline(ctx, deadline)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer end()
	watching.Go(func() { c.watchMachine(faulty) })
	// Both choices in turn, first with nodes that detect the rollback themselves, and then each with the other method.
	for i := 0; i == 0 || time.Now().Add(c.rollbackTakes()).Before(deadline); i++ {
		done := history.Rollback{Lost: fmt.Sprintf("lost_%d", i+1), Choice: []string{history.Skip, history.Replay}[i%2],
			Restarted: (i+i/2)%2 == 1}
		pause(ctx, c.between(time.Second, 3*time.Second))
		if err := c.rollBack(ctx, &done); err != nil {
			return fmt.Errorf("rollback %d, %s: %w", i+1, done.Choice, err)
		}
		if err := log.Append(done); err != nil {
			return err
		}
	}
	return errors.Join(append(c.troubles, c.heal(ctx))...)
}

// dumped is the name of the copy that replaces the database.
const dumped = "dumped"

// rollBack copies the database, lets the nodes continue, replaces it by the copy, and carries out a choice.
func (c *chaos) rollBack(ctx context.Context, r *history.Rollback) error {
	var err error
	if r.Dumped, err = c.database.copyTo(ctx, dumped); err != nil {
		return err
	}
	c.note("database copied", "", r.Dumped, time.Now())
	pause(ctx, c.between(3*time.Second, 6*time.Second))
	if r.Restarted {
		for _, n := range c.nodes {
			c.stop(n)
		}
	}
	if r.Cut, err = c.database.replaceBy(ctx, dumped, r.Lost); err != nil {
		return err
	}
	if r.Restarted {
		if err := c.restart(ctx); err != nil {
			return err
		}
	}
	if err := c.within(ctx, "no node noticed it", `SELECT count(*) = 0 FROM installation WHERE rolled_back_at IS NOT NULL`); err != nil {
		return err
	}
	if err := c.within(ctx, "not all nodes paused",
		fmt.Sprintf(`SELECT count(*) < %d FROM nodes WHERE state = 'paused' AND heartbeat_at > %d`, len(c.nodes),
			r.Cut.UnixMilli())); err != nil {
		return err
	}
	pause(ctx, c.deadAfter/2) // a node notices it at its next heartbeat
	r.Quiet = time.Now()
	pause(ctx, c.between(500*time.Millisecond, 1500*time.Millisecond))
	if err := c.choose(ctx, r); err != nil {
		return err
	}
	if err := c.within(ctx, "the choice was not carried out",
		`SELECT count(*) > 0 FROM installation WHERE rolled_back_at IS NOT NULL`); err != nil {
		return err
	}
	r.Settled = time.Now()
	c.note("rollback, "+r.Choice, "", r.Cut, r.Settled)
	pause(ctx, c.goesOn())
	r.Until = time.Now()
	return ctx.Err()
}

// restart follows the manual for a restore: it declares the rollback, and starts the nodes.
func (c *chaos) restart(ctx context.Context) error {
	command := exec.CommandContext(ctx, c.program, "rollback", "declare", "--reason", "chaos restored a dump")
	command.Env = append(os.Environ(), "CARILLON_DATABASE="+c.database.URL(databaseName))
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("rollback declare: %w: %s", err, output)
	}
	for _, n := range c.nodes {
		if err := n.start(""); err != nil {
			return err
		}
	}
	return nil
}

// choose makes a node carry out the choice.
func (c *chaos) choose(ctx context.Context, r *history.Rollback) error {
	var last error
	for patience := time.Now().Add(c.settle); time.Now().Before(patience); pause(ctx, 50*time.Millisecond) {
		r.Chosen = time.Now()
		response, err := c.declared.ask(ctx, c.nodes[c.intN(len(c.nodes))], http.MethodPost, "/v1/rollback/"+r.Choice, "*", nil)
		if err == nil && response.status < 300 {
			return nil
		}
		last = errors.Join(err, fmt.Errorf("%d: %s", response.status, response.body))
	}
	return fmt.Errorf("choose: %w", last)
}

// within waits until a condition of the database is false, at most as long as a run may take to settle.
func (c *chaos) within(ctx context.Context, problem, condition string) error {
	for patience := time.Now().Add(c.settle); time.Now().Before(patience); pause(ctx, 50*time.Millisecond) {
		if n, err := c.database.count(ctx, databaseName, "SELECT CASE WHEN ("+condition+") THEN 1 ELSE 0 END"); err == nil && n == 0 {
			return nil
		}
	}
	return errors.New(problem)
}
