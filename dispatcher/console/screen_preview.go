package console

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/console/kit"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// previewPage shows when an expression fires.
type previewPage struct {
	previewForm
	// Problem is the problem that the API found in it; nil: none.
	Problem *problemView
	// Found is the response, nil if nothing was asked.
	Found    *view.Preview
	Rows     []previewRow
	Words    string
	Warnings []string
	Nights   []night
}

// previewForm is the form, and its choices.
type previewForm struct {
	Expression, Dialect, Timezone, App, Calendar, Count, From, Gap, Overlap, Identity string

	Dialects []schedule.Dialect
	Gaps     []schedule.Gap
	Overlaps []schedule.Overlap
}

// previewRow is a fire.
type previewRow struct {
	At    time.Time
	Local string        // in the zone of the schedule
	After time.Duration // since the fire before it, 0 for the first
}

// night is a change of the clock within a year that skips, moves or doubles fires, with the fires around it.
type night struct {
	schedule.Shift
	Fires []previewRow
}

// Bounds of the list of nights with a change of the clock.
const (
	nightsAhead  = 366 * 24 * time.Hour
	mostNights   = 4
	firesOfNight = 3 // before and after each
)

// showPreview shows the form, and the fires of its expression.
func showPreview(v *visit) (content, error) {
	page := previewPage{previewForm: previewForm{
		Expression: v.query("expression"), Dialect: v.query("dialect"), Timezone: v.query("timezone"), App: v.query("app"),
		Calendar: v.query("calendar"), Count: cmp.Or(v.query("count"), strconv.Itoa(view.DefaultPreview)), From: v.query("from"),
		Gap: v.query("gap"), Overlap: v.query("overlap"), Identity: v.query("identity"),
		Dialects: []schedule.Dialect{
			schedule.DialectQuartz, schedule.DialectUnix, schedule.DialectAWS, schedule.DialectInterval, schedule.DialectAt,
			schedule.DialectCalendarInterval, schedule.DialectDailyInterval,
		},
		Gaps:     []schedule.Gap{schedule.GapSkip, schedule.GapNext},
		Overlaps: []schedule.Overlap{schedule.OverlapLast, schedule.OverlapFirst, schedule.OverlapBoth},
	}}
	if page.Expression == "" {
		return content{Data: page}, nil
	}
	asked, err := page.request()
	if err == nil {
		var found view.Preview
		if found, err = v.client.Preview(v.Context(), asked); err == nil {
			page.Found = &found
			page.add(asked)
		}
	}
	shown := content{Data: page}
	if page.Found != nil {
		shown.Zone = page.Found.Timezone
	}
	if err != nil {
		if _, asked := errors.AsType[input.Problems](err); !asked { // otherwise the form is shown again with the problems in it
			return content{}, err
		}
		problem := v.problemOf(err)
		page.Problem = &problem
		shown = content{Data: page, Status: problem.Status}
	}
	return shown, nil
}

func (p previewPage) request() (view.PreviewRequest, error) {
	var problems input.Problems
	asked := view.PreviewRequest{
		Schedule: dispatcher.Schedule{
			Expression: p.Expression, Dialect: schedule.Dialect(p.Dialect), Timezone: p.Timezone, Calendar: p.Calendar,
			Gap: schedule.Gap(p.Gap), Overlap: schedule.Overlap(p.Overlap),
		},
		App: p.App, Identity: p.Identity,
	}
	count, err := strconv.Atoi(p.Count)
	if err != nil {
		problems.Add("/count", input.CodeCountRange, "count %s is not a number; write 1 to %d", input.Echo(p.Count),
			view.MaxPreview)
	}
	asked.Count = count
	if p.From != "" {
		from, err := input.ParseInstant(p.From)
		if err != nil {
			problems.AddError("/from", err)
		}
		asked.From = &from
	}
	return asked, problems.Err()
}

