package api

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/api/decode"
	"github.com/carillon-dev/carillon/dispatcher/api/gate"
	"github.com/carillon-dev/carillon/dispatcher/cache"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/verify"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// queriedApps returns the apps of a route over all apps: the one in the query, or those of the token; empty: all. The
// error has the problems of the query, too.
func (r *request) queriedApps(problems *input.Problems) ([]string, error) {
	app, given := r.URL.Query().Get("app"), r.URL.Query().Has("app")
	if given {
		input.CheckName(problems, "/app", app)
	}
	if err := problems.Err(); err != nil {
		return nil, err
	}
	if !given {
		return r.Token.Apps, nil
	}
	if !r.MaySee(app) {
		return nil, r.NotBound(app)
	}
	return []string{app}, nil
}

// overviewApps is queriedApps for apps that have to exist.
func (a *API) overviewApps(r *request, problems *input.Problems) ([]string, error) {
	apps, err := r.queriedApps(problems)
	if err == nil && r.URL.Query().Has("app") {
		_, err = a.store.App(r.Context(), apps[0])
	}
	return apps, err
}

// evaluated serves the result of a computation that takes one of the node's places for evaluations.
func evaluated[T any](a *API, r *request, most time.Duration, compute func(context.Context) (T, error)) (response, error) {
	ctx, done, err := a.gate.Evaluate(r.Request, most)
	if err != nil {
		return response{}, err
	}
	defer done()
	found, err := compute(ctx)
	return response{body: found}, err
}

// listJobSummaries lists jobs of all apps by app and name, without their definitions. With order next_fire, it lists
// the jobs that have a next fire, the earliest first. A token that is bound to apps
// gets the jobs of those apps. A page covers 100,000 jobs at most, 2,000 with state or label, and 1,000 with result, so
// a page with filters may contain fewer jobs than you asked for, or none; continue as long as the response has next.
func (a *API) listJobSummaries(r *request) (response, error) {
	query, err := r.jobQuery()
	if err != nil {
		return response{}, err
	}
	var problems input.Problems
	if query.Apps, err = a.overviewApps(r, &problems); err != nil {
		return response{}, err
	}
	summaries, next, err := a.store.JobSummaries(r.Context(), query)
	body := newList(summaries)
	body.Next = next
	return response{body: body}, err
}

// jobQuery reads the parameters of the list of summaries, without the app.
func (r *request) jobQuery() (query dispatcher.JobQuery, err error) {
	var problems input.Problems
	values := r.URL.Query()
	query = dispatcher.JobQuery{
		State: dispatcher.JobState(values.Get("state")), Result: run.State(values.Get("result")),
		Name: values.Get("name"), Host: values.Get("host"), ByNextFire: values.Get("order") == "next_fire",
	}
	isCursor := isJobCursor
	if query.ByNextFire {
		isCursor = run.IsID
	} else if values.Has("order") {
		input.CheckEnum(&problems, "/order", "order", values.Get("order"), []string{"name", "next_fire"})
	}
	query.Page = r.page(&problems, isCursor)
	query.Page.Bytes = gate.PageBytes
	if values.Has("state") {
		input.CheckEnum(&problems, "/state", "state", query.State, dispatcher.JobStates)
	}
	if values.Has("result") {
		input.CheckEnum(&problems, "/result", "result", query.Result, run.FinalStates)
	}
	r.checkFilters(&problems, "name", "host")
	labels, err := r.labels()
	problems.AddError("", err)
	query.Page.Labels = labels
	return query, problems.Err()
}

// checkFilters adds the problems of parameters that select by a text.
func (r *request) checkFilters(problems *input.Problems, names ...string) {
	values := r.URL.Query()
	for _, name := range names {
		if text := values.Get(name); values.Has(name) && (text == "" || len(text) > maxFilter || !printable(text)) {
			problems.Add("/"+name, input.CodeTextInvalid, "%s is empty, longer than %d bytes or holds a control character, as none does",
				name, maxFilter)
		}
	}
}

// maxFilter is longer than any name of a host, function, group, queue or topic.
const maxFilter = 300

func isJobCursor(text string) bool {
	_, _, ok := dispatcher.ParseJobCursor(text)
	return ok
}

