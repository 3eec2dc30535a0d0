package definitions

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

// RollbackEffect counts what the choice about the unsettled rollback decides about: it computes the moves of a skip
// without writing them, and counts the runs that a skip would end.
func (s *Store) RollbackEffect(ctx context.Context, now time.Time) (effect dispatcher.RollbackEffect, err error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	if now, err = s.db.OrClock(ctx, now); err != nil {
		return effect, err
	}
	r, found, err := dispatch.Unsettled(ctx, s.db.Read)
	if err != nil || !found {
		return effect, err
	}
	apps := map[string]*dispatcher.RollbackApp{}
	of := func(name string) *dispatcher.RollbackApp {
		if apps[name] == nil {
			apps[name] = &dispatcher.RollbackApp{App: name}
		}
		return apps[name]
	}
	// $3 now
	page, err := s.reschedule(ctx, `c.next_fire_time <= $3`, []any{0, dispatcher.MostRollbackCounted, now.UnixMilli()},
		func(job dispatcher.Job, name string, calendars dispatcher.Calendars) (dispatcher.Trigger, []dispatcher.Misfire) {
			return dispatcher.SkipDue(job, name, calendars, now, "")
		})
	if err != nil {
		return effect, err
	}
	for _, trigger := range page.triggers {
		app := of(trigger.app)
		app.Triggers++
		for _, missed := range trigger.missed {
			app.Fires += missed.Count
		}
	}
	runs, err := s.liveAt(ctx, r.At)
	if err != nil {
		return effect, err
	}
	for _, name := range runs {
		of(name).Runs++
	}
	effect.More = len(page.triggers) >= dispatcher.MostRollbackCounted || len(runs) >= dispatcher.MostRollbackCounted
	for _, app := range apps {
		effect.Apps = append(effect.Apps, *app)
	}
	slices.SortFunc(effect.Apps, func(a, b dispatcher.RollbackApp) int { return strings.Compare(a.App, b.App) })
	// $1 when it was noticed
	const latest = `SELECT max(r.scheduled_at) FROM runs AS r WHERE r.scheduled_at <= $1`
	at, _, err := db.First(ctx, s.db.Read, db.ScanNullInt, latest, r.At.UnixMilli())
	if at != nil {
		effect.LatestRunAt = new(db.Instant(*at))
	}
	return effect, err
}

// liveAt returns the apps of the runs that a skip of a rollback ends, one for each run, at most MostRollbackCounted.
func (s *Store) liveAt(ctx context.Context, noticed time.Time) ([]string, error) {
	most := strconv.Itoa(dispatcher.MostRollbackCounted)
	// $1 when it was noticed
	live := `SELECT a.name FROM (SELECT * FROM (SELECT r.job_id FROM live_runs AS r WHERE r.scheduled_at <= $1 AND r.node <> -3
			LIMIT ` + most + `) AS l UNION ALL
		SELECT c.job_id FROM (` + dispatch.AnyClaim(s.db.Flavor) + `) AS c WHERE c.claimed_at <= $1) AS r
		JOIN jobs AS j ON j.id = r.job_id JOIN apps AS a ON a.id = j.app_id LIMIT ` + most
	apps, err := db.ReadRows(ctx, s.db.Read, func(name *string) []any { return []any{name} }, live, noticed.UnixMilli())
	if err != nil {
		return nil, fmt.Errorf("count the live runs of a rollback: %w", err)
	}
	return apps, nil
}
