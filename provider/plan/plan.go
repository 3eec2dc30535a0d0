// Package plan describes what a Terraform plan does: which fires it adds, removes and moves, what
// it renames, which names do not exist, what is probably a mistake, and what does not run.
//
// Terraform plans resources one by one, calendars and groups before the jobs that refer to them. So
// a Plan records earlier resources, reads the rest from the API, and compares schedules with the
// code that fires them. The API checks at apply what is unknown at plan.
package plan

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/provider/binding"
)

// Plan is what a provider process knows about the plan that it makes or applies: objects read from
// the API, the planned state of those in the plan, and the warnings already shown.
type Plan struct {
	*client.Client        // nil while an argument of the provider block is unknown: no request can be made
	Endpoint       string // as configured, for messages; it holds no credentials
	unreached      atomic.Bool
	paths          binding.Paths
	warned         *warned
	zones          sync.Once // compared with the dispatcher's
	apps           known[appRead]
	bounds         known[*target.Bounds] // of apps in this plan; nil while they are unknown
	defaults       known[plannedDefaults]
	// calendars are the planned calendars by app/name; nil if they do not change or are partly
	// unknown. Like groups, Terraform plans them before the jobs that refer to them.
	calendars     known[*dispatcher.Calendar]
	calendarsRead known[[]dispatcher.Calendar] // by app; nil if they cannot be read
	groups        named[target.EndpointGroup]
	alerts        named[alert.Alert]
	jobs          knownJobs
	nodes         known[[]dispatcher.Node] // under ""; nil if they cannot be read
}

// New returns an empty plan. file is shared by the processes of a command, or "".
func New(paths binding.Paths, file string) *Plan {
	return &Plan{paths: paths, warned: newWarned(file)}
}

// reads reports whether requests can be made.
func (p *Plan) reads() bool { return p.Client != nil && !p.unreached.Load() }

// Unreached lets the plan make no request. It warns of that, unless why is nil, as another message says it.
func (p *Plan) Unreached(diags *diag.Diagnostics, why error) {
	p.unreached.Store(true)
	if why == nil {
		return
	}
	p.warn(diags, warning{
		kind: "unreached", title: "Nothing was checked against Carillon", thing: p.Endpoint, outside: true, inFull: 1,
		detail: fmt.Sprintf("No node could be reached: %v.\n\nThe plan shows what the configuration says by itself. The apply checks "+
			"whether the token may write, and whether the apps, calendars, groups and jobs exist that are named, and it applies the bounds "+
			"and defaults of apps. Check that a dispatcher runs at %s, unless this apply starts it.", why, p.Endpoint),
	})
}

// Definition is the planned state of a definition, as far as its configuration is known.
type Definition[T any] struct {
	Declared       T
	Before         *T                // as in the state; nil if the plan creates it
	Replaces       string            // the import id of the definition that it replaces; empty if it replaces none
	E              *binding.Expander // has expanded Declared
	IsNew, Changes bool
}

// known has the values that plans of one kind of object have found, by name. The zero value is ready to use.
type known[V any] struct {
	mu     sync.Mutex
	values map[string]V
}

func (k *known[V]) set(name string, value V) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.put(name, value)
}

func (k *known[V]) put(name string, value V) {
	if k.values == nil {
		k.values = map[string]V{}
	}
	k.values[name] = value
}

func (k *known[V]) get(name string) (value V, there bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	value, there = k.values[name]
	return value, there
}

func (k *known[V]) has(name string) bool {
	_, there := k.get(name)
	return there
}

// all returns the values by name.
func (k *known[V]) all() map[string]V {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.values)
}

// once returns the value of a name. Only the first call reads it; concurrent calls wait for that.
func (k *known[V]) once(name string, read func() V) V {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, there := k.values[name]; !there {
		k.put(name, read())
	}
	return k.values[name]
}

// readAll returns all pages of a list of an app; nil if it cannot be read.
func readAll[T any](
	ctx context.Context, app string, list func(context.Context, string, input.Page) (client.List[T], error),
) []T {
	all := []T{}
	for page := (input.Page{}); ; {
		some, err := list(ctx, app, page)
		if err != nil && !client.IsNotFound(err) { // an app that does not exist yet has none
			return nil
		}
		all = append(all, some.Items...)
		if page.Cursor = some.Next; page.Cursor == "" {
			return all
		}
	}
}

// named knows which objects of a kind exist after an apply.
type named[T any] struct {
	planned known[bool] // app/name of those in the plan
	stored  known[[]T]  // by app; nil if they cannot be read
}

// lacks reports that an app has no such object, neither stored nor planned so far, and the names of the stored ones. It
// does not if they cannot be read.
func (n *named[T]) lacks(app, name string, read func() []T, nameOf func(T) string) (names []string, lacks bool) {
	if app == "" || name == "" || n.planned.has(app+"/"+name) {
		return nil, false
	}
	stored := n.stored.once(app, read)
	for _, one := range stored {
		names = append(names, nameOf(one))
	}
	return names, stored != nil && !slices.Contains(names, name)
}

// plannedDefaults are the planned defaults of an app, which may be unknown before apply.
type plannedDefaults struct {
	defaults *dispatcher.JobDefaults
	known    bool
}

// DefaultsOf returns the defaults of an app's jobs: those of this plan or, for an app outside of
// it, of the API. known is false if they are decided at apply.
func (p *Plan) DefaultsOf(ctx context.Context, app string) (d *dispatcher.JobDefaults, known bool) {
	if planned, there := p.defaults.get(app); there {
		return planned.defaults, planned.known
	}
	if stored := p.appOf(ctx, app); stored != nil {
		return stored.Defaults, true
	}
	return nil, false
}

