package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// tailCommand follows the runs of apps.
type tailCommand struct {
	apiFlags
	outputFlags
	ofJobFlags
	Since input.Duration `default:"0s" help:"Begin with what happened this long ago, at most 1h."`
}

// Run prints each attempt that ends and each misfire decision, until it is interrupted.
func (t *tailCommand) Run(ctx context.Context, c console) error {
	app, job, err := t.names()
	switch {
	case err != nil:
		return err
	case t.Output == outputJSON:
		return &usageError{errors.New("--output: what has no end is not one JSON value; use jsonl")}
	case t.Since < 0 || t.Since.Std() > time.Hour:
		return &usageError{fmt.Errorf("--since: %s is not between 0s and 1h; carillon run list goes further back", t.Since)}
	}
	api, err := t.ProvideClient(ctx)
	if err != nil {
		return err
	}
	return t.follow(ctx, c, follower{api: api, app: app, job: job, from: time.Now().Add(-t.Since.Std()),
		seen: map[string]sight{}, open: map[string]run.Run{}})
}

// follow prints the news of f, and waits while the API is unreachable.
func (t *tailCommand) follow(ctx context.Context, c console, f follower) error {
	quiet := false
	for ; ctx.Err() == nil; pause(ctx, time.Second) {
		found, err := f.poll(ctx, time.Now())
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // interrupted
		case err != nil && exitCodeOfAPI(err) == exitUnreachable && f.polled:
			if !quiet {
				fmt.Fprintf(c.err, "carillon: %s; trying again\n", plain(err.Error()))
			}
			quiet = true
			continue
		case err != nil:
			return err
		}
		quiet = false
		for _, one := range found {
			if err := t.print(c, one); err != nil {
				return err
			}
		}
	}
	return nil
}

// happening is an attempt that has ended, or a misfire decision.
type happening struct {
	at      time.Time
	Run     *run.Run            `json:"run,omitempty"`
	Misfire *dispatcher.Misfire `json:"misfire,omitempty"`
}

func (t *tailCommand) print(c console, one happening) error {
	if t.Output == outputLines {
		return printJSONLine(c.out, one)
	}
	line := ""
	if one.Run != nil {
		line = fireLine(*one.Run)
	} else {
		line = misfireLine(*one.Misfire)
	}
	_, err := fmt.Fprintln(c.out, line)
	return err
}

// follower finds news in the ledger. It reads the latest scheduled times until a page has no news,
// and each run in flight by its id, because an attempt may come long after its scheduled time.
type follower struct {
	api      *client.Client
	app, job string // empty for all
	from     time.Time
	polled   bool
	seen     map[string]sight   // by id
	open     map[string]run.Run // runs in flight, by id
	apps     []string
	listed   time.Time // when apps were listed
}

// sight is the last seen state of a run.
type sight struct {
	state   run.State
	attempt int
	at      time.Time
}

const (
	tailWindow = 5 * time.Minute // of the listed scheduled times
	tailPages  = 20              // of runs, per poll
	tailOpen   = 100             // runs read by id, per poll
)

// poll returns the news since the previous poll, ordered by time.
func (f *follower) poll(ctx context.Context, now time.Time) ([]happening, error) {
	if f.app != "" {
		f.apps = []string{f.app}
	} else if now.Sub(f.listed) > 10*time.Second {
		apps, err := appsOr(ctx, f.api, "")
		if err != nil {
			return nil, err
		}
		f.apps, f.listed = apps, now
	}
	var found []happening
	current := map[string]bool{}
	for _, app := range f.apps {
		for _, step := range []func(context.Context, string, time.Time, map[string]bool) ([]happening, error){f.runs, f.misfires} {
			more, err := step(ctx, app, now, current)
			if err != nil {
				return nil, err
			}
			found = append(found, more...)
		}
	}
	more, err := f.others(ctx, now, current)
	if err != nil {
		return nil, err
	}
	found = append(found, more...)
	for id, one := range f.seen {
		if _, isOpen := f.open[id]; !isOpen && now.Sub(one.at) > 2*max(tailWindow, now.Sub(f.from)) {
			delete(f.seen, id)
		}
	}
	f.polled = true
	slices.SortStableFunc(found, func(a, b happening) int { return a.at.Compare(b.at) })
	return found, nil
}

