package main

import (
	"context"
	"fmt"
)

// lockRounds is the number of watched adoptions: a sample of the locks catches only some.
const lockRounds = 200

// adoptionLocks counts the largest number of locks of an adoption: each partition that a statement
// reads costs at least one, and the whole server has room for some thousands.
func (w *world) adoptionLocks(ctx context.Context, benches [2]*bench) error {
	var most [2]int
	for i, b := range benches {
		done := make(chan error, 1)
		go func() {
			for range lockRounds {
				if err := b.emptyAdoption(ctx, false); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		for over := false; !over; {
			select {
			case err := <-done:
				if err != nil {
					return err
				}
				over = true
			default:
			}
			// $1 database
			const held = `SELECT coalesce(max(n), 0)::int FROM (SELECT count(*) AS n FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
				WHERE a.datname = $1 AND a.application_name = 'carillon' GROUP BY a.pid) AS p`
			var n int
			if err := w.admin.QueryRow(ctx, held, b.name).Scan(&n); err != nil {
				return err
			}
			most[i] = max(most[i], n)
		}
	}
	if most[1] == 0 {
		return fmt.Errorf("no look at the locks met one of %d adoptions", lockRounds)
	}
	w.figures.compare("adoption_locks", "count", float64(most[0]), float64(most[1]))
	return nil
}