// getAttention shows what a person on call should look at. Failures and misfires of the last 24 hours, overdue
// triggers, triggers in error, pauses, firing alerts, error budgets that burn, hosts that runs wait for, groups without
// an endpoint, failing secrets, expiring certificates, and history past its retention: 20 of each at most. A token that
// is bound to apps gets those of its apps, without nodes and rollback.
func (a *API) getAttention(r *request) (response, error) {
	var problems input.Problems
	apps, err := a.overviewApps(r, &problems)
	if err != nil {
		return response{}, err
	}
	found, err := a.store.Attention(r.Context(), apps, time.Time{})
	if err == nil {
		err = verify.AddHolds(r.Context(), a.store, found.Misfires.Items)
	}
	return response{body: found}, err
}

// getUpcomingFires counts the upcoming fires, in steps of five minutes. Nodes count on request, and use a count for
// five minutes. The count takes some seconds with many thousand triggers; until then the response has the previous
// count, or none, and computing. For a fixed delay only the next fire counts; triggers that do not fire now, such as
// paused ones, do not count.
func (a *API) getUpcomingFires(r *request) (response, error) {
	var problems input.Problems
	hours := view.UpcomingHours
	if text := r.URL.Query().Get("hours"); r.URL.Query().Has("hours") {
		var err error
		if hours, err = strconv.Atoi(text); err != nil || hours < 1 || hours > view.MaxUpcomingHours {
			problems.Add("/hours", input.CodeCountRange, "hours %s is not a number from 1 to %d", input.Echo(text),
				view.MaxUpcomingHours)
		}
	}
	apps, err := a.overviewApps(r, &problems)
	if err != nil {
		return response{}, err
	}
	fires := a.forecasts.latest(r.Context(), apps, r.Now)
	if steps := hours * int(time.Hour/view.UpcomingStep); len(fires.Counts) > steps {
		fires.Counts = fires.Counts[:steps]
	}
	return response{body: fires}, nil
}

// timelineAround is how much of the past and of the future a timeline without times has.
const timelineAround = 6 * time.Hour

// getTimeline shows the runs, misfires and planned fires of an app's jobs between two times. Rows are jobs in the order
// of their names. A row has at most 200 marks: those of a crowded row are grouped. Without from and to: the six hours
// before now and the six after it.
func (a *API) getTimeline(r *request) (response, error) {
	var problems input.Problems
	values := r.URL.Query()
	query := view.TimelineQuery{
		App: r.PathValue("app"), Job: values.Get("job"), From: r.instant(&problems, "from"), To: r.instant(&problems, "to"),
		Page: r.page(&problems, input.IsName),
	}
	if !values.Has("limit") {
		query.Page.Limit = view.MostTimelineRows
	}
	if query.Page.Limit > view.MostTimelineRows {
		problems.Add("/limit", input.CodePageLimit, "limit %d is not a number from 1 to %d", query.Page.Limit, view.MostTimelineRows)
	}
	if values.Has("job") {
		input.CheckName(&problems, "/job", query.Job)
	}
	switch from, to := values.Has("from"), values.Has("to"); {
	case from && !to:
		query.To = query.From.Add(2 * timelineAround)
	case to && !from:
		query.From = query.To.Add(-2 * timelineAround)
	case !from:
		query.From, query.To = r.Now.Add(-timelineAround), r.Now.Add(timelineAround)
	}
	query.From, query.To = query.From.UTC().Truncate(time.Millisecond), query.To.UTC().Truncate(time.Millisecond)
	checkOrder(&problems, query.From, query.To)
	if span := query.To.Sub(query.From); span > view.MostTimeline {
		problems.Add("/to", input.CodeDurationMax, "to is %s after from; the maximum is %s, so ask for a shorter time", span,
			view.MostTimeline)
	}
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	return evaluated(a, r, gate.EvaluationTimeout, func(ctx context.Context) (view.Timeline, error) {
		return a.store.Timeline(ctx, query)
	})
}

// getStatistics counts the runs and misfires of each UTC day. A run counts on the day of its scheduled time if it ended
// within 24 hours of it, otherwise on the day of its end. A token that is bound to apps gets those of its apps. Days
// are kept for 400 days.
func (a *API) getStatistics(r *request) (response, error) {
	var problems input.Problems
	query := view.StatisticsQuery{From: r.instant(&problems, "from"), To: r.instant(&problems, "to")}
	checkOrder(&problems, query.From, query.To)
	var err error
	if query.Apps, err = a.overviewApps(r, &problems); err != nil {
		return response{}, err
	}
	found, err := a.store.Statistics(r.Context(), query)
	return response{body: found}, err
}