// DefaultsShown returns an app's defaults for a job that was read. If they are decided at apply, it uses the API's.
func (p *Plan) DefaultsShown(ctx context.Context, app string) *dispatcher.JobDefaults {
	given, known := p.DefaultsOf(ctx, app)
	if stored := p.appOf(ctx, app); !known && stored != nil {
		return stored.Defaults
	}
	return given
}

// appRead is an app as the API has it. It is nil if it could not be read, as if it is missing.
type appRead struct {
	*access.App
	missing bool
}

// appOf returns an app as stored; nil if it cannot be read now.
func (p *Plan) appOf(ctx context.Context, name string) *access.App { return p.readApp(ctx, name).App }

func (p *Plan) readApp(ctx context.Context, name string) appRead {
	if !p.reads() || name == "" {
		return appRead{}
	}
	return p.apps.once(name, func() appRead {
		app, err := p.App(ctx, name)
		if err != nil { // apply reports the error if it persists
			return appRead{missing: client.IsNotFound(err)}
		}
		return appRead{App: &app}
	})
}

// WarnOfMissingApp warns if an app exists neither on the server nor, so far, in the plan. The plan may still get to it, if
// the configuration does not refer to the resource; then the order of the apply decides.
func (p *Plan) WarnOfMissingApp(ctx context.Context, diags *diag.Diagnostics, app string) {
	if p.defaults.has(app) || !p.readApp(ctx, app).missing {
		return
	}
	p.warn(diags, warning{
		kind: "app missing", title: "The app does not exist", thing: app, at: "/app", inFull: 1, more: "more apps",
		detail: fmt.Sprintf("There is no app %s yet. If this configuration declares it, refer to its resource, such as "+
			"carillon_app.NAME.name, so that Terraform creates it first. Otherwise the apply fails.", input.Echo(app)),
	})
}

// BoundsOf returns the bounds of an app: those of this plan or, for an app outside of it, of the
// API. nil means that they are unknown now, and the API checks them at apply.
func (p *Plan) BoundsOf(ctx context.Context, name string) *target.Bounds {
	if !p.reads() || name == "" {
		return nil
	}
	if planned, there := p.bounds.get(name); there {
		return planned
	}
	if app := p.appOf(ctx, name); app != nil {
		return app.Bounds
	}
	return nil
}

// OfApp records the planned bounds and defaults of the app, for the plans of its jobs.
func (p *Plan) OfApp(_ context.Context, diags *diag.Diagnostics, of Definition[access.App]) {
	name, bounds := of.Declared.Name, of.Declared.Bounds
	if of.E.IsUnknown("/name") {
		return
	}
	if of.Replaces != "" {
		p.warn(diags, warning{
			kind: "app replaced", title: "The app gets another name", thing: of.Replaces, at: "/name", more: "more apps",
			detail: fmt.Sprintf("App %s is deleted, and app %s is created with all its jobs. Runs, misfires and the audit log stay under "+
				"the former name, and event ids change, so receivers take the same fire under both names for two.", of.Replaces, name),
		})
	}
	if of.Before != nil && of.E.AllKnown("/defaults/retry") {
		p.warnOfRetries(diags, name, of.Before.Defaults, of.Declared.Defaults)
	}
	p.defaults.set(name, plannedDefaults{of.Declared.Defaults, of.E.AllKnown("/defaults")})
	switch {
	case !of.E.AllKnown("/bounds"):
		p.bounds.set(name, nil)
	case bounds != nil:
		p.bounds.set(name, new(bounds.WithDefaults(name)))
	case of.IsNew: // a deleted app keeps its bounds, so only the API knows them
		p.bounds.set(name, nil)
	}
}

// warnOfRetries says what a change of the default retry means to jobs without one: their plans can only show the block
// as removed, which reads as if retries were switched off.
func (p *Plan) warnOfRetries(diags *diag.Diagnostics, app string, before, after *dispatcher.JobDefaults) {
	var changes []string
	was, is := attributesOf(before), attributesOf(after)
	for _, name := range input.SortedKeys(is) {
		if !reflect.DeepEqual(was[name], is[name]) {
			changes = append(changes, fmt.Sprintf("%s %v -> %v", name, was[name], is[name]))
		}
	}
	if len(changes) == 0 {
		return
	}
	p.warn(diags, warning{
		kind: "retries", title: "Retries of jobs without the block retry change", thing: app, at: "/defaults/retry", more: "more apps",
		detail: strings.Join(changes, ", ") + ". The plans of these jobs show their former retry as a removed block. It is replaced, not " +
			"switched off.",
	})
}

// attributesOf returns the retry of jobs that have none, as the API has it.
func attributesOf(d *dispatcher.JobDefaults) (all map[string]any) {
	retry := binding.Fresh[run.Retry]()
	if d != nil && d.Retry != nil {
		retry = d.Retry
	}
	if text, err := json.Marshal(retry); err == nil {
		_ = json.Unmarshal(text, &all)
	}
	return all
}

// AppWritten records the bounds and defaults of an app that was created or updated.
func (p *Plan) AppWritten(app access.App) {
	p.bounds.set(app.Name, app.Bounds)
	p.defaults.set(app.Name, plannedDefaults{app.Defaults, true})
}