// runs reads the latest scheduled times of an app and, the first time, its runs in flight.
func (f *follower) runs(ctx context.Context, app string, now time.Time, current map[string]bool) (found []happening, err error) {
	states := []run.State{""}
	if !f.polled {
		states = append(states, run.Queued, run.Claimed, run.Running, run.Retrying,
			run.WaitingCallback, run.WaitingShards)
	}
	for _, state := range states {
		query := dispatcher.RunQuery{App: app, Job: f.job, State: state, Page: input.Page{Limit: pageSize}}
		if state == "" {
			query.From = now.Add(-max(tailWindow, now.Sub(f.from)))
			if f.polled {
				query.From = now.Add(-tailWindow)
			}
		}
		for range tailPages {
			list, err := f.api.Runs(ctx, query)
			if err != nil {
				return nil, err
			}
			news := false
			for _, run := range list.Items {
				news = f.note(run, now, &found) || news
				current[run.ID] = true
			}
			if query.Page.Cursor = list.Next; list.Next == "" || !news {
				break
			}
		}
	}
	return found, nil
}

// others reads the runs in flight that were in no list, oldest first.
func (f *follower) others(ctx context.Context, now time.Time, current map[string]bool) (found []happening, err error) {
	var waiting []run.Run
	for id, run := range f.open {
		if !current[id] {
			waiting = append(waiting, run)
		}
	}
	slices.SortFunc(waiting, func(a, b run.Run) int { return f.seen[a.ID].at.Compare(f.seen[b.ID].at) })
	for _, one := range waiting[:min(len(waiting), tailOpen)] {
		run, err := f.api.Run(ctx, one.ID)
		if errors.Is(err, dispatcher.ErrNotFound) { // its history was purged
			delete(f.open, one.ID)
			continue
		}
		if err != nil {
			return nil, err
		}
		run.Attempts = nil // as in lists
		f.note(run, now, &found)
	}
	return found, nil
}

// note records a run, adds it to found if an attempt has ended, and reports whether it is news.
func (f *follower) note(r run.Run, now time.Time, found *[]happening) bool {
	before, known := f.seen[r.ID]
	same := known && before.state == r.State && before.attempt == r.Attempt
	f.seen[r.ID] = sight{r.State, r.Attempt, now}
	if f.open[r.ID] = r; hasEnded(r) {
		delete(f.open, r.ID)
	}
	if same {
		return false
	}
	at := now
	if r.EndedAt != nil {
		at = *r.EndedAt
	}
	ended := hasEnded(r) || r.State == run.Retrying && r.Attempt > 0
	if old := at.Before(f.from) || r.EndedAt == nil && !f.polled; ended && !old {
		*found = append(*found, happening{at: at, Run: &r})
	}
	return true
}

// misfires reads the latest decisions of an app. A catch-up run may have an old scheduled time.
func (f *follower) misfires(ctx context.Context, app string, now time.Time, _ map[string]bool) (found []happening, err error) {
	list, err := f.api.Misfires(ctx, dispatcher.RunQuery{App: app, Job: f.job, Page: input.Page{Limit: pageSize}})
	if err != nil {
		return nil, err
	}
	for _, m := range list.Items {
		id := "misfire " + m.Cursor()
		_, known := f.seen[id]
		if f.seen[id] = (sight{at: now}); known || m.DecidedAt.Before(f.from) {
			continue
		}
		found = append(found, happening{at: m.DecidedAt, Misfire: &m})
		if _, known := f.seen[m.Run]; m.Run != "" && !known {
			f.open[m.Run] = run.Run{ID: m.Run}
		}
	}
	return found, nil
}

// fireLine formats an attempt for carillon dev and carillon tail: job, scheduled time, lateness, status.
func fireLine(r run.Run) string {
	status := fmt.Sprint(r.HTTPStatus)
	if r.State != run.Succeeded {
		status = strings.TrimSpace(fmt.Sprintf("%s %s %s", r.State, r.Class, r.Error))
	}
	name := r.App + "/" + r.Job
	if r.Trigger != "" {
		name += "/" + r.Trigger
	}
	if r.Kind != run.KindSchedule {
		name += " (" + string(r.Kind) + ")"
	}
	late := "            not started"
	if began := r.Began(); began != nil {
		late = fmt.Sprintf("%6d ms late", began.Sub(r.ScheduledAt).Milliseconds())
	}
	return plain(fmt.Sprintf("%-44s scheduled %s  %s  %s", name, r.ScheduledAt.Local().Format("15:04:05.000"), late, status))
}

func misfireLine(m dispatcher.Misfire) string {
	return plain(fmt.Sprintf("%-44s missed %s from %s to %s: %s (%s)", m.App+"/"+m.Job+"/"+m.Trigger, input.Count(m.Count, "fire"),
		m.From.Local().Format(time.DateTime), m.To.Local().Format(time.DateTime), m.Decision, m.Reason))
}
