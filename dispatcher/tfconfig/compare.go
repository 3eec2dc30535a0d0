package tfconfig

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Change is how files and server differ about an app, a calendar, an endpoint group, an alert or a job.
type Change string

// The changes.
const (
	OnlyInFiles  Change = "only_in_files"
	OnlyOnServer Change = "only_on_server"
	Changed      Change = "changed"
	NotCompared  Change = "not_compared" // the files do not determine its name, or whether it exists
)

// Difference is an app, a calendar, an endpoint group, an alert or a job that differs between files and server.
type Difference struct {
	Change Change `json:"change"`
	// Type is the type of the resource.
	Type string `json:"type"`
	// Name is the name of the app, and after a slash that of the calendar, group, alert or job; empty if it is unknown.
	Name string `json:"name"`
	// Resource, File and Line are where it is declared, if it is.
	Resource string `json:"resource,omitempty"`
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
	// Attributes are the attributes that differ.
	Attributes []AttributeDifference `json:"attributes,omitempty"`
}

// AttributeDifference is one value; nil means none.
type AttributeDifference struct {
	// Path is its name in the files, such as trigger["berlin"].expression.
	Path   string `json:"path"`
	Server any    `json:"server"`
	Files  any    `json:"files"`
}

// Apps returns the known names of the apps in the module.
func (m *Module) Apps() []string {
	all := map[string]bool{}
	for _, r := range m.Resources {
		if name, known := r.app(); known {
			all[name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// onServer returns the objects of a server by type and name.
func onServer(server map[string]Content) map[string]any {
	there := map[string]any{}
	for _, content := range server {
		there[AppType+" "+content.App.Name] = content.App
		for _, c := range content.Calendars {
			there[CalendarType+" "+c.App+"/"+c.Name] = c
		}
		for _, g := range content.Groups {
			there[GroupType+" "+g.App+"/"+g.Name] = g.Resolved()
		}
		for _, a := range content.Alerts {
			there[AlertType+" "+a.App+"/"+a.Name] = a.Resolved()
		}
		for _, j := range content.Jobs {
			there[JobType+" "+j.App+"/"+j.Name] = j
		}
	}
	return there
}

// defaults returns the defaults for jobs of each app. Those of the files win: they hold after terraform apply.
func (m *Module) defaults(server map[string]Content) (map[string]*dispatcher.JobDefaults, error) {
	defaults := map[string]*dispatcher.JobDefaults{}
	for name, content := range server {
		defaults[name] = content.App.Defaults
	}
	for _, r := range m.Resources {
		if name, known := r.name(); known && r.Type == AppType {
			app, err := appOf(r)
			if err != nil {
				return nil, err
			}
			defaults[name] = app.Defaults
		}
	}
	return defaults, nil
}

// Compare returns the differences between a module and its apps on a server, by name; a missing app has no content.
// Values that are unknown in the files are not compared.
func (m *Module) Compare(server map[string]Content) ([]Difference, error) {
	there := onServer(server)
	defaults, err := m.defaults(server)
	if err != nil {
		return nil, err
	}
	var found []Difference
	declared, apps := map[string]bool{}, map[string]bool{}
	for _, r := range m.Resources {
		d := Difference{Change: NotCompared, Type: r.Type, Resource: r.Address, File: r.File(), Line: r.Line()}
		app, known := r.app()
		name, named := r.name()
		if !known || !named {
			found = append(found, d)
			continue
		}
		if d.Name = app; r.Type != AppType {
			d.Name += "/" + name
		}
		apps[app] = apps[app] || r.Type == AppType
		declared[r.Type+" "+d.Name] = true
		object, exists := there[r.Type+" "+d.Name]
		if !exists {
			if !r.uncertain() {
				d.Change = OnlyInFiles
			}
			found = append(found, d)
			continue
		}
		attributes, err := r.compare(object, defaults[app])
		if err != nil {
			return nil, err
		}
		if d.Change, d.Attributes = Changed, attributes; len(attributes) > 0 {
			found = append(found, d)
		}
	}
	for key := range there {
		kind, name, _ := strings.Cut(key, " ")
		if app, _, _ := strings.Cut(name, "/"); !declared[key] && apps[app] {
			found = append(found, Difference{Change: OnlyOnServer, Type: kind, Name: name})
		}
	}
	slices.SortStableFunc(found, func(a, b Difference) int {
		return cmp.Or(strings.Compare(a.Type, b.Type), strings.Compare(a.Name, b.Name))
	})
	return found, nil
}

// compare returns the differences between a resource and the object of the server, with the defaults of its app.
func (r *Resource) compare(object any, defaults *dispatcher.JobDefaults) ([]AttributeDifference, error) {
	var declared any
	var err error
	var c comparison
	there := object
	switch object := object.(type) {
	case access.App:
		var app access.App
		if app, err = appOf(r); app.Bounds != nil {
			app.Bounds = new(app.Bounds.WithDefaults(app.Name))
		}
		declared = app
		if object.Bounds != nil {
			object.Bounds = new(object.Bounds.WithDefaults(object.Name))
		}
		there = object
	case dispatcher.Calendar:
		declared, err = calendarOf(r)
		object.Timezone = cmp.Or(object.Timezone, utc)
		there = object
	case target.EndpointGroup:
		var group target.EndpointGroup
		group, err = groupOf(r)
		declared = group.Resolved()
	case alert.Alert:
		var alert alert.Alert
		alert, err = alertOf(r)
		declared = alert.Resolved()
	case dispatcher.Job:
		var job dispatcher.Job
		job, err = jobOf(r, defaults)
		object.Labels = maps.Clone(object.Labels)
		maps.DeleteFunc(object.Labels, func(name, _ string) bool { // default_labels, maybe of another provider
			_, here := job.Labels[name]
			return !here
		})
		for name, t := range job.Triggers {
			resolve(&t, job.Identity(name))
			job.Triggers[name] = t
		}
		c.found = r.rename(&object)
		declared, there = job, object
	}
	if err != nil {
		return nil, err
	}
	files, err := treeOf(declared)
	if err != nil {
		return nil, err
	}
	server, err := treeOf(there)
	if err != nil {
		return nil, err
	}
	c.block(Schemas()[r.Type], flattenDefaults(files), flattenDefaults(server), r.root, "")
	return c.found, nil
}

// comparison collects differences.
type comparison struct{ found []AttributeDifference }

// block compares the contents of two blocks. at is the block of the files; nil if it is left out there.
func (c *comparison) block(schema Schema, files, server map[string]any, at *node, path string) {
	for _, name := range schema.names() {
		a, key := schema[name], field(name)
		part := at.part(key)
		here := strings.TrimPrefix(path+"."+name, ".")
		switch {
		case part.isUnknown() || name == "value" || name == "value_version": // the server does not return values of secrets
		case name == "bounds" && part == nil: // Terraform does not manage them
		case a.Kind == Single:
			c.single(a.Attributes, files[key], server[key], part, here)
		case a.Kind == Named:
			c.members(files[key], server[key], part, func(key string, x, y any, inner *node) {
				c.single(a.Attributes, x, y, inner, here+"["+strconv.Quote(key)+"]")
			})
		case a.Kind == Repeated:
			c.elements(files[key], server[key], part, func(i int, x, y any, inner *node) {
				c.single(a.Attributes, x, y, inner, here+"["+strconv.Itoa(i)+"]")
			})
		case a.Kind == TextMap:
			c.members(files[key], server[key], part, func(key string, x, y any, inner *node) {
				c.value(x, y, inner, here+"["+strconv.Quote(key)+"]")
			})
		default:
			if part.allKnown() {
				c.value(files[key], server[key], part, here)
			}
		}
	}
}

// single compares two blocks; one may be missing.
func (c *comparison) single(schema Schema, files, server any, at *node, path string) {
	x, inFiles := files.(map[string]any)
	y, onServer := server.(map[string]any)
	switch {
	case at.isUnknown():
	case inFiles && onServer:
		c.block(schema, x, y, at, path)
	case inFiles:
		c.value(declarable(schema, x), nil, at, path)
	case onServer:
		c.value(nil, declarable(schema, y), at, path)
	}
}

// declarable returns the values of a block that a user can write, without empty ones.
func declarable(schema Schema, tree map[string]any) map[string]any {
	all := map[string]any{}
	for _, name := range schema.names() {
		value := tree[field(name)]
		inner, isBlock := value.(map[string]any)
		if isBlock && schema[name].Kind == Single {
			value = declarable(schema[name].Attributes, inner)
		}
		if !empty(value) {
			all[name] = value
		}
	}
	return all
}

// members compares two maps by their keys.
func (c *comparison) members(files, server any, at *node, one func(key string, x, y any, inner *node)) {
	x, _ := files.(map[string]any)
	y, _ := server.(map[string]any)
	keys := maps.Clone(x)
	if keys == nil {
		keys = map[string]any{}
	}
	maps.Copy(keys, y)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		one(key, x[key], y[key], at.part(key))
	}
}

// elements compares two lists by position.
func (c *comparison) elements(files, server any, at *node, one func(i int, x, y any, inner *node)) {
	x, _ := files.([]any)
	y, _ := server.([]any)
	for i := range max(len(x), len(y)) {
		var a, b any
		var inner *node
		if i < len(x) {
			a = x[i]
		}
		if i < len(y) {
			b = y[i]
		}
		if at != nil && i < len(at.list) {
			inner = at.list[i]
		}
		one(i, a, b, inner)
	}
}

// value compares two values.
func (c *comparison) value(files, server any, at *node, path string) {
	if at.isUnknown() || empty(files) && empty(server) || reflect.DeepEqual(files, server) {
		return
	}
	c.found = append(c.found, AttributeDifference{Path: path, Server: server, Files: files})
}

// renamedFromOf returns the known former names of triggers in a job.
func renamedFromOf(r *Resource) dispatcher.RenamedFrom {
	all := dispatcher.RenamedFrom{}
	for name, t := range r.root.part("triggers").all() {
		if old, ok := t.part("renamed_from").text(); ok {
			all[name] = old
		}
	}
	return all
}

// rename gives the triggers of a job of the server their names in the files, and returns these as differences. It
// cannot know whether a swap of names was done, so a trigger with its name on the server counts as renamed.
func (r *Resource) rename(job *dispatcher.Job) []AttributeDifference {
	from := renamedFromOf(r)
	done := dispatcher.RenamedFrom{}
	for name, old := range from {
		if _, exists := job.Triggers[name]; exists {
			done[name] = old
		}
	}
	if len(done) < len(from) { // as in a chain, where a name becomes free and is taken at once
		done = nil
	}
	names, err := from.Pending(done, *job)
	if err != nil {
		return nil // terraform plan refuses it; the triggers differ
	}
	var found []AttributeDifference
	triggers := maps.Clone(job.Triggers)
	for old := range names {
		delete(triggers, old)
	}
	for _, name := range slices.Sorted(maps.Keys(from)) {
		if old := from[name]; names[old] == name {
			triggers[name] = job.Triggers[old]
			found = append(found, AttributeDifference{Path: "trigger[" + strconv.Quote(name) + "].renamed_from", Files: old})
		}
	}
	job.Triggers = triggers
	return found
}
