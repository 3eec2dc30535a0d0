package store

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/backoff"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// An end that cannot be followed, because of what is stored of it, its job or an alert, must not hold back all that end after it.
// So a page that fails is followed end by end, and an end that fails alone is set aside until it is tried again.

// followSingly follows each end of a page in a transaction of its own.
func (s *Store) followSingly(ctx context.Context, page *endsPage) (all dispatcher.FollowedEnds, err error) {
	now := page.Now
	if now.IsZero() {
		if now, err = s.db.Now(ctx, s.db.Read); err != nil {
			return all, err
		}
	}
	ends, err := page.read(ctx, s.db.Flavor, s.db.Read, "", now)
	if err != nil {
		return all, err
	}
	all.More, all.Latest = page.more(ends), latestEnds(ends)
	for _, end := range ends {
		one, err := s.followOne(ctx, &end, page.Now)
		if err != nil && !s.ofStored(ctx, err) {
			return all, err
		}
		if err != nil {
			if one.SetAside, err = s.setEndAside(ctx, &end, err, page.Now); err != nil {
				return all, err
			}
		}
		all.Ends, all.Queued = all.Ends+one.Ends, all.Queued+one.Queued
		all.SetAside = append(all.SetAside, one.SetAside...)
	}
	return all, nil
}

// keyArgs are the parameters of oneEnd.
func (e *pendingEnd) keyArgs() []any {
	return []any{e.endedAt.UnixMilli(), e.key.TriggerID, e.key.ScheduledAt.UnixMilli(), int64(e.key.Kind.Code())}
}

// followOne follows an end, unless another node has followed it or does so just now.
func (s *Store) followOne(ctx context.Context, end *pendingEnd, now time.Time) (done dispatcher.FollowedEnds, err error) {
	err = s.change(ctx, input.Change{Now: now}, func(ctx context.Context, t *tx) error {
		ends, err := db.Collect(ctx, t, scanPendingEnd, pendingEnds(oneEnd+t.LockRows(db.LockToDelete+db.SkipLockedRows)), end.keyArgs()...)
		if err == nil {
			done, err = followEnds(ctx, t, ends)
		}
		return err
	})
	if err != nil {
		return dispatcher.FollowedEnds{}, err
	}
	return done, nil
}

// setAside returns what people are told of an end that is set aside.
func (e *pendingEnd) setAside() dispatcher.SetAside {
	return dispatcher.SetAside{Work: dispatcher.WorkFollow, App: e.app, Job: e.job, Run: e.run(), Problem: e.problem, Tries: e.tries,
		TryAt: db.Instant(e.tryAt)}
}

// setEndAside sets an end aside that could not be followed; none: another node has followed it meanwhile.
func (s *Store) setEndAside(ctx context.Context, end *pendingEnd, why error, now time.Time) (aside []dispatcher.SetAside, err error) {
	end.problem = problemOf(why)
	tries := end.tries
	err = s.change(ctx, input.Change{Now: now}, func(ctx context.Context, t *tx) error {
		aside, end.tries = nil, tries
		there, err := noteAside(ctx, t, end, asidePauses)
		if there {
			aside = append(aside, end.setAside())
		}
		return err
	})
	for _, one := range aside {
		s.asides.report(ctx, one)
	}
	return aside, err
}

// noteAside notes that an end is set aside for its problem, and reports whether it is still pending.
func noteAside(ctx context.Context, t *tx, end *pendingEnd, pauses backoff.Pauses) (bool, error) {
	end.tries++
	end.tryAt = t.now.Add(pauses.After(end.tries)).UnixMilli()
	// $1 to $4: the key, $5 tries, $6 when it is tried again, $7 problem, $8 whether alerts have had it
	const note = `UPDATE pending_ends SET tries = $5, try_at = $6, problem = $7, judged = $8
		WHERE ended_at = $1 AND trigger_id = $2 AND scheduled_at = $3 AND kind = $4`
	n, err := t.execute(ctx, note, append(end.keyArgs(), end.tries, end.tryAt, end.problem, end.judged)...)
	return n > 0, err
}
