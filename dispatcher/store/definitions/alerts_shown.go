package definitions

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// alertWarnings returns what of an alert selects no job. It is no error: a job may be declared later.
func (s *Store) alertWarnings(ctx context.Context, q db.Querier, alert alert.Alert) (warnings input.Problems, err error) {
	if len(alert.Jobs) > 0 {
		// $1 app, from $2 on: names
		existing := s.db.Rows(0, 2, "", db.NameColumns...) + ` SELECT j.name FROM b JOIN jobs AS j ON j.name = b.name
			WHERE j.app_id = $1 AND j.part_of = 0 AND j.deleted_at IS NULL`
		names, err := db.Collect(ctx, q, db.ScanText, existing, append([]any{run.AppID(alert.App)}, s.db.Batch(alert.Jobs)...)...)
		if err != nil {
			return nil, fmt.Errorf("look for the jobs of alert %s/%s: %w", alert.App, alert.Name, err)
		}
		for i, name := range alert.Jobs {
			if !slices.Contains(names, name) {
				warnings.Add(input.Pointer("jobs", strconv.Itoa(i)), input.CodeAlertJobUnknown,
					"app %s has no job %s, so nobody is told of it until it is declared; declare it, or check the name",
					input.Echo(alert.App), input.Echo(name))
			}
		}
	}
	if len(alert.Labels) > 0 {
		args := StatementArgs{run.AppID(alert.App)}
		// $1 app, from $2 on: labels
		labelled := `SELECT 1 FROM jobs AS j WHERE j.app_id = $1 AND j.part_of = 0 AND j.deleted_at IS NULL` +
			WithLabels(alert.Labels, &args) + ` LIMIT 1`
		_, some, err := db.First(ctx, q, db.ScanInt, labelled, args...)
		if err != nil {
			return nil, fmt.Errorf("look for jobs with the labels of alert %s/%s: %w", alert.App, alert.Name, err)
		}
		if !some {
			warnings.Add("/labels", input.CodeAlertJobUnknown,
				"app %s has no job with %s; give a job these labels, or check their names and values", input.Echo(alert.App), alert.Labels)
		}
	}
	return warnings, nil
}
