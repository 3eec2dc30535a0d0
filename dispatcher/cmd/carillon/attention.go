package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/client"
	webconsole "github.com/carillon-dev/carillon/dispatcher/console"
	"github.com/carillon-dev/carillon/dispatcher/console/kit"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// attentionCommand shows what a person on call should look at.
type attentionCommand struct {
	apiFlags
	outputFlags
	App string `arg:"" optional:"" help:"Name of the app. Default: all that the token may see, and the nodes."`
}

// Run prints a line for each problem.
func (a *attentionCommand) Run(ctx context.Context, c console, api *client.Client) error {
	found, err := api.Attention(ctx, a.App)
	if err != nil {
		return err
	}
	if a.Output != outputTable {
		return printObject(a.outputFlags, c, found, nil)
	}
	texts, err := webconsole.English()
	if err != nil {
		return err
	}
	return problemsOf(found, kit.Reader{Texts: texts}).show(c)
}

// addAll adds a line for each item of a list, and one if there are more.
func addAll[T any](t *table, what string, list view.Newest[T], line func(T) (where string, since any, why string)) {
	for _, one := range list.Items {
		where, since, why := line(one)
		t.add(what, where, since, why)
	}
	if list.More {
		t.add(what, "", "", "there are more")
	}
}

// problemsOf returns a line for each problem: what it is, where, since when and why.
func problemsOf(a view.Attention, words kit.Reader) *table {
	t := newTable("WHAT\tWHERE\tSINCE\tWHY")
	if r := a.Rollback; r != nil {
		t.add("rollback", "", r.At, r.Reason+"; carillon rollback show says more")
	}
	for _, node := range a.Nodes {
		state := words.Texts.Word("state.", node.Shown())
		t.add("node", node.Name+" "+node.ID.String(), node.Since(), state+": "+words.WhyOfNode(node))
	}
	if a.MoreNodes > 0 {
		t.add("node", "", "", fmt.Sprintf("%d more", a.MoreNodes))
	}
	addAll(t, "undelivered", view.Newest[alert.State]{Items: a.Undelivered()}, func(s alert.State) (string, any, string) {
		n := s.Notification
		return place(s.App, s.Job), n.At, fmt.Sprintf("%s of alert %s to %s is %s: %s", s.Condition, s.Alert, n.To, n.State, n.Error)
	})
	addAll(t, "alert", a.Alerts, func(s alert.State) (string, any, string) {
		why := s.Error
		if why == "" {
			why = strings.TrimSpace(words.Texts.Text("attention.alert."+string(s.Condition), "n", s.Count) + " " + s.Run)
		}
		return place(s.App, s.Job), s.Since, fmt.Sprintf("%s of alert %s: %s%s", s.Condition, s.Alert, why, knownOf(s))
	})
	failed, runs := a.Failed, map[string]int{} // a job has one line
	failed.Items = nil
	for _, r := range a.Failed.Items {
		if runs[place(r.App, r.Job)]++; runs[place(r.App, r.Job)] == 1 {
			failed.Items = append(failed.Items, r)
		}
	}
	addAll(t, "failed", failed, func(r run.Run) (string, any, string) {
		job := place(r.App, r.Job)
		count := strconv.Itoa(runs[job])
		if failed.More {
			count = "at least " + count
		}
		return job, r.EndedAt, fmt.Sprintf("runs: %s, the latest %s %s: %s %s", count, r.ID, r.State, r.Class, r.Error)
	})
	addAll(t, "misfire", a.Misfires, func(m dispatcher.Misfire) (string, any, string) {
		return place(m.App, m.Job, m.Trigger), m.From, fmt.Sprintf("%d missed, %s: %s", m.Count, m.Decision, m.Reason)
	})
	addAll(t, "overdue", a.Overdue, func(o view.OverdueTrigger) (string, any, string) {
		return place(o.App, o.Job, o.Trigger), o.DueAt, "due for " + o.Overdue.String()
	})
	addAll(t, "quarantine", a.Quarantined, func(q view.QuarantinedTrigger) (string, any, string) {
		return place(q.App, q.Job, q.Trigger), "", q.Error
	})
	addAll(t, "circuit", a.Circuits, func(o view.OpenCircuit) (string, any, string) {
		return place(o.App, o.Job), o.Since, fmt.Sprintf("%s of %s wait for host %s: %s", input.Count(o.Runs, "run"),
			input.Count(o.Jobs, "job"), o.Host, o.Error)
	})
	addAll(t, "blocked", a.Blocked, func(b view.Blockage) (string, any, string) {
		return place(b.App, b.Job), b.Since, b.Why()
	})
	addAll(t, "group", a.Groups, func(g view.SilentGroup) (string, any, string) {
		return place(g.App, g.Group), g.LeftAt, fmt.Sprintf("no endpoint for %s; drained: %d", input.Count(g.Jobs, "job"), g.Draining)
	})
	addAll(t, "secret", a.Credentials, func(f view.CredentialFailure) (string, any, string) {
		return place(f.App, f.Job), f.At, fmt.Sprintf("%s in run %s: %s", f.Reason, f.Run, f.Error)
	})
	addAll(t, "certificate", a.Certificates, func(e view.EndingCertificate) (string, any, string) {
		return place(e.App, cmp.Or(e.Job, e.Group)), "", "its client certificate ends at " + input.FormatInstant(e.EndsAt)
	})
	addAll(t, "objective", a.Objectives, func(s dispatcher.ObjectiveStatus) (string, any, string) {
		_, why := s.Burns()
		return place(s.App, s.Job), "", why
	})
	addAll(t, "paused", a.Paused, func(s view.StandingPause) (string, any, string) {
		return place(s.App, s.Job, s.Trigger), s.PausedAt, pausedBy(s.Pause)
	})
	addAll(t, "set aside", a.SetAside, func(s dispatcher.SetAside) (string, any, string) {
		return place(s.App, s.Job), "", fmt.Sprintf("%s %s: %s", s.Work, cmp.Or(s.Run, s.Item), s.Problem)
	})
	addAll(t, "retention", a.Retention, func(r view.LateRetention) (string, any, string) {
		return r.App, r.Oldest, "history is kept " + r.Behind.String() + " too long"
	})
	return t
}

// knownOf says who knows of a condition, and that nobody is told of it.
func knownOf(s alert.State) (text string) {
	if ack := s.Acknowledged; ack != nil {
		text = "; acknowledged by " + strings.TrimSuffix(ack.By+": "+ack.Reason, ": ")
	}
	if s.MutedUntil != nil {
		text += "; muted"
		if s.MutedUntil.Before(dispatcher.EndOfTime) {
			text += " until " + input.FormatInstant(*s.MutedUntil)
		}
	}
	return text
}

// place joins the names that are not empty.
func place(names ...string) string {
	return strings.TrimRight(strings.Join(names, "/"), "/")
}

// ago is how long ago something was, or how far ahead it is, in one unit.
func ago(d time.Duration) string {
	for _, unit := range []struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}} {
		if d >= 2*unit.of {
			return fmt.Sprintf("%d%s", d/unit.of, unit.name)
		}
	}
	return fmt.Sprintf("%ds", max(d, 0)/time.Second)
}
