package store

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// UpcomingTriggers lists triggers that are due before an instant, by their ids.
func (s *Store) UpcomingTriggers(ctx context.Context, apps []string, until time.Time, after int64, limit int) (
	[]view.UpcomingTrigger, error,
) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	l := looker{Store: s}
	for _, app := range apps {
		l.apps = append(l.apps, run.AppID(app))
	}
	args := statementArgs{after, until.UnixMilli()}
	// $1 last id of the page before, $2 until
	list := `SELECT ` + triggerColumns + `, j.app, coalesce(nullif(j.origin, ''), j.name) FROM (SELECT c.* FROM trigger_clock AS c
			WHERE c.id > $1 AND c.off = 0 AND c.due_at < $2` + l.ofApps(`c.app_id`, &args) + ` ORDER BY c.id LIMIT ` + strconv.Itoa(limit) + `) AS c
		JOIN triggers AS t ON t.id = c.id JOIN jobs AS j ON j.id = t.job_id ORDER BY c.id`
	found, err := db.Collect(ctx, s.db.Read, func(row db.Scanner) (t view.UpcomingTrigger, err error) {
		var job string
		one, err := scanTrigger(db.WiderRow{Scanner: row, After: []any{&t.App, &job}})
		t.ID, t.Trigger = one.id, one.Trigger
		t.Identity = dispatcher.Identity(t.App, job, cmp.Or(one.Origin, one.name))
		return t, err
	}, list, args...)
	if err != nil {
		return nil, fmt.Errorf("list upcoming triggers: %w", err)
	}
	return found, nil
}