// preview previews the fire times of a schedule.
//
// preview uses the database's clock, like a declaration of the schedule, and the calendars of the app in the request.
func (a *API) preview(r *request) (response, error) {
	var asked view.PreviewRequest
	problems := r.Decode(&asked)
	if asked.App != "" && !r.MaySee(asked.App) {
		return response{}, r.NotBound(asked.App)
	}
	if asked.App != "" && asked.NeedsTimezone() {
		defaults, err := a.store.JobDefaults(r.Context(), asked.App)
		if err != nil {
			return response{}, err
		}
		if defaults != nil {
			asked.Timezone = defaults.Timezone
		}
	}
	decode.AddInvalid(&problems, asked.CheckTimezone())
	decode.AddInvalid(&problems, asked.Validate())
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	var calendars dispatcher.Calendars
	if asked.Calendar != "" {
		_, all, err := a.store.AppCalendars(r.Context(), asked.App)
		if err != nil {
			return response{}, err
		}
		calendars = dispatcher.CompileCalendars(all)
	}
	now, err := a.store.Clock(r.Context())
	if err != nil {
		return response{}, err
	}
	return evaluated(a, r, gate.EvaluationTimeout, func(ctx context.Context) (view.Preview, error) {
		return asked.Preview(ctx, calendars, now)
	})
}

const (
	// forecastAge is how long a count of upcoming fires is shown before they are counted again.
	forecastAge = 5 * time.Minute
	// forecastPatience is how long a request waits for a count, which is enough for some thousand triggers.
	forecastPatience = 100 * time.Millisecond
	// forecastTimeout bounds one count.
	forecastTimeout = time.Minute
	// maxForecasts is how many sets of apps have a kept count.
	maxForecasts = 200
	// forecastPage and forecastPages bound the triggers that are counted.
	forecastPage  = 1000
	forecastPages = 200
)

// forecasts are the counts of upcoming fires, for each requested set of apps. One is counted at a time.
type forecasts struct {
	store  Store
	log    *slog.Logger
	wanted chan *forecast

	mu   sync.Mutex
	apps *cache.Cache[string, *forecast]
}

// forecast is the count of upcoming fires of some apps.
type forecast struct {
	apps []string
	// done is closed when the count under way is over; nil: none is.
	done  chan struct{}
	fires view.UpcomingFires
	at    time.Time // zero: never counted
}

func newForecasts(store Store, log *slog.Logger) *forecasts {
	return &forecasts{store: store, log: log, wanted: make(chan *forecast, maxForecasts),
		apps: cache.New[string, *forecast](maxForecasts)}
}

// latest returns the latest count, and starts another if it is old.
func (f *forecasts) latest(ctx context.Context, apps []string, now time.Time) view.UpcomingFires {
	one, done := f.ask(apps, now)
	if done != nil {
		patience := time.NewTimer(forecastPatience)
		defer patience.Stop()
		select {
		case <-done:
		case <-patience.C:
		case <-ctx.Done():
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	fires := one.fires
	fires.Computing = one.done != nil
	if fires.Counts == nil {
		fires.Step, fires.Counts = input.Duration(view.UpcomingStep), []int64{}
		fires.From = now.UTC().Truncate(view.UpcomingStep)
	}
	return fires
}

// ask returns the count of some apps. done is closed when the count under way is over; nil: do not wait. A count that
// is a little too old is shown while the next one is under way.
func (f *forecasts) ask(apps []string, now time.Time) (one *forecast, done <-chan struct{}) {
	apps = slices.Compact(slices.Sorted(slices.Values(apps)))
	key := strings.Join(apps, ",")
	f.mu.Lock()
	defer f.mu.Unlock()
	one, known := f.apps.Get(key)
	if !known {
		one = &forecast{apps: apps}
	}
	f.apps.Put(key, one)
	if one.done == nil && (one.at.IsZero() || now.Sub(one.at) >= forecastAge) {
		select {
		case f.wanted <- one:
			one.done = make(chan struct{})
		default: // enough others are waiting
		}
	}
	if now.Sub(one.at) < 2*forecastAge {
		return one, nil
	}
	return one, one.done
}

// run makes the requested counts, until ctx ends.
func (f *forecasts) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case one := <-f.wanted:
			fires, now, err := f.count(ctx, one.apps)
			if err != nil && ctx.Err() == nil {
				f.log.WarnContext(ctx, "count upcoming fires", "apps", one.apps, "err", err)
			}
			f.mu.Lock()
			if err == nil {
				one.fires, one.at = fires, now
			}
			close(one.done)
			one.done = nil
			f.mu.Unlock()
		}
	}
}

