package definitions

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// broken returns the jobs and alerts of an app that are outside bounds it is about to get; nil: none, or the bounds stay as they are.
func (s *Store) broken(ctx context.Context, t *dispatch.Tx, app string, before, next target.Bounds) (*access.Breaks, error) {
	next = next.WithDefaults(app)
	if reflect.DeepEqual(before.WithDefaults(app), next) {
		return nil, nil
	}
	// $1 id
	longer, _, err := db.First(ctx, t, db.ScanText, `SELECT longer_names FROM apps WHERE id = $1`, run.AppID(app))
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(next.WithoutDefaults(app))
	if err != nil {
		return nil, err
	}
	bounds, err := ReadBounds(app, string(encoded), longer)
	if err != nil {
		return nil, err
	}
	// $1 app, $2 last name of the page before, $3 limit
	list := `SELECT ` + JobColumns + ` FROM jobs AS j JOIN apps AS a ON a.id = j.app_id
		WHERE j.app_id = $1 AND j.name > $2 AND j.deleted_at IS NULL AND j.part_of = 0 ORDER BY j.name LIMIT $3`
	const page = 500
	var breaks access.Breaks
	groups := groupsOfJobs{}
	for after, more := "", true; more; {
		rows, err := db.Collect(ctx, t, ScanJob, list, run.AppID(app), after, page)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			after = row.Name
			if row.Err != nil {
				continue
			}
			var problems input.Problems
			problems.AddError("", row.Job.CheckBounds(bounds))
			group, err := groups.of(ctx, t, row.Job)
			if err != nil {
				return nil, err
			}
			problems.AddError("", bounds.CheckGroupOfJob(group))
			breaks.Add(row.Name, problems)
		}
		more = len(rows) == page
	}
	alerts, err := allAlerts(ctx, t, app, db.EvenUnreadable(ScanAlert(app), func(*alert.Alert, error) {}))
	if err != nil {
		return nil, err
	}
	for _, one := range alerts { // one that cannot be read has no destination
		breaks.AddAlert(one, *bounds)
	}
	if breaks.None() {
		return nil, nil
	}
	return &breaks, nil
}

// groupsOfJobs are the endpoint groups of an app that were looked up, by name.
type groupsOfJobs map[string]target.EndpointGroup

// of returns the group that a job calls; an empty one if it calls none.
func (g groupsOfJobs) of(ctx context.Context, q db.Querier, job dispatcher.Job) (group target.EndpointGroup, err error) {
	name := job.Target.GroupName()
	if name == "" {
		return group, nil
	}
	group, known := g[name]
	if !known {
		if group, _, err = readGroup(ctx, q, job.App, name, ""); errors.Is(err, dispatcher.ErrNotFound) {
			err = nil // its attempts fail for that reason, as those at a group that cannot be read
		}
		g[name] = group
	}
	return group, err
}

// reserveNames lets the apps whose names begin alike know that an app was created or deleted: the variables of secrets
// belong to the longest name. Nodes read those apps again. apps are all that there are now.
func reserveNames(ctx context.Context, t *dispatch.Tx, name string, apps []string) error {
	for _, app := range apps {
		if app != name && !longerName(app, name) {
			continue
		}
		var longer []string
		for _, other := range apps {
			if longerName(app, other) {
				longer = append(longer, input.FoldName(other))
			}
		}
		slices.Sort(longer)
		// $1 id, $2 names
		const write = `UPDATE apps SET longer_names = $2 WHERE id = $1`
		if _, err := t.ExecContext(ctx, write, run.AppID(app), strings.Join(longer, ",")); err != nil {
			return err
		}
		t.Notify(dispatcher.Notification{App: app})
	}
	return nil
}

// longerName tells whether variables that name app other begin as those that name app do.
func longerName(app, other string) bool {
	return strings.HasPrefix(input.FoldName(other), input.FoldName(app)+"_")
}

// appNames returns the names of all apps. In a transaction the row of the installation makes changes that create or delete apps wait
// for each other.
func appNames(ctx context.Context, from Source) ([]string, error) {
	if from.tx != nil {
		if _, err := db.Collect(ctx, from, db.ScanText, `SELECT id FROM installation`+from.Lock); err != nil {
			return nil, err
		}
	}
	return db.Collect(ctx, from, db.ScanText, `SELECT name FROM apps WHERE deleted_at IS NULL`)
}
