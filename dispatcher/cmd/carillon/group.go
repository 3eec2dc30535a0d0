package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
)

// groupCommand looks at endpoint groups.
type groupCommand struct {
	List   groupListCommand   `cmd:"" help:"List the endpoint groups of an app." example:"carillon group list billing"`
	Show   groupShowCommand   `cmd:"" help:"Show an endpoint group as it is declared." example:"carillon group show billing/workers"`
	Delete groupDeleteCommand `cmd:"" help:"Delete an endpoint group that no job uses." example:"carillon group delete billing/workers"`
}

// groupListCommand lists groups.
type groupListCommand struct {
	apiFlags
	outputFlags
	App string `arg:"" optional:"" help:"Name of the app. Default: all that the token may see."`
}

// Run prints the groups.
func (l *groupListCommand) Run(ctx context.Context, c console) error {
	api, err := l.client(ctx)
	if err != nil {
		return err
	}
	apps, err := appsOr(ctx, api, l.App)
	if err != nil {
		return err
	}
	var all []dispatcher.EndpointGroup
	for _, app := range apps {
		groups, err := groupsOf(ctx, api, app)
		if err != nil {
			return err
		}
		all = append(all, groups...)
	}
	titles := "GROUP\tSTRATEGY\tDECLARED\tREGISTER FROM\tREVISION\tUPDATED AT"
	return printList(l.outputFlags, c, all, titles, func(one dispatcher.EndpointGroup) []any {
		networks := "-"
		if one.Registration != nil {
			networks = strings.Join(one.Registration.Networks, ",")
		}
		return []any{one.App + "/" + one.Name, one.Strategy, len(one.Endpoints), networks, one.Revision, one.UpdatedAt}
	})
}

// groupsOf reads the groups of an app.
func groupsOf(ctx context.Context, api *client.Client, app string) ([]dispatcher.EndpointGroup, error) {
	groups, _, err := allPages(0, func(page dispatcher.Page) (client.List[dispatcher.EndpointGroup], error) {
		return api.Groups(ctx, app, page)
	})
	return groups, err
}

// groupFlags name a group.
type groupFlags struct {
	apiFlags
	outputFlags
	Group string `arg:"" name:"app/group" help:"The endpoint group, such as billing/workers."`
}

// open returns a client, and the names of app and group.
func (g *groupFlags) open(ctx context.Context) (api *client.Client, app, group string, err error) {
	names, err := cutPath(g.Group, "APP/GROUP", 2)
	if err != nil {
		return nil, "", "", err
	}
	api, err = g.client(ctx)
	return api, names[0], names[1], err
}

// groupShowCommand shows a group.
type groupShowCommand struct{ groupFlags }

// Run prints the group.
func (s *groupShowCommand) Run(ctx context.Context, c console) error {
	api, app, name, err := s.open(ctx)
	if err != nil {
		return err
	}
	group, err := api.Group(ctx, app, name)
	if err != nil {
		return err
	}
	return printObject(s.outputFlags, c, group, func(l *lines) {
		l.add("group", group.App+"/"+group.Name)
		l.add("description", group.Description)
		l.add("strategy", string(group.Strategy))
		l.add("path", group.Path)
		l.add("server name", group.ServerName)
		l.add("probe", fmt.Sprintf("alive %s, idle %s, at most %s", group.Probe.AlivePath, group.Probe.IdlePath, group.Probe.Timeout))
		if r := group.Registration; r != nil {
			l.add("register from", strings.Join(r.Networks, ", ")+", ports "+strings.Trim(fmt.Sprint(r.Ports), "[]"))
			l.add("heartbeat", fmt.Sprintf("every %s, gone after %s", r.Heartbeat, r.ExpireAfter))
		}
		l.add("revision", fmt.Sprintf("%d of %s", group.Revision, dispatcher.FormatInstant(group.UpdatedAt)))
		for _, id := range slices.Sorted(maps.Keys(group.Endpoints)) {
			l.add("endpoint "+id, group.Endpoints[id].URL)
		}
	})
}

// groupDeleteCommand deletes a group.
type groupDeleteCommand struct {
	apiFlags
	Group string `arg:"" name:"app/group" help:"The endpoint group, such as billing/workers."`
}

// Run deletes the group as it is now.
func (d *groupDeleteCommand) Run(ctx context.Context, c console) error {
	of := groupFlags{apiFlags: d.apiFlags, Group: d.Group}
	api, app, name, err := of.open(ctx)
	if err != nil {
		return err
	}
	group, err := api.Group(ctx, app, name)
	if err != nil {
		return err
	}
	if err := api.DeleteGroup(ctx, app, name, client.Condition{Revision: group.Revision}); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.out, "endpoint group %s/%s is deleted\n", app, name)
	return err
}
