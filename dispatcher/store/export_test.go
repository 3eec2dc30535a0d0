package store

import (
	"context"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
)

// Mask is mask.
func Mask(database string) string { return mask(database) }

// ExplainDue returns PostgreSQL's plan of the window poll.
func ExplainDue(ctx context.Context, s dispatcher.Store, args ...any) (string, error) {
	p := s.(*store).flavour.(*postgres)
	var plan strings.Builder
	explain := statement{parts: []string{"EXPLAIN " + s.(*store).hot.due.parts[0]}}
	_, err := p.run(ctx, explain, append(args, p.batch([]string{})...), func(row scanner) error {
		var line string
		err := row.Scan(&line)
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
