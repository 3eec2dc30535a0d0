package console

import (
	"cmp"
	"context"
	"strconv"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/console/kit"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// pageLength is how many rows a list has.
const pageLength = 50

// appPage is one app: its pauses, its use of the bounds, and its objectives.
type appPage struct {
	access.App
	objectivesPage
	Allowed []allowedRow
	// Health are the sections of attention with entries of the app.
	Health kit.Part[[]attentionCount]
}

// allowedRow is a list of the bounds of an app. What and Otherwise are keys of texts; Otherwise stands for a list without entries:
// a missing one is the default, an empty one allows nothing.
type allowedRow struct {
	What, Otherwise string
	Entries         []string
}

// allowed returns the lists of the bounds of an app.
func allowed(b *target.Bounds) []allowedRow {
	if b == nil {
		return nil
	}
	orDefault := func(missing bool, text string) string {
		if missing {
			return text
		}
		return "app.nothing"
	}
	ports := make([]string, len(b.Egress.Ports))
	for i, port := range b.Egress.Ports {
		ports[i] = strconv.Itoa(port)
	}
	return []allowedRow{
		{"app.secrets", "app.nothing", b.Secrets},
		{"app.hosts", orDefault(b.Egress.Hosts == nil, "app.any"), b.Egress.Hosts},
		{"app.ports", orDefault(b.Egress.Ports == nil, "app.any"), ports},
		{"app.networks", orDefault(b.Egress.Networks == nil, "app.public"), b.Egress.Networks},
		{"app.functions", "app.nothing", b.Lambda.Functions},
		{"app.queues", "app.nothing", b.SQS.Queues},
		{"app.topics", "app.nothing", b.SNS.Topics},
	}
}

// objectiveRow is a job's objective and its status. Attained is empty if it had no fires.
type objectiveRow struct {
	dispatcher.ObjectiveStatus
	Attained string
}

// objectivesPage has a page of the objectives of an app, or of all apps.
type objectivesPage struct {
	Objectives []objectiveRow
	More       string
	Sorting    sorting
	AllApps    bool
}

func showObjectives(v *visit) (content, error) {
	page, err := v.objectives(v.query("app"))
	return content{Data: page, Refresh: true}, err
}

func (v *visit) objectives(app string) (objectivesPage, error) {
	found, err := v.client.Objectives(v.Context(), app, v.page())
	page := objectivesPage{More: v.more(found.Next), AllApps: app == ""}
	for _, one := range found.Items {
		row := objectiveRow{ObjectiveStatus: one}
		if one.Attained != nil {
			row.Attained = strconv.FormatFloat(*one.Attained, 'f', 3, 64) + " %"
		}
		page.Objectives = append(page.Objectives, row)
	}
	if page.More == "" && v.first() == "" {
		page.Sorting = sorted(v, page.Objectives, map[string]func(a, b objectiveRow) int{
			"job":    func(a, b objectiveRow) int { return cmp.Compare(a.App+"/"+a.Job, b.App+"/"+b.Job) },
			"budget": func(a, b objectiveRow) int { return cmp.Compare(a.BudgetLeft, b.BudgetLeft) },
		})
	}
	return page, err
}

func showApp(v *visit) (content, error) {
	app, err := v.client.App(v.Context(), v.PathValue("app"))
	if err != nil {
		return content{}, err
	}
	page := appPage{App: app, Allowed: allowed(app.Bounds)}
	attention, err := v.client.Attention(v.Context(), app.Name)
	page.Health = kit.ReadPart(attentionCounts(attention, v.Texts), err)
	page.objectivesPage, err = v.objectives(app.Name)
	return content{Title: v.Texts.Text("app.title", "app", app.Name), Data: page, Refresh: true}, err
}

// page is the page of a list that the URL requests.
func (v *visit) page() input.Page {
	return input.Page{Limit: pageLength, Cursor: v.query("cursor")}
}

type listPage[T any] struct {
	client.List[T]
	App    string            // empty: the list is of all apps
	More   string            // the URL of the next page; empty: this is the last
	Filter map[string]string // as it was written

	Sorting sorting
}

func listOf[T any](v *visit, list client.List[T], filter map[string]string) listPage[T] {
	return listPage[T]{List: list, App: v.PathValue("app"), More: v.more(list.Next), Filter: filter}
}

// showList shows what read lists of an app.
func showList[T any](read func(*client.Client, context.Context, string, input.Page) (client.List[T], error),
	refresh bool) func(*visit) (content, error) {
	return func(v *visit) (content, error) {
		list, err := read(v.client, v.Context(), v.PathValue("app"), v.page())
		return content{Data: listOf(v, list, nil), Refresh: refresh}, err
	}
}

// showAppSwitch asks before an app is disabled.
func showAppSwitch(v *visit) (content, error) {
	app, err := v.client.App(v.Context(), v.PathValue("app"))
	if err != nil {
		return content{}, err
	}
	return v.confirm("app_disable", confirmPage{Facts: v.appFacts(app), Harm: true, Back: v.link("apps", app.Name)}, "app", app.Name), nil
}

func (v *visit) appFacts(app access.App) []fact {
	if app.Usage == nil {
		return nil
	}
	return []fact{v.fact("app.jobs", app.Usage.Jobs), v.fact("app.triggers", app.Usage.Triggers)}
}

func setApp(enabled bool, notice string) func(*visit) (done, error) {
	return func(v *visit) (done, error) {
		name := v.PathValue("app")
		_, err := v.client.PatchApp(v.Context(), name, enabled, client.Condition{Existing: true})
		return done{to: v.link("apps", name), notice: notice, values: []any{"app", name}}, err
	}
}

// showAppPause asks for a pause of an app, or of its jobs with some labels.
func showAppPause(v *visit) (content, error) {
	app, err := v.client.App(v.Context(), v.PathValue("app"))
	if err != nil {
		return content{}, err
	}
	return v.confirm("app_pause", confirmPage{
		Facts: v.appFacts(app),
		Asks: []ask{v.ask("labels", "app_pause.labels", ""), v.ask("reason", "field.reason", ""),
			v.ask("for", "field.for", "")},
		Harm: true, Back: v.link("apps", app.Name),
	}, "app", app.Name), nil
}

func pauseApp(v *visit) (done, error) {
	name, f := v.PathValue("app"), v.fields()
	asked := dispatcher.AppPauseRequest{Labels: f.Labels("labels"), Reason: f.Text("reason"), Until: f.Until("for", v.Now)}
	if err := f.Err(); err != nil {
		return done{}, err
	}
	_, err := v.client.PauseApp(v.Context(), name, asked)
	return done{to: v.link("apps", name), notice: "app.notice.paused", values: []any{"app", name}}, err
}

func endAppPause(v *visit) (done, error) {
	name := v.PathValue("app")
	err := v.client.EndAppPause(v.Context(), name, v.PathValue("pause"))
	return done{to: v.link("apps", name), notice: "app.notice.resumed", values: []any{"app", name}}, err
}

func showApps(v *visit) (content, error) {
	list, err := v.client.Apps(v.Context(), input.Page{Limit: 100, Cursor: v.query("cursor")})
	page := listOf(v, list, nil)
	if page.More == "" && v.first() == "" {
		page.Sorting = sorted(v, page.Items, map[string]func(a, b access.App) int{
			"name": func(a, b access.App) int { return cmp.Compare(a.Name, b.Name) },
			"state": func(a, b access.App) int {
				return cmp.Compare(strconv.FormatBool(a.Enabled), strconv.FormatBool(b.Enabled))
			},
		})
	}
	return content{Data: page}, err
}

// groupPage is one endpoint group with its members, from the view of the node that shows the page.
type groupPage struct {
	target.EndpointGroup
	Members []memberRow
	Names   map[string]target.DNSStatus
	Node    string
	More    string
}

// memberRow is an endpoint and the node's view of it.
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
