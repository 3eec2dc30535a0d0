package console

import (
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// groupsPage is the list of the endpoint groups of an app.
type groupsPage struct {
	client.List[target.EndpointGroup]
	App, More string
}

func showGroups(v *visit) (content, error) {
	app := v.PathValue("app")
	list, err := v.client.Groups(v.Context(), app, v.page())
	return content{Data: groupsPage{list, app, v.more(list.Next)}}, err
}

// groupPage is one endpoint group with its members, as the node that shows the page sees them.
type groupPage struct {
	target.EndpointGroup
	Members []memberRow
	Names   map[string]target.DNSStatus
	Node    string
	More    string
}

// memberRow is an endpoint and what the node knows of it.
type memberRow struct {
	target.Endpoint
	Status target.EndpointStatus
}

func showGroup(v *visit) (content, error) {
	app, name := v.PathValue("app"), v.PathValue("group")
	group, err := v.client.Group(v.Context(), app, name)
	if err != nil {
		return content{}, err
	}
	endpoints, err := v.client.Endpoints(v.Context(), app, name, v.page())
	if err != nil {
		return content{}, err
	}
	status, err := v.client.GroupStatus(v.Context(), app, name)
	if err != nil {
		return content{}, err
	}
	known := map[string]target.EndpointStatus{}
	for _, one := range status.Endpoints {
		known[one.ID] = one
	}
	page := groupPage{EndpointGroup: group, Names: status.DNS, Node: status.Node, More: v.more(endpoints.Next)}
	for _, one := range endpoints.Items {
		page.Members = append(page.Members, memberRow{one, known[one.ID]})
	}
	return content{Title: v.Texts.Text("group.title", "group", name), Data: page, Refresh: true}, nil
}

// drainMember returns the action that drains an endpoint, or resumes it.
func drainMember(draining bool, notice string) func(*visit) (done, error) {
	return func(v *visit) (done, error) {
		app, group, id := v.PathValue("app"), v.PathValue("group"), v.PathValue("endpoint")
		_, err := v.client.DrainEndpoint(v.Context(), app, group, id, draining)
		return done{to: v.link("apps", app, "groups", group), notice: notice, values: []any{"endpoint", id}}, err
	}
}
