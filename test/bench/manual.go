package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// manualRuns are requested one after the other within manualTime.
const (
	manualRuns = 267
	manualTime = 5 * time.Second
)

// manual measures how often a node polls while runs are requested by hand. A request changes no
// trigger, so the node needs only the regular polls of each window.
func (b *bench) manual(ctx context.Context) (err error) {
	d := idleJobs("manual", 1)
	if err := declare(ctx, b.database, d); err != nil {
		return err
	}
	n, err := startNode(ctx, nodeOptions{database: b.database, latency: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	s := n.store
	if b.pool != nil { // like another node or the API
		if s, err = store.Open(ctx, b.database, store.Options{Options: db.Options{AlongsideNode: true}}); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
	}
	if err := pause(ctx, settling); err != nil { // let the polls of the start pass
		return err
	}
	before, err := n.totals()
	if err != nil {
		return err
	}
	begun := time.Now()
	for i := range manualRuns {
		if err := pause(ctx, time.Until(begun.Add(manualTime*time.Duration(i)/manualRuns))); err != nil {
			return err
		}
		if _, err := s.RequestRun(ctx, "manual", "job-0", nil, input.Change{Actor: "bench"}); err != nil {
			return fmt.Errorf("request run %d: %w", i, err)
		}
	}
	if err := n.await(ctx, manualRuns); err != nil {
		return err
	}
	after, err := n.totals()
	if err != nil {
		return err
	}
	r := Result{Bench: "manual", Database: b.kind, Unit: fmt.Sprintf("polls during %d manual runs", manualRuns),
		Value: after.polls - before.polls, Statements: some((after.statements - before.statements) / manualRuns)}
	r.lateness(n.takeLatencies())
	return b.Report(r)
}
