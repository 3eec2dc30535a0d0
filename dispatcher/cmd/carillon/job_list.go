package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

type jobListCommand struct {
	apiFlags
	outputFlags
	ofJobFlags
	State  string            `placeholder:"STATE" help:"Only jobs in this state: error, executing, paused, complete or init."`
	Result string            `placeholder:"STATE" help:"Only jobs whose latest run ended so, such as failed."`
	Name   string            `placeholder:"TEXT" help:"Only jobs whose name contains this."`
	Host   string            `placeholder:"HOST" help:"Only jobs that call this host, function, group, queue or topic."`
	Label  map[string]string `mapsep:"," placeholder:"NAME=VALUE,..." help:"Only jobs that have all of these labels."`
}

func (l *jobListCommand) query() (query dispatcher.JobQuery, job string, err error) {
	app, job, err := l.names()
	if err != nil {
		return query, "", err
	}
	query = dispatcher.JobQuery{State: dispatcher.JobState(strings.ToLower(l.State)), Result: run.State(l.Result), Name: l.Name, Host: l.Host}
	if app != "" {
		query.Apps = []string{app}
	}
	if job != "" && l.Name == "" {
		query.Name = job // the API has no filter of whole names
	}
	query.Page.Labels = l.Label
	if err := input.Labels(l.Label).Validate(); err != nil {
		return query, "", &usageError{fmt.Errorf("--label: %w", err)}
	}
	if l.State != "" && !slices.Contains(dispatcher.JobStates, query.State) {
		return query, "", &usageError{fmt.Errorf("--state: %s is %s", input.Echo(l.State), input.NotOneOf(query.State, dispatcher.JobStates))}
	}
	return query, job, nil
}

func (l *jobListCommand) Run(ctx context.Context, c console) error {
	query, job, err := l.query()
	if err != nil {
		return err
	}
	api, err := l.client(ctx)
	if err != nil {
		return err
	}
	all, err := summaries(ctx, c, api, query)
	if err != nil {
		return err
	}
	if job != "" {
		if all = slices.DeleteFunc(all, func(s dispatcher.JobSummary) bool { return s.Name != job }); len(all) == 0 {
			_, err := api.Job(ctx, query.Apps[0], job) // it may be another state that hides it
			if err != nil {
				return err
			}
		}
	}
	now := time.Now()
	return printList(l.outputFlags, c, all, "JOB\tSTATE\tLAST\tNEXT", func(s dispatcher.JobSummary) []any {
		return []any{s.App + "/" + s.Name, stateOfSummary(s), lastOf(s, now), nextOf(s, now)}
	})
}

// summaries reads the jobs that a query selects.
func summaries(ctx context.Context, c console, api *client.Client, query dispatcher.JobQuery) ([]dispatcher.JobSummary, error) {
	read, n := newProgress(c, "jobs"), 0
	all, _, err := allPages(0, func(page input.Page) (client.List[dispatcher.JobSummary], error) {
		page.Labels = query.Page.Labels
		query.Page = page
		list, err := api.JobSummaries(ctx, query)
		n += len(list.Items)
		read.say(n)
		return list, err
	})
	return all, err
}

// stateOfSummary returns the most important state of a job for an operator.
func stateOfSummary(s dispatcher.JobSummary) stateCell {
	switch {
	case !s.Enabled:
		return "disabled"
	case s.Paused || s.AppPaused:
		return "paused"
	}
	return stateCell(s.State)
}

// lastOf says how the latest run ended, or stands, and how long ago that was.
func lastOf(s dispatcher.JobSummary, now time.Time) stateCell {
	r := s.LatestRun
	switch {
	case r == nil:
		return "never"
	case r.EndedAt == nil:
		return stateCell(fmt.Sprintf("%s since %s", r.State, ago(now.Sub(r.ScheduledAt))))
	}
	return stateCell(strings.TrimSpace(fmt.Sprintf("%s %s ago %s", r.State, ago(now.Sub(*r.EndedAt)), r.Class)))
}

// nextOf says in how long the job fires next.
func nextOf(s dispatcher.JobSummary, now time.Time) string {
	if s.NextFireTime == nil {
		return "-"
	}
	return "in " + ago(s.NextFireTime.Sub(now))
}
