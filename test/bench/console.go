package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/test/crowd"
)

const (
	// consoleRate is how many fires a second reach the receiver meanwhile.
	consoleRate = 200
	// browsers is the number of people who look, each at another page every refreshEvery, as pages refresh themselves.
	browsers     = 4
	refreshEvery = 5 * time.Second
	// pageViews is the number of views of each page for the percentiles.
	pageViews = 20
	// pageBar is the largest allowed 95th percentile of a page, in milliseconds.
	pageBar = 200
)

// console measures the pages of the console of a node with many jobs and a long history, next to its fires.
// It also measures how late the fires are, in turns with and without browsers that refresh.
func (b *bench) console(ctx context.Context) error {
	filled, err := crowd.Fill(ctx, b.database, b.Crowd, time.Now())
	if err != nil {
		return err
	}
	people, err := b.people(ctx)
	if err != nil {
		return err
	}
	receiver, err := listen(nil)
	if err != nil {
		return err
	}
	defer receiver.close()
	steady := declaration{app: "steady", triggers: consoleRate, perJob: dispatcher.MaxTriggers, target: to(receiver.url),
		schedule: spread(consoleRate), start: nextSecond(10 * time.Second)}
	if err := declare(ctx, b.database, steady); err != nil { // before the node, which locks a SQLite file
		return err
	}
	node, err := b.serve(ctx, exec.CommandContext(ctx, b.Node, "serve"))
	if err != nil {
		return err
	}
	defer node.end()
	for i := range people {
		if err := people[i].signIn(ctx, node.url); err != nil {
			return err
		}
	}
	if err := b.pages(ctx, filled, people); err != nil {
		return err
	}
	return b.nextToBrowsers(ctx, filled, people[0], receiver)
}

// viewer is a person with a browser.
type viewer struct {
	http.Client
	name, app string
	operator  bool
	secret    string
	console   string
}

// people returns an operator and the readers of two apps, with their tokens.
func (b *bench) people(ctx context.Context) ([]viewer, error) {
	s, err := store.Open(ctx, b.database, store.Options{Options: db.Options{AlongsideNode: true}})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	people := []viewer{{name: "operator", app: crowd.Big, operator: true}, {name: "reader of the big app", app: crowd.Big},
		{name: "reader of a small app", app: crowd.Small}}
	for i := range people {
		secret, hash := access.NewToken()
		token := access.APIToken{ID: access.NewTokenID(), Name: fmt.Sprintf("person-%d", i), Hash: hash,
			TokenSpec: access.TokenSpec{Scopes: access.Scopes()}}
		if !people[i].operator {
			token.Scopes = []access.Scope{access.ScopeRead, access.ScopeRun, access.ScopeWrite}
			token.Apps = []string{people[i].app}
		}
		if err := s.CreateToken(ctx, token); err != nil {
			return nil, err
		}
		people[i].secret = secret
	}
	return people, nil
}

// signIn signs in at a node.
func (v *viewer) signIn(ctx context.Context, node string) (err error) {
	v.console = node + "/console/"
	v.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if v.Jar, err = cookiejar.New(nil); err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, v.console+"login",
		strings.NewReader(url.Values{"token": {v.secret}}.Encode()))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Sec-Fetch-Site", "same-origin")
	response, err := v.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusSeeOther {
		return fmt.Errorf("sign in as %s: status %d", v.name, response.StatusCode)
	}
	return nil
}

// view gets a page.
func (v *viewer) view(ctx context.Context, page crowd.Page) (took time.Duration, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, v.console+page.At, nil)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	response, err := v.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return 0, err
	}
	if response.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s of %s (%s): status %d", page.Name, v.name, page.At, response.StatusCode)
	}
	return time.Since(began), nil
}

// pages measures each page for each person, at most a quarter of the time, which is a node's limit for one app.
func (b *bench) pages(ctx context.Context, filled *crowd.Crowd, people []viewer) error {
	for i := range people {
		v := &people[i]
		took := map[string]latencies{}
		for n := range pageViews {
			for _, page := range filled.Pages(v.app, n, v.operator) {
				one, err := v.view(ctx, page)
				if err != nil {
					return err
				}
				took[page.Name] = append(took[page.Name], one)
				if err := pause(ctx, 3*one); err != nil {
					return err
				}
			}
		}
		for _, page := range filled.Pages(v.app, 0, v.operator) {
			all := took[page.Name]
			slices.Sort(all)
			err := b.Report(Result{Bench: "console, " + page.Name + " for " + v.name, Database: b.kind, Unit: "ms at p95", Value: all.at(0.95),
				P50: some(all.at(0.5)), Max: some(all.at(1)), Bar: some(float64(pageBar)), Jobs: some(filled.Jobs)})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// nextToBrowsers measures how late fires are, in turns without and with browsers.
func (b *bench) nextToBrowsers(ctx context.Context, filled *crowd.Crowd, v viewer, receiver *receiver) error {
	window := max(b.Time/time.Duration(2*b.Rounds), refreshEvery).Truncate(time.Second)
	var ratios rates
	var during, views latencies
	missing := 0
	for range b.Rounds {
		turns := make([]latencies, 2)
		for i := range turns {
			from := nextSecond(0)
			until := from.Add(window)
			if i == 1 {
				seen, err := refresh(ctx, filled, v, from, until)
				if err != nil {
					return err
				}
				views = append(views, seen...)
			}
			if err := pause(ctx, time.Until(until.Add(2*time.Second))); err != nil { // for late requests
				return err
			}
			turns[i] = latenciesOf(receiver.notedBetween(from, until))
			missing += consoleRate*int(window/time.Second) - len(turns[i])
		}
		ratios = append(ratios, turns[1].at(0.99)/turns[0].at(0.99))
		during = append(during, turns[1]...)
	}
	slices.Sort(during)
	slices.Sort(views)
	r := Result{Bench: "console, fires next to browsers", Database: b.kind, Unit: "ms at p95 of a refresh", Value: views.at(0.95),
		Triggers: some(consoleRate), Missing: some(missing), P99Ratio: some(ratios.median()), Jobs: some(filled.Jobs)}
	r.lateness(during)
	return b.Report(r)
}

// refresh makes browsers open attention, jobs, a job and the timeline in turn, one page every refreshEvery.
func refresh(ctx context.Context, filled *crowd.Crowd, v viewer, from, until time.Time) (views latencies, err error) {
	looked := slices.DeleteFunc(filled.Pages(v.app, 1, true), func(page crowd.Page) bool {
		return !slices.Contains([]string{"attention", "jobs", "job", "timeline"}, page.Name)
	})
	if len(looked) != browsers {
		return nil, errors.New("the pages that refresh themselves are not known")
	}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	for i := range browsers {
		group.Go(func() error {
			for n, at := i, from.Add(time.Duration(i)*refreshEvery/browsers); at.Before(until); n, at = n+1, at.Add(refreshEvery) {
				if err := pause(ctx, time.Until(at)); err != nil {
					return err
				}
				took, err := v.view(ctx, looked[n%len(looked)])
				if err != nil {
					return err
				}
				mu.Lock()
				views = append(views, took)
				mu.Unlock()
			}
			return nil
		})
	}
	return views, group.Wait()
}
