package store

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// dueTriggers is one page of the window.
// $1 until, $3 due and $4 trigger of the last row, $5 limit, $6 number of apps
var dueTriggers = ` SELECT ` + triggerColumns + ` FROM triggers AS t
	WHERE t.state = 'waiting' AND NOT t.paused AND NOT t.job_paused AND t.due_at IS NOT NULL
		AND t.due_at <= $1 AND (t.due_at, t.id) > ($3, $4)
		AND (t.app_id IN (SELECT id FROM apps WHERE enabled AND ($6 = 0 OR name IN (SELECT name FROM b)))) = TRUE`

const onTime = ` AND t.due_at + t.misfire_after >= (SELECT now FROM n)`

const tooLate = ` AND t.due_at + t.misfire_after < (SELECT now FROM n)`

const dueOrder = ` ORDER BY t.due_at, t.id LIMIT $5`

// Due reads one page of the triggers that are due in the window, or overdue.
func (s *store) Due(ctx context.Context, query dispatcher.DueQuery) ([]dispatcher.DueTrigger, error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	page := s.hot.due
	if query.Overdue {
		page = s.hot.overdue
	}
	after := int64(-1)
	if !query.AfterTime.IsZero() {
		after = query.AfterTime.UnixMilli()
	}
	args := append([]any{query.Until.UnixMilli(), orZero(query.Now), after, query.AfterID, int64(query.Limit), int64(len(query.Apps))},
		s.batch(append([]string{}, query.Apps...))...)
	var due []dispatcher.DueTrigger
	_, err := s.run(ctx, page, args, func(row scanner) error {
		t, err := scanTrigger(row)
		due = append(due, t.due())
		return err
	})
	return due, err
}

// OverdueApps returns the apps that have overdue triggers for a node of these labels.
func (s *store) OverdueApps(ctx context.Context, apps []string, labels dispatcher.Labels, now time.Time) ([]string, error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	names, served, err := s.adoptLists(ctx, apps, labels)
	if err != nil {
		return nil, fmt.Errorf("look for overdue triggers: %w", err)
	}
	// $1 now, $2 number of apps, from $3 on: adoptColumns
	query := s.rows(1, 3, "", adoptColumns...) + ` SELECT DISTINCT a.name FROM triggers AS t JOIN apps AS a ON a.id = t.app_id
		WHERE t.state = 'waiting' AND NOT t.paused AND NOT t.job_paused AND t.due_at IS NOT NULL AND t.due_at <= (SELECT now
		FROM n)` + tooLate + `
			AND a.enabled AND ($2 = 0 OR a.name IN (SELECT name FROM b)) AND (t.node_labels = '' OR t.node_labels IN (SELECT labels FROM b))`
	return collect(ctx, s.read, scanText, query, append([]any{orZero(now), int64(len(apps))}, s.batch(names, served)...)...)
}

// upcomingTriggers counts what the window poll would read, up to a limit, by the same index. Of each entry
// it reads the trigger, for its app. 1,000,000 triggers, 250,000 of them due by $1:
//
//	Limit (actual time=99..234 rows=100000)
//	  ->  Bitmap Heap Scan on triggers t (actual rows=100000)
//	        Filter: (hashed SubPlan 1)            -- the app is enabled
//	        ->  Bitmap Index Scan on triggers_due (actual time=87 rows=250239)
//	Buffers: shared hit=17604
//
// Once a minute, that is less than half a percent of one core.
// $1 until, $2 limit, $3 number of apps
const upcomingTriggers = ` SELECT count(*) FROM (SELECT 1 FROM triggers AS t
	WHERE t.state = 'waiting' AND NOT t.paused AND NOT t.job_paused AND t.due_at IS NOT NULL AND t.due_at <= $1
		AND (t.app_id IN (SELECT id FROM apps WHERE enabled AND ($3 = 0 OR name IN (SELECT name FROM b)))) = TRUE
	LIMIT $2) AS u`

// Upcoming counts the triggers that are due by until.
func (s *store) Upcoming(ctx context.Context, apps []string, until time.Time, limit int) (int, error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	query := s.rows(0, 4, "", nameColumns...) + upcomingTriggers
	args := append([]any{until.UnixMilli(), int64(limit), int64(len(apps))}, s.batch(append([]string{}, apps...))...)
	n, _, err := first(ctx, s.read, scanInt, query, args...)
	if err != nil {
		return 0, fmt.Errorf("count upcoming triggers: %w", err)
	}
	return int(n), nil
}

// due returns a trigger as the engine plans it.
func (t triggerRow) due() dispatcher.DueTrigger {
	return dispatcher.DueTrigger{
		ID: t.id, JobID: t.jobID, AppID: t.appID, Revision: t.revision, CalendarRevision: t.calendars,
		NodeLabels: dispatcher.ParseLabels(t.nodeLabels), Timeout: t.timeout.Std(),
		Spec: t.Spec("", t.AnchorAt), Calendar: t.Calendar,
		MisfireAfter: t.MisfireAfter.Std(), MisfirePolicy: t.MisfirePolicy, CatchUpWindow: t.CatchUpWindow.Std(),
		PrevFireTime: zeroable(t.PrevFireTime), NextFireTime: zeroable(t.NextFireTime), DueAt: zeroable(t.DueAt),
	}
}
