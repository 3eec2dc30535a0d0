package store

import (
	"context"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
)

// Mask is mask.
func Mask(database string) string { return mask(database) }

// ExplainDue returns the plan of the window poll.
func ExplainDue(ctx context.Context, s dispatcher.Store, args ...any) (string, error) {
	own := s.(*store)
	explain := "EXPLAIN "
	if own.single() {
		explain = "EXPLAIN QUERY PLAN "
	}
	var plan strings.Builder
	_, err := own.run(ctx, read(explain+own.hot.due.parts[0]), append(args, own.batch([]string{})...), func(row scanner) error {
		var line string
		var node, parent, unused int
		columns := []any{&line}
		if own.single() {
			columns = []any{&node, &parent, &unused, &line}
		}
		err := row.Scan(columns...)
		plan.WriteString(line + "\n")
		return err
	})
	return plan.String(), err
}

// Exec runs a statement on the store's database.
func Exec(ctx context.Context, s dispatcher.Store, statement string) error {
	_, err := s.(*store).write.ExecContext(ctx, statement)
	return err
}
