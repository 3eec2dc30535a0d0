package dispatcher

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// Calendar is a named set of exclusions, such as holidays or a freeze, that triggers and
// other calendars of its app refer to.
type Calendar struct {
	// App and Name identify the calendar; the client chooses them, and they cannot change. In a body they are
	// optional, and equal to those in the path.
	App  string `json:"app" schema:"Name"`
	Name string `json:"name" schema:"Name"`
	CalendarSpec
	CalendarStatus `body:"-"`
}

// CalendarSpec is the definition of a calendar, as people declare it.
type CalendarSpec struct {
	// Description is free text of at most 1024 characters.
	Description string `json:"description" schema:"max=1024"`
	// Timezone is the IANA name of the zone of the rules' days and times;
	// empty means UTC.
	Timezone string `json:"timezone" schema:"Timezone"`
	// Rules exclude instants. An instant is included when no rule excludes it.
	Rules []schedule.CalendarRule `json:"rules,omitempty" schema:"max=100"`
	// Bases name calendars of the app with further exclusions; at most maxBases.
	Bases []string `json:"bases,omitempty" schema:"Name,max=10"`
}

// CalendarStatus is what Carillon itself knows about a calendar.
type CalendarStatus struct {
	// RemovalRequestedAt is when somebody asked to delete the calendar once it is unused; it is removed with its last
	// use. It is nil without such a request, or if the calendar was put since.
	RemovalRequestedAt *time.Time `json:"removal_requested_at,omitempty"`
	// Revision counts the changes of the calendar; it is its ETag.
	Revision  int64     `json:"revision"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	// Err explains why the stored definition cannot be read, for example because a newer version wrote it. Then Rules
	// and Bases are not the stored ones, and triggers and calendars that name the calendar cannot be evaluated.
	Err error `json:"-"`
}

// Bounds of calendars.
const (
	MaxCalendars = 1000 // of an app
	maxBases     = 10   // of a calendar
	maxChain     = 10   // length of a chain of calendars, from a trigger's to the last base
)

// Validate returns everything wrong with c alone, as Problems with JSON pointers, or nil. Calendars.Check checks it
// together with the other calendars of its app.
func (c Calendar) Validate() error {
	var problems input.Problems
	input.CheckName(&problems, "/name", c.Name)
	input.CheckText(&problems, "/description", c.Description)
	_, err := schedule.NewCalendar(schedule.CalendarSpec{Timezone: c.Timezone, Rules: c.Rules})
	problems.AddError("", err)
	if len(c.Bases) > maxBases {
		problems.Add("/bases", input.CodeTooMany, "calendar has %d bases; the maximum is %d", len(c.Bases), maxBases)
	}
	for i, base := range c.Bases {
		path := c.base(i)
		input.CheckName(&problems, path, base)
		if slices.Contains(c.Bases[:i], base) {
			problems.Add(path, input.CodeCalendarBase, "base %s is named twice; name it once", input.Echo(base))
		}
	}
	return problems.Err()
}

// Calendars are the calendars of an app by name. Each is compiled on first use, together with its bases, because an
// app may have many calendars and a job names few. nil means that the calendars are unknown: then every name exists
// and excludes nothing. Calendars are safe for concurrent use.
type Calendars map[string]*declaredCalendar

type declaredCalendar struct {
	Calendar
	compiler *calendarCompiler
}

// CompileCalendars prepares all calendars of an app. A broken calendar reports its problem when it is
// looked up, and does not stop the others.
func CompileCalendars(all []Calendar) Calendars {
	compiler := calendarCompiler{declared: make(Calendars, len(all)), done: map[string]compiledCalendar{}}
	for _, c := range all {
		compiler.declared[c.Name] = &declaredCalendar{c, &compiler}
	}
	return compiler.declared
}

// Find returns a calendar. The error is a *Problem, or the problems of the calendar.
func (c Calendars) Find(name string) (*schedule.Calendar, error) {
	if c == nil {
		return schedule.NewCalendar(schedule.CalendarSpec{})
	}
	declared, ok := c[name]
	if !ok {
		return nil, &input.Problem{Path: "/calendar", Code: input.CodeCalendarUnknown,
			Message: "calendar " + input.Echo(name) + " does not exist in this app; make it first, or name one that does"}
	}
	found := declared.compile()
	if found.err != nil {
		return nil, &input.Problem{Path: "/calendar", Code: found.code(), Message: found.unusable(name)}
	}
	return found.calendar, nil
}

// Check returns the problems of the calendar of that name, as Problems, or nil.
func (c Calendars) Check(name string) error {
	if declared, ok := c[name]; ok {
		return declared.compile().err
	}
	return nil
}

func (c *declaredCalendar) compile() compiledCalendar {
	c.compiler.mu.Lock()
	defer c.compiler.mu.Unlock()
	return c.compiler.compile(c.Calendar)
}

type compiledCalendar struct {
	calendar *schedule.Calendar
	depth    int   // calendars from this to the last base
	err      error // why it cannot be used
	// cause is the first problem of the calendar that caused err, and of is the name of that calendar. Users of a
	// broken calendar report only this one, because the problems of all bases would double from level to level.
	cause input.Problem
	of    string
}

// code returns the problem code for users of a broken calendar.
func (c compiledCalendar) code() string {
	if c.cause.Code == input.CodeCalendarCost {
		return input.CodeCalendarCost
	}
	return input.CodeCalendarBase
}

// unusable explains why the calendar of that name cannot be used.
func (c compiledCalendar) unusable(name string) string {
	if c.of == name {
		return "calendar " + input.Echo(name) + " cannot be used: " + c.cause.Error()
	}
	return "calendar " + input.Echo(name) + " cannot be used because of calendar " + input.Echo(c.of) + ": " + c.cause.Error()
}

// calendarCompiler follows bases, each calendar once.
type calendarCompiler struct {
	declared Calendars

	mu    sync.Mutex
	done  map[string]compiledCalendar
	under []string // the calendars whose bases are being followed
}

func (c *calendarCompiler) compile(one Calendar) compiledCalendar {
	if found, ok := c.done[one.Name]; ok {
		return found
	}
	spec := schedule.CalendarSpec{Timezone: one.Timezone, Rules: one.Rules}
	var problems input.Problems
	result := compiledCalendar{of: one.Name}
	c.under = append(c.under, one.Name)
	for i, name := range one.Bases {
		base, known := c.declared[name]
		switch {
		case slices.Contains(c.under, name):
			problems.Add(one.base(i), input.CodeCalendarBase, "calendar %s builds on itself by way of %s; take it out", input.Echo(one.Name),
				input.Echo(name))
			continue
		case !known:
			problems.Add(one.base(i), input.CodeCalendarUnknown,
				"calendar %s does not exist in this app; make it first, or name one that does", input.Echo(name))
			continue
		}
		compiled := c.compile(base.Calendar)
		result.depth = max(result.depth, compiled.depth)
		if compiled.err != nil {
			problems.Add(one.base(i), compiled.code(), "%s", compiled.unusable(name))
			if result.cause.Code == "" {
				result.cause, result.of = compiled.cause, compiled.of
			}
			continue
		}
		spec.Bases = append(spec.Bases, compiled.calendar)
	}
	c.under = c.under[:len(c.under)-1]
	if result.depth++; result.depth > maxChain {
		problems.Add("/bases", input.CodeTooMany, "calendar %s is a chain of %d; the maximum is %d", input.Echo(one.Name), result.depth, maxChain)
	}
	if result.err = cmp.Or(one.Err, problems.Err()); result.err == nil {
		var err error
		if result.calendar, err = schedule.NewCalendar(spec); err != nil {
			problems.AddError("", err)
			result.err = problems
		}
	}
	if result.err != nil && result.cause.Code == "" {
		problems = nil
		problems.AddError("", result.err)
		result.cause = problems[0]
	}
	c.done[one.Name] = result
	return result
}

// base returns the JSON pointer of a base.
func (c Calendar) base(i int) string { return input.Pointer("bases", strconv.Itoa(i)) }

// BuiltOn returns the names of the calendars that use the named one through their bases, and that name itself.
func BuiltOn(all []Calendar, name string) map[string]bool {
	users := map[string]bool{name: true}
	for grown := true; grown; {
		grown = false
		for _, c := range all {
			uses := slices.ContainsFunc(c.Bases, func(base string) bool { return users[base] })
			if uses && !users[c.Name] {
				users[c.Name], grown = true, true
			}
		}
	}
	return users
}

// CalendarBefore holds everything that a change of a calendar depends on: all calendars of its app, by name.
type CalendarBefore struct {
	All []Calendar
	// Triggers has the triggers that use calendars that may be removed, by the name of the calendar.
	Triggers map[string]Users
}

// Users are the users of a calendar or a group: the name of one, and their number.
type Users struct {
	First string
	Count int
}

// Check returns an ErrInUse that names a user, if there are users.
func (u Users) Check(what, name string) error {
	if u.Count == 0 {
		return nil
	}
	if u.Count > 1 {
		u.First += fmt.Sprintf(" and %d more", u.Count-1)
	}
	return fmt.Errorf("%s %s is used by %s: %w", what, input.Echo(name), u.First, ErrInUse)
}

// checkUnused returns an ErrInUse that names a user, if a calendar has users.
func (b *CalendarBefore) checkUnused(name string) error {
	users := b.Triggers[name]
	for _, c := range b.All {
		if slices.Contains(c.Bases, name) {
			users.First = cmp.Or(users.First, "calendar "+input.Echo(c.Name))
			users.Count++
		}
	}
	return users.Check("calendar", name)
}

// Delete returns the calendars that are removed when one is deleted: itself, and those that were kept only as its
// bases. It returns none if the calendar has users and may wait for their end. The error is ErrNotFound or ErrInUse.
func (b CalendarBefore) Delete(app, name string, wait bool) ([]Calendar, error) {
	calendar := b.Current(name)
	if calendar.Revision == 0 {
		return nil, NotFound("calendar", app+"/"+name)
	}
	switch err := b.checkUnused(name); {
	case err == nil:
		return b.drop(calendar), nil
	case !wait:
		return nil, err
	}
	return nil, nil
}

// Unused returns those of some calendars that are due to be removed because their last use has ended, and the ones
// removed with them. It takes them out of b.
func (b *CalendarBefore) Unused(names []string) (gone []Calendar) {
	for _, name := range names {
		if c := b.Current(name); c.RemovalRequestedAt != nil && b.checkUnused(name) == nil {
			gone = append(gone, b.drop(c)...)
		}
	}
	return gone
}

func (b *CalendarBefore) drop(calendar Calendar) []Calendar {
	b.All = slices.DeleteFunc(slices.Clone(b.All), func(c Calendar) bool { return c.Name == calendar.Name })
	return append([]Calendar{calendar}, b.Unused(calendar.Bases)...)
}

// CalendarChange is the effect of a PUT of a calendar on the calendars of its app.
type CalendarChange struct {
	Current Calendar // the replaced calendar; without a revision there is none
	// Changed are the calendars that now exclude other instants, themselves or through bases; empty if only a
	// description changed.
	Changed       map[string]bool
	Before, After Calendars
}

// Current returns the stored calendar of that name, or one without revision if it does not exist.
func (b CalendarBefore) Current(name string) Calendar {
	for _, c := range b.All {
		if c.Name == name {
			return c
		}
	}
	return Calendar{}
}

// Put returns the effect of declared, which is valid by itself. The error is Problems: it or a calendar that is built
// on it could not be used, or the app has too many calendars.
func (b CalendarBefore) Put(declared Calendar) (CalendarChange, error) {
	after := append(slices.Clone(b.All), declared)
	change := CalendarChange{Current: b.Current(declared.Name)}
	if i := slices.IndexFunc(b.All, func(c Calendar) bool { return c.Name == declared.Name }); i >= 0 {
		after = slices.Delete(after, i, i+1)
	}
	change.Before, change.After = CompileCalendars(b.All), CompileCalendars(after)
	users := BuiltOn(after, declared.Name)
	if err := change.After.checkPut(declared.Name, users); err != nil {
		return change, err
	}
	if readable := change.Current.Revision != 0 && change.Current.Err == nil; !readable || !change.Current.excludesAs(declared) {
		change.Changed = users
	}
	return change, nil
}

// excludesAs reports whether c and other exclude the same instants because they are declared alike.
func (c Calendar) excludesAs(other Calendar) bool {
	c.Description = other.Description
	return input.SameJSON(c.CalendarSpec, other.CalendarSpec)
}

// checkPut returns the problems of the named calendar, or else of one that is built on it.
func (c Calendars) checkPut(name string, users map[string]bool) error {
	var problems input.Problems
	if len(c) > MaxCalendars {
		problems.Add("", input.CodeTooMany, "the app has %d calendars already, which is the maximum; delete one "+
			"that is not used", MaxCalendars)
		return problems
	}
	if problems.AddError("", c.Check(name)); len(problems) > 0 {
		return problems // its users would report the same
	}
	for _, user := range input.SortedKeys(users) {
		if err := c.Check(user); err != nil {
			problems.Add("/bases", input.CodeCalendarBase, "calendar %s, which is built on this, could not be used: %v",
				input.Echo(user), err)
		}
	}
	return problems.Err()
}
