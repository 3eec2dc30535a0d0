package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// objectiveCommand shows the objectives of jobs and their status.
type objectiveCommand struct {
	List objectiveListCommand `cmd:"" aliases:"ls" help:"List the jobs with an objective, and how they do." example:"carillon objective list billing"`
	Show objectiveShowCommand `cmd:"" aliases:"describe" help:"Show how a job does by its objective." example:"carillon objective show billing/invoices"`
}

type objectiveListCommand struct {
	apiFlags
	outputFlags
	ofJobFlags
}

func (o *objectiveListCommand) Run(ctx context.Context, c console) error {
	app, job, err := o.names()
	if err != nil {
		return err
	}
	list := listBy((*client.Client).Objectives)
	if job != "" {
		list = func(api *client.Client, ctx context.Context, app string, _ input.Page) (client.List[dispatcher.ObjectiveStatus], error) {
			one, err := api.Objective(ctx, app, job)
			return client.List[dispatcher.ObjectiveStatus]{Items: []dispatcher.ObjectiveStatus{one}}, err
		}
	}
	titles := "JOB\tOBJECTIVE\tATTAINED\tBUDGET LEFT\tBURNS 1H\tBURNS 6H\tBURNS 3D"
	return list.show(ctx, c, appListFlags{o.apiFlags, o.outputFlags, app}, titles, func(s dispatcher.ObjectiveStatus) []any {
		return []any{s.App + "/" + s.Job, objectiveOf(&s.Objective), attained(s), percent(s.BudgetLeft), burnRate(s, "1h"), burnRate(s, "6h"),
			burnRate(s, "3d")}
	})
}

// objectiveOf describes an objective; empty without one.
func objectiveOf(o *dispatcher.Objective) string {
	if o == nil {
		return ""
	}
	return fmt.Sprintf("%s within %s", o.Of, o.Within)
}

// yesIf is "yes", or empty.
func yesIf(is bool) string {
	if is {
		return "yes"
	}
	return ""
}

// attained returns the share of fires that were on time.
func attained(s dispatcher.ObjectiveStatus) string {
	if s.Attained == nil {
		return "no fires"
	}
	return percent(*s.Attained)
}

func percent(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) + "%" }

// burnRate formats how many times too fast the error budget burns.
func burnRate(s dispatcher.ObjectiveStatus, span string) string {
	return strconv.FormatFloat(s.BurnRates[span], 'f', 1, 64) + "x"
}

type objectiveShowCommand struct{ jobFlags }

func (o *objectiveShowCommand) Run(ctx context.Context, c console) error {
	return printNamed(ctx, c, o, (*client.Client).Objective, func(l *lines, s dispatcher.ObjectiveStatus) {
		l.add("job", s.App+"/"+s.Job)
		l.add("objective", objectiveOf(&s.Objective))
		l.add("counted from", s.From)
		l.add("counted to", s.To)
		l.add("in time", s.Good)
		l.add("late", s.Late)
		l.add("missed", s.Missed)
		l.add("pending", s.Pending)
		l.add("attained", attained(s))
		l.add("budget left", percent(s.BudgetLeft))
		for _, span := range []string{"5m", "30m", "1h", "6h", "3d"} {
			l.add("burns over "+span, burnRate(s, span))
		}
		if burns, why := s.Burns(); burns {
			l.add("in danger", why)
		}
	})
}

// statisticsCommand shows the outcomes of the runs of each day.
type statisticsCommand struct {
	apiFlags
	outputFlags
	App string `arg:"" optional:"" help:"Name of the app. Default: all that the token may see, together."`
	periodFlags
}

func (s *statisticsCommand) Run(ctx context.Context, c console) error {
	from, to, err := s.period(time.Now())
	if err != nil {
		return &usageError{err}
	}
	api, err := s.ProvideClient(ctx)
	if err != nil {
		return err
	}
	found, err := api.Statistics(ctx, s.App, from, to)
	if err != nil {
		return err
	}
	if s.Output != outputTable {
		return printObject(s.outputFlags, c, found, nil)
	}
	titles := "DAY\tSUCCEEDED\tFAILED\tTIMED OUT\tLOST\tCANCELLED\tSKIPPED\tSUPERSEDED\tMISFIRES\tATTEMPTS\tLATE MEAN\tLATE MOST\tFINAL"
	return printList(s.outputFlags, c, found.Days, titles, func(d view.DayStatistics) []any {
		return []any{d.Day, d.Runs[run.Succeeded], d.Runs[run.Failed], d.Runs[run.TimedOut],
			d.Runs[run.Lost], d.Runs[run.Cancelled], d.Runs[run.Skipped], d.Runs[run.Superseded],
			d.Misfires, d.Attempts, durationCell(d.LateMean), durationCell(d.LateMost), yesIf(d.Final)}
	})
}
