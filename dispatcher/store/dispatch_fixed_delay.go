package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/carillon-dev/carillon/dispatcher"
)

func (s *store) EndedDelays(ctx context.Context, ids []int64, limit int) ([]dispatcher.EndedDelay, error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	find, args := s.hot.ended, []any{int64(limit)}
	if len(ids) > 0 {
		find, args = s.hot.endedOf, append(args, s.batch(slices.Compact(slices.Sorted(slices.Values(ids))))...)
	}
	var all []dispatcher.EndedDelay
	_, err := s.run(ctx, find, args, func(row scanner) error {
		var ended int64
		t, err := scanTrigger(wider{scanner: row, after: []any{&ended}})
		one := dispatcher.EndedDelay{DueTrigger: t.due(), EndedAt: instant(ended), Fired: t.Fired}
		one.Spec.Anchor = one.EndedAt
		all = append(all, one)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read fixed delays: %w", err)
	}
	return all, nil
}

func (s *store) ScheduleNext(ctx context.Context, delayed []dispatcher.DelayedFire) error {
	if len(delayed) == 0 {
		return nil
	}
	sorted := slices.SortedFunc(slices.Values(delayed), func(a, b dispatcher.DelayedFire) int {
		return cmp.Compare(a.TriggerID, b.TriggerID)
	})
	var id, revision, calendars, prev, anchor []int64
	var next, due []*int64
	for _, one := range sorted {
		id, revision, calendars = append(id, one.TriggerID), append(revision, one.Revision), append(calendars, one.CalendarRevision)
		prev, anchor = append(prev, one.Prev.UnixMilli()), append(anchor, one.Anchor.UnixMilli())
		next, due = append(next, orNull(one.Next)), append(due, dueOrNull(one.Next, one.Due))
	}
	if _, err := s.exec(ctx, s.hot.scheduleNext, s.batch(id, revision, calendars, prev, anchor, next, due)); err != nil {
		return fmt.Errorf("arm %d fixed delays: %w", len(sorted), err)
	}
	return nil
}
