package console

import (
	"net/url"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/console/kit"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// timelinePage shows the jobs of an app over time.
type timelinePage struct {
	App, Job string
	From, To time.Time
	// GivenFrom and GivenTo are their texts in the query, which need not be times.
	GivenFrom, GivenTo string
	// Apps are the choices, if none is chosen.
	Apps []access.App
	// Problems are the problems with the query; nothing is drawn then.
	Problems []string
	Chart    kit.RowsChart
	timelineLinks
	Next, First string
	Legend      []string
}

// timelineLinks are links to other times.
type timelineLinks struct {
	// Earlier, Later and Present lead to the same length of time before, after and around the present.
	Earlier, Later, Present string
	// Last are the lengths of time before now that a person can choose; a third of it after now is shown, too.
	Last []lastChoice
}

// The defaults of a timeline.
const (
	timelinePast = 6 * time.Hour
	timelineNext = 2 * time.Hour
	// rowsOfTimeline is how many jobs a page has.
	rowsOfTimeline = 15
	// markRoom is the room of a mark: marks that are closer are drawn as one.
	markRoom = 36 // the width of a mark, and how far it may be moved to stay on its side of the present
)

// showTimeline draws the jobs of an app over time.
func showTimeline(v *visit) (content, error) {
	page := timelinePage{App: v.query("app"), Job: v.query("job"), GivenFrom: v.query("from"), GivenTo: v.query("to")}
	if page.App == "" && len(v.token.Apps) == 1 {
		page.App = v.token.Apps[0]
	}
	if page.App == "" {
		apps, err := v.client.Apps(v.Context(), input.Page{Limit: 1000})
		page.Apps = apps.Items
		return content{Data: page}, err
	}
	page.From, page.To = v.Now.Add(-timelinePast).Truncate(time.Minute), v.Now.Add(timelineNext).Truncate(time.Minute)
	page.Last = v.lastChoices("1h", "6h", "24h")
	if last, err := input.ParseDuration(v.query("last")); err == nil && last > 0 {
		page.From, page.To = v.Now.Add(-last.Std()).Truncate(time.Minute), v.Now.Add(last.Std()/3).Truncate(time.Minute)
	}
	page.Problems = v.readBounds(&page.From, &page.To)
	if v.query("from") != "" && v.query("to") == "" {
		page.To = page.From.Add(timelinePast + timelineNext)
	}
	if v.query("to") != "" && v.query("from") == "" {
		page.From = page.To.Add(-timelinePast - timelineNext)
	}
	if len(page.Problems) == 0 && !page.To.After(page.From) {
		page.Problems = append(page.Problems, v.Texts.Text("timeline.order"))
	}
	if len(page.Problems) > 0 {
		return content{Data: page}, nil
	}
	found, err := v.client.Timeline(v.Context(), view.TimelineQuery{
		App: page.App, Job: page.Job, From: page.From, To: page.To, Page: input.Page{Limit: rowsOfTimeline, Cursor: v.query("cursor")},
	})
	if err != nil {
		return content{}, err
	}
	page.From, page.To = found.From, found.To
	axis := kit.Span{From: found.From, To: found.To}
	page.Chart = kit.NewRows(axis, v.Zone.In(v.Now, "").Location(), found.Now)
	for _, row := range found.Items {
		page.Chart.Add(axis, row.Job, v.link("apps", page.App, "jobs", row.Job), page.events(v, axis, found.Now, row), row.More)
	}
	page.Next, page.First = v.more(found.Next), v.first()
	page.Legend = page.Chart.Legend()
	page.addLinks(v)
	return content{Data: page, Refresh: true}, nil
}

// addLinks adds links to the times before and after.
func (p *timelinePage) addLinks(v *visit) {
	length := p.To.Sub(p.From)
	at := func(from, to time.Time) string {
		q := url.Values{"app": {p.App}, "from": {input.FormatInstant(from)}, "to": {input.FormatInstant(to)}}
		if p.Job != "" {
			q.Set("job", p.Job)
		}
		return v.linkQuery(q, "timeline")
	}
	p.Earlier, p.Later = at(p.From.Add(-length), p.From), at(p.To, p.To.Add(length))
	now := url.Values{"app": {p.App}}
	if p.Job != "" {
		now.Set("job", p.Job)
	}
	p.Present = v.linkQuery(now, "timeline")
}

// crowd is marks that are so close that they are drawn as one.
type crowd struct {
	first   view.TimelineMark
	last    time.Time
	shape   string
	count   int
	atLeast bool
	marks   int
}

// events returns the marks of a row. Marks that are too close to distinguish are one: with the worst of their shapes,
// and never past and planned events together.
func (p *timelinePage) events(v *visit, axis kit.Span, now time.Time, row view.TimelineRow) []kit.RowEvent {
	var crowds []crowd
	for _, mark := range row.Marks {
		shape, last := shapeOfMark(mark), mark.ScheduledAt
		if mark.Last != nil {
			last = *mark.Last
		}
		next := crowd{first: mark, last: last, shape: shape, count: mark.Count, atLeast: mark.AtLeast, marks: 1}
		if n := len(crowds); n > 0 {
			c := &crowds[n-1]
			near := axis.X(mark.ScheduledAt, kit.RowsWidth)-axis.X(c.first.ScheduledAt, kit.RowsWidth) < markRoom
			if near && (c.shape == kit.ShapePlanned) == (shape == kit.ShapePlanned) {
				c.count += next.count
				c.marks += next.marks
				c.atLeast = c.atLeast || next.atLeast
				if next.last.After(c.last) {
					c.last = next.last
				}
				if severity(next.shape) > severity(c.shape) {
					c.shape = next.shape
				}
				continue
			}
		}
		crowds = append(crowds, next)
	}
	events := make([]kit.RowEvent, len(crowds))
	for i, c := range crowds {
		events[i] = p.event(v, now, row.Job, c)
	}
	return events
}

// severity orders shapes: that of a crowd is the one that a person should see.
func severity(shape string) int {
	switch shape {
	case kit.ShapeFailed:
		return 6
	case kit.ShapeMisfire:
		return 5
	case kit.ShapeRetrying:
		return 4
	case kit.ShapeLive:
		return 3
	case kit.ShapeSkipped:
		return 2
	case kit.ShapeOK:
		return 1
	}
	return 0
}

// event returns one mark or a crowd as a mark, with its link: to the run, the explanation, or the list of runs.
func (p *timelinePage) event(v *visit, now time.Time, job string, c crowd) kit.RowEvent {
	e := kit.RowEvent{From: c.first.ScheduledAt, Shape: c.shape}
	zone := v.Zone.In(now, "").Location()
	when := c.first.ScheduledAt.In(zone).Format(kit.TitleTime)
	switch single := c.marks == 1 && c.count <= 1; {
	case single && c.first.Run != "":
		e.Link = v.link("runs", c.first.Run)
		e.From, e.To = drawnSpan(c.first, now)
	case single && c.first.Trigger != "":
		e.Link = v.linkQuery(url.Values{"at": {input.FormatInstant(c.first.ScheduledAt)}},
			"apps", p.App, "jobs", job, "triggers", c.first.Trigger, "explain")
	default:
		e.Link = p.linkOf(v, job, c)
		if c.last.After(c.first.ScheduledAt) {
			when = v.Texts.Text("strip.range", "from", when, "to", c.last.In(zone).Format(kit.TitleTime))
		}
	}
	word := v.Texts.Text("strip." + c.shape)
	if c.marks == 1 && c.first.State != "" {
		word = v.Texts.Text("state." + string(c.first.State))
	}
	e.Title = job + ", " + when + ": " + word
	if c.count > 1 {
		count := kit.GroupDigits(int64(c.count))
		if c.atLeast {
			count += "+"
		}
		e.Title += " (" + v.Texts.Text("timeline.several", "count", count) + ")"
	}
	if c.marks == 1 && c.first.Class != "" {
		e.Title += ", " + v.Texts.Word("class.", string(c.first.Class))
	}
	return e
}

// linkOf returns the link of several marks: to the list of them. Planned fires are in none.
func (p *timelinePage) linkOf(v *visit, job string, c crowd) string {
	q := url.Values{"job": {job}, "from": {input.FormatInstant(c.first.ScheduledAt)}, "to": {input.FormatInstant(c.last)}}
	switch c.shape {
	case kit.ShapePlanned:
		return v.link("apps", p.App, "jobs", job)
	case kit.ShapeMisfire:
		return v.linkQuery(q, "apps", p.App, "misfires")
	}
	return v.linkQuery(q, "apps", p.App, "runs")
}

// drawnSpan returns the span of a run in the picture: from its first start to its end, or until now.
func drawnSpan(mark view.TimelineMark, now time.Time) (from, to time.Time) {
	from = mark.ScheduledAt
	if mark.StartedAt != nil {
		from = *mark.StartedAt
	}
	switch {
	case mark.EndedAt != nil:
		return from, *mark.EndedAt
	case mark.StartedAt != nil:
		return from, now
	}
	return from, time.Time{}
}

func shapeOfMark(mark view.TimelineMark) string {
	switch mark.What {
	case view.MarkMisfire:
		return kit.ShapeMisfire
	case view.MarkPlanned:
		return kit.ShapePlanned
	}
	return kit.ShapeOfRun(mark.State)
}