// add adds the schedule's description, its warnings, and the nights in which the clock changes. These leave calendars
// out, as the page states; the fire times of the API do not.
func (p *previewPage) add(asked view.PreviewRequest) {
	resolved := p.Found.Schedule
	resolved.Gap, resolved.Overlap = asked.Gap, asked.Overlap // a missing rule gets a warning
	parsed, err := resolved.Parse(asked.Identity, p.Found.From, nil)
	if err != nil {
		return // the API has accepted it, so it reports problems itself
	}
	p.Words = parsed.Describe(p.Found.From)
	p.Rows = previewRows(parsed, p.Found.FireTimes)
	for _, warning := range parsed.Warnings(p.Found.From) {
		p.Warnings = append(p.Warnings, warning.Message)
	}
	for _, shift := range parsed.Shifts(p.Found.From, p.Found.From.Add(nightsAhead)) {
		if len(p.Nights) < mostNights {
			p.Nights = append(p.Nights, night{Shift: shift, Fires: previewRows(parsed, firesAround(parsed, shift.At))})
		}
	}
}

// firesAround returns the fires next to a change of the clock.
func firesAround(parsed *schedule.Schedule, change time.Time) []time.Time {
	var fires []time.Time
	for at := change; len(fires) < firesOfNight; {
		previous, ok := parsed.Previous(at)
		if !ok {
			break
		}
		fires, at = append(fires, previous), previous
	}
	slices.Reverse(fires)
	for at, n := change.Add(-time.Millisecond), 0; n < firesOfNight; n++ {
		next, ok := parsed.Next(at)
		if !ok {
			break
		}
		fires, at = append(fires, next), next
	}
	return fires
}

// previewRows lists fires with their local times.
func previewRows(parsed *schedule.Schedule, times []time.Time) []previewRow {
	rows := make([]previewRow, len(times))
	for i, at := range times {
		rows[i] = previewRow{At: at, Local: parsed.In(at).Format("Mon 2006-01-02 15:04:05 -07:00 MST")}
		if i > 0 {
			rows[i].After = at.Sub(times[i-1])
		}
	}
	return rows
}

// explainPage shows the result of one scheduled time of a trigger, and the reasons.
type explainPage struct {
	App, Job, Trigger string
	// Zone is that of the trigger, if times are shown in it.
	Zone string
	// At is the text in the form.
	At string
	// Problem is the problem with At.
	Problem string
	// Found is the explanation as the command line prints it, nil if no time is given. Its type belongs to a package
	// that the console does not import.
	Found any
}

func showExplain(v *visit) (content, error) {
	page := explainPage{App: v.PathValue("app"), Job: v.PathValue("job"), Trigger: v.PathValue("trigger"), At: v.query("at")}
	result := content{Title: v.Texts.Text("explain.title", "trigger", dispatcher.Identity(page.App, page.Job, page.Trigger))}
	if page.At == "" {
		result.Data = page
		return result, nil
	}
	at, err := input.ParseInstant(page.At)
	if err != nil {
		page.Problem = err.Error()
		result.Data = page
		return result, nil //nolint:nilerr // the page shows it
	}
	found, err := v.client.Explain(v.Context(), page.App, page.Job, page.Trigger, at)
	if err != nil {
		return content{}, err
	}
	page.Zone = v.zoneOf(page.App, page.Job, page.Trigger)
	page.Found = found
	result.Data, result.Zone = page, page.Zone
	return result, nil
}

// zoneOf returns the zone of a trigger if times are shown in it; empty: they are not, or the trigger was deleted. Only
// that costs a request, because runs and explanations do not contain their zone.
func (v *visit) zoneOf(app, job, trigger string) string {
	if v.Zone.Choice != kit.ZoneTrigger || trigger == "" {
		return ""
	}
	found, err := v.client.Job(v.Context(), app, job)
	if err != nil {
		return ""
	}
	return found.Triggers[trigger].Timezone
}
