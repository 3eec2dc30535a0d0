package console

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// The bounds of the search for fires that a calendar excluded.
const (
	excludedSpan  = 7 * 24 * time.Hour
	mostExcluded  = 100
	mostOfTrigger = 1000 // fires of one trigger that are checked
	excludedSteps = 40 * schedule.StepsPerSearch
)

// calendarPage is one calendar, with the fires of a page of jobs that it excluded lately.
type calendarPage struct {
	dispatcher.Calendar
	From, To time.Time
	Excluded []excludedFire
	// Used are triggers of this page of jobs that use the calendar.
	Used int
	// Partial means that there are more fires than are shown.
	Partial bool
	// More leads to the next page of jobs.
	More string
}

// excludedFire is a fire that did not happen, or was moved, because of a calendar.
type excludedFire struct {
	Job, Trigger, Timezone string
	At                     time.Time
	Moved                  schedule.OnExcluded
}

func showCalendar(v *visit) (content, error) {
	app, name := v.PathValue("app"), v.PathValue("calendar")
	calendar, err := v.client.Calendar(v.Context(), app, name)
	if err != nil {
		return content{}, err
	}
	page := calendarPage{Calendar: calendar, From: v.Now.Add(-excludedSpan), To: v.Now}
	all, err := v.client.Calendars(v.Context(), app, input.Page{Limit: dispatcher.MaxCalendars}) // for those that it builds on
	if err != nil {
		return content{}, err
	}
	jobs, err := v.client.Jobs(v.Context(), app, input.Page{Limit: 100, Cursor: v.query("cursor")})
	if err != nil {
		return content{}, err
	}
	page.More = v.more(jobs.Next)
	page.findExcluded(v.Context(), jobs.Items, all.Items)
	return content{Title: v.Texts.Text("calendar.title", "calendar", name), Data: page}, nil
}

// findExcluded finds the fires of jobs that the current calendar excluded.
func (p *calendarPage) findExcluded(ctx context.Context, jobs []dispatcher.Job, all []dispatcher.Calendar) {
	users, calendars := dispatcher.BuiltOn(all, p.Name), dispatcher.CompileCalendars(all)
	excludes, err := calendars.Find(p.Name)
	if err != nil {
		return // an invalid calendar excludes nothing: its triggers are in state error
	}
	budget := schedule.NewBudget(ctx, excludedSteps)
	for _, job := range jobs {
		for _, name := range slices.Sorted(maps.Keys(job.Triggers)) {
			if trigger := job.Triggers[name]; trigger.Calendar != "" && users[trigger.Calendar] {
				p.Used++
				p.addExcluded(budget, excludes, job, name)
			}
		}
	}
}

// addExcluded adds the fires of a trigger that the calendar excluded, and keeps the latest of all.
func (p *calendarPage) addExcluded(budget *schedule.Budget, excludes *schedule.Calendar, job dispatcher.Job, name string) {
	trigger := job.Triggers[name]
	free := trigger.Schedule
	free.Calendar, free.OnExcluded = "", ""
	parsed, err := free.Parse(job.Identity(name), trigger.AnchorAt, nil)
	if err != nil {
		return
	}
	p.Partial = !p.addLatest(budget, parsed, func(at time.Time) bool {
		excluded := !excludes.Includes(at)
		if excluded {
			p.Excluded = append(p.Excluded, excludedFire{job.Name, name, trigger.Timezone, at, trigger.OnExcluded})
		}
		return excluded
	}) || p.Partial
	slices.SortStableFunc(p.Excluded, func(a, b excludedFire) int { return b.At.Compare(a.At) })
	if len(p.Excluded) > mostExcluded {
		p.Excluded, p.Partial = p.Excluded[:mostExcluded], true
	}
}

// addLatest offers add the fires of a schedule, those of the latest time first, until it has taken mostExcluded of them.
// It returns whether add has got all fires of the page's time. The first search is short, and further ones grow as long
// as the fires are few, because a search that is cut off leaves out its latest fires.
func (p *calendarPage) addLatest(budget *schedule.Budget, of *schedule.Schedule, add func(at time.Time) bool) bool {
	checked, added := 0, 0
	for to, span := p.To, time.Minute; to.After(p.From); {
		from := to.Add(-span)
		if from.Before(p.From) {
			from = p.From
		}
		fires, err := of.BetweenWithin(budget, from, to, mostOfTrigger-checked)
		if err != nil {
			return false
		}
		for _, at := range fires {
			if add(at) {
				added++
			}
		}
		if checked += len(fires); checked == mostOfTrigger || added >= mostExcluded && from.After(p.From) {
			return false
		}
		if 4*len(fires) < mostOfTrigger-checked {
			span *= 4
		}
		to = from
	}
	return true
}