// count counts the upcoming fires of some apps, or of all if apps is empty.
func (f *forecasts) count(ctx context.Context, apps []string) (fires view.UpcomingFires, at time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, forecastTimeout)
	defer cancel()
	now, err := f.store.Clock(ctx)
	if err != nil {
		return fires, at, err
	}
	now = now.Truncate(time.Millisecond)
	counter, calendars := view.NewUpcomingCounter(now), map[string]dispatcher.Calendars{}
	after := int64(-1 << 63)
	for page := 0; ; page++ {
		triggers, err := f.store.UpcomingTriggers(ctx, apps, counter.Until(), after, forecastPage)
		if err != nil {
			return fires, at, err
		}
		for _, t := range triggers {
			if err := f.compile(ctx, t, calendars); err != nil {
				return fires, at, err
			}
			counter.Add(t, calendars[t.App])
			after = t.ID
		}
		if len(triggers) < forecastPage {
			break
		}
		if page+1 == forecastPages {
			counter.LeaveOut()
			break
		}
	}
	return counter.Fires(now), time.Now(), nil //nolint:forbidigo // the clock of this process
}

// compile reads the calendars of the app of a trigger that needs one.
func (f *forecasts) compile(ctx context.Context, t view.UpcomingTrigger, calendars map[string]dispatcher.Calendars) error {
	if _, known := calendars[t.App]; known || t.Trigger.Calendar == "" {
		return nil
	}
	_, all, err := f.store.AppCalendars(ctx, t.App)
	if err != nil {
		return fmt.Errorf("read the calendars of app %s: %w", t.App, err)
	}
	calendars[t.App] = dispatcher.CompileCalendars(all)
	return nil
}

// verifyApp compares the ledger with the schedules. Compares the ledger of each trigger with the schedules that were in
// force at the time. One call does a bounded amount of work: a trigger with many scheduled times comes in parts, and a
// page may contain fewer jobs than you asked for. Continue as long as the response has next.
func (a *API) verifyApp(r *request) (response, error) {
	var problems input.Problems
	query := verify.Query{
		App: r.PathValue("app"), From: r.instant(&problems, "from"), To: r.instant(&problems, "to"),
		Page: r.page(&problems, verify.IsCursor),
	}
	checkOrder(&problems, query.From, query.To)
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	return evaluated(a, r, gate.VerifyTimeout, func(ctx context.Context) (verify.Page, error) {
		return verify.Ledger(ctx, a.store, query)
	})
}

// explainInstant explains the result of one scheduled time of a trigger.
func (a *API) explainInstant(r *request) (response, error) {
	var problems input.Problems
	at := r.instant(&problems, "at")
	if at.IsZero() && len(problems) == 0 {
		problems.Add("/at", input.CodeRequired,
			"at is missing; give the scheduled time to explain, such as at=2026-05-01T10:00:00Z")
	}
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	query := verify.ExplainQuery{App: r.PathValue("app"), Job: r.PathValue("job"), Trigger: r.PathValue("trigger"), At: at}
	return evaluated(a, r, gate.EvaluationTimeout, func(ctx context.Context) (verify.Explanation, error) {
		return verify.Explain(ctx, a.store, query)
	})
}

// getStrip shows the latest and the next scheduled times of a trigger, with their results. Each cell has the
// explanation of its time. Consecutive times without a run are one cell.
func (a *API) getStrip(r *request) (response, error) {
	var problems input.Problems
	query := view.StripQuery{
		App: r.PathValue("app"), Job: r.PathValue("job"), Trigger: r.PathValue("trigger"),
		Past: r.count(&problems, "past", view.DefaultStripPast, view.MostStripPast),
		Next: r.count(&problems, "next", view.DefaultStripNext, view.MostStripNext),
	}
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	return evaluated(a, r, gate.EvaluationTimeout, func(ctx context.Context) (view.Strip, error) {
		return verify.Strip(ctx, a.store, query)
	})
}

// count reads a query parameter that is a number from 0 to most.
func (r *request) count(problems *input.Problems, name string, otherwise, most int) int {
	values := r.URL.Query()
	if !values.Has(name) {
		return otherwise
	}
	n, err := strconv.Atoi(values.Get(name))
	if err != nil || n < 0 || n > most {
		problems.Add("/"+name, input.CodePageLimit, "%s %s is not a number from 0 to %d", name, input.Echo(values.Get(name)), most)
	}
	return n
}
