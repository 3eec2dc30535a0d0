// Package plan is what a plan of Terraform tells people: which fires it adds, removes and moves, what it renames, which names lead to
// nothing, what is probably a mistake, and what does not run.
//
// Terraform plans one resource after the other, calendars and groups before the jobs that refer to them. So a Plan remembers what the
// ones before leave, reads the rest from the API, and compares schedules with the code that fires them. What cannot be known before
// the apply, the API judges then.
package plan

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/provider/binding"
)

// Plan is what a process of the provider knows of the plan that it makes or applies: what the API has, as far as it was
// asked, what the plan leaves of that, and which warnings were shown.
type Plan struct {
	*client.Client        // nil while an argument of the provider block is unknown: no request can be made
	Endpoint       string // as configured, for messages; it holds no credentials
	unreached      atomic.Bool
	paths          binding.Paths
	warned         *warned
	zones          sync.Once             // they were compared with the dispatcher's
	apps           known[*access.App]    // as the API has them; nil: it could not be read
	bounds         known[*target.Bounds] // of apps in this plan; nil while they are not known before apply
	defaults       known[plannedDefaults]
	// calendars are those of the plan by app/name, and nil if they do not change or are not fully known. Like groups, Terraform plans
	// them before the jobs that refer to them.
	calendars     known[*dispatcher.Calendar]
	calendarsRead known[[]dispatcher.Calendar]  // by app; nil: they cannot be read
	groups        known[bool]                   // app/name of those that an apply of this plan leaves
	groupsRead    known[[]target.EndpointGroup] // by app; nil: they cannot be read
	jobs          knownJobs
}

// New returns a plan about which nothing is known yet. file is what processes of the same command share; "" is none.
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
		detail: fmt.Sprintf("No node could be reached: %v.\n\nThe plan shows what the configuration says by itself. The apply checks whether the "+
			"token may write, and whether the apps, calendars, groups and jobs exist that are named, and it applies the bounds and defaults "+
			"of apps. Check that a dispatcher runs at %s, unless this apply starts it.", why, p.Endpoint),
	})
}

// Definition is what a plan leaves of a definition, as far as its configuration is known.
type Definition[T any] struct {
	Declared       T
	E              *binding.Expander // it has expanded Declared
	IsNew, Changes bool
}

// known is what plans of one kind of thing have found out, by the names of the things. The zero value is ready to use.
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

// once returns the value of a name. Only the first call reads it; others wait instead of reading it, too.
func (k *known[V]) once(name string, read func() V) V {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, there := k.values[name]; !there {
		k.put(name, read())
	}
	return k.values[name]
}

// readAll returns what an app has, from all pages of a list; nil if it cannot be read.
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

// plannedDefaults are the defaults of an app in a plan, which may not be known before apply.
type plannedDefaults struct {
	defaults *dispatcher.JobDefaults
	known    bool
}

// DefaultsOf returns what the jobs of an app get where they leave it out: by this plan, or for an app that is not in
// it by the API. known is false if that is decided at apply.
func (p *Plan) DefaultsOf(ctx context.Context, app string) (d *dispatcher.JobDefaults, known bool) {
	if planned, there := p.defaults.get(app); there {
		return planned.defaults, planned.known
	}
	if stored := p.appOf(ctx, app); stored != nil {
		return stored.Defaults, true
	}
	return nil, false
}

// DefaultsShown returns the defaults of an app for a job that was read. Those of the API stand for what is decided at apply.
func (p *Plan) DefaultsShown(ctx context.Context, app string) *dispatcher.JobDefaults {
	given, known := p.DefaultsOf(ctx, app)
	if stored := p.appOf(ctx, app); !known && stored != nil {
		return stored.Defaults
	}
	return given
}

// appOf returns an app as it is stored; nil: it cannot be read now.
func (p *Plan) appOf(ctx context.Context, name string) *access.App {
	if !p.reads() || name == "" {
		return nil
	}
	return p.apps.once(name, func() *access.App {
		app, err := p.App(ctx, name)
		if err != nil { // apply reports it, if it still is so
			return nil
		}
		return &app
	})
}

// BoundsOf returns the bounds of an app, by this plan or, for an app that the plan leaves alone, by the API; nil: they are not
// known now, so the API judges at apply.
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

// OfApp notes the bounds and defaults that the plan gives the app, so that its jobs are planned with them.
func (p *Plan) OfApp(_ context.Context, _ *diag.Diagnostics, of Definition[access.App]) {
	name, bounds := of.Declared.Name, of.Declared.Bounds
	if of.E.IsUnknown("/name") {
		return
	}
	p.defaults.set(name, plannedDefaults{of.Declared.Defaults, of.E.AllKnown("/defaults")})
	switch {
	case !of.E.AllKnown("/bounds"):
		p.bounds.set(name, nil)
	case bounds != nil:
		p.bounds.set(name, new(bounds.WithDefaults(name)))
	case of.IsNew: // an app that was deleted keeps its bounds, so only the API knows them
		p.bounds.set(name, nil)
	}
}

// AppWritten notes the bounds and defaults of an app that was created or updated.
func (p *Plan) AppWritten(app access.App) {
	p.bounds.set(app.Name, app.Bounds)
	p.defaults.set(app.Name, plannedDefaults{app.Defaults, true})
}
