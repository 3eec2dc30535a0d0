package main

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// misfireCommand shows misfire decisions.
type misfireCommand struct {
	List misfireListCommand `cmd:"" help:"List missed fires and what was decided about them, the latest first." example:"carillon misfire list --app billing --since 24h"`
}

// misfireListCommand lists misfire decisions.
type misfireListCommand struct {
	apiFlags
	outputFlags
	ledgerFlags
}

// Run prints the decisions.
func (m *misfireListCommand) Run(ctx context.Context, c console) error {
	query, err := m.query(time.Now())
	if err != nil {
		return err
	}
	api, err := m.client(ctx)
	if err != nil {
		return err
	}
	apps, err := appsOr(ctx, api, m.App)
	if err != nil {
		return err
	}
	var all []dispatcher.Misfire
	more, read := false, newProgress(c, "misfires")
	for _, app := range apps {
		query.App = app
		found, others, err := allPages(m.Limit, func(page input.Page) (client.List[dispatcher.Misfire], error) {
			query.Page = page
			return api.Misfires(ctx, query)
		})
		if err != nil {
			return err
		}
		all, more = append(all, found...), more || others
		read.say(len(all))
	}
	all = cut(c, all, m.Limit, more, func(one dispatcher.Misfire) time.Time { return one.DecidedAt })
	titles := "TRIGGER\tMISSED\tFROM\tTO\tDECISION\tDECIDED AT\tRUN\tREASON"
	return printList(m.outputFlags, c, all, titles, func(one dispatcher.Misfire) []any {
		return []any{fmt.Sprintf("%s/%s/%s", one.App, one.Job, one.Trigger), one.Count, one.From, one.To, one.Decision,
			one.DecidedAt, one.Run, one.Reason}
	})
}
