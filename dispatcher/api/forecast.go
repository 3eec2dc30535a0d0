package api

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/limit"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

const (
	// forecastAge is for how long a count of upcoming fires is shown before they are counted again.
	forecastAge = 5 * time.Minute
	// forecastPatience is how long a request waits for a count, which is enough for some thousand triggers.
	forecastPatience = 100 * time.Millisecond
	// forecastTimeout bounds one count.
	forecastTimeout = time.Minute
	// maxForecasts is of how many sets of apps a count is kept.
	maxForecasts = 200
	// forecastPage and forecastPages bound the triggers that are counted.
	forecastPage  = 1000
	forecastPages = 200
)

// forecasts are the counts of upcoming fires, for each set of apps that was asked for. One is counted at a time.
type forecasts struct {
	store  Store
	log    *slog.Logger
	wanted chan *forecast

	mu   sync.Mutex
	apps *limit.Recent[string, *forecast]
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
		apps: limit.NewRecent[string, *forecast](maxForecasts)}
}

// latest returns the latest count, and has the fires counted again if it is old.
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

// ask returns the count of some apps. done is closed when a count that is under way is over; nil: there is nothing to wait for. A count
// that is a little too old is shown while the next one is under way.
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
		default: // enough others are to be counted before
		}
	}
	if now.Sub(one.at) < 2*forecastAge {
		return one, nil
	}
	return one, one.done
}

// run counts what was asked for, until ctx ends.
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

// count counts the upcoming fires of some apps, all of them if none is named.
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
	return counter.Fires(now), clock(), nil
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

func clock() time.Time { return time.Now() } //nolint:forbidigo // of this process
