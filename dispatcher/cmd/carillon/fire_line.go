package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// fireLine is an attempt as carillon dev and carillon tail show it: job, scheduled time, lateness, status.
func fireLine(run dispatcher.Run) string {
	status := fmt.Sprint(run.HTTPStatus)
	if run.State != dispatcher.RunSucceeded {
		status = strings.TrimSpace(fmt.Sprintf("%s %s %s", run.State, run.Class, run.Error))
	}
	name := run.App + "/" + run.Job
	if run.Trigger != "" {
		name += "/" + run.Trigger
	}
	if run.Kind != dispatcher.KindSchedule {
		name += " (" + string(run.Kind) + ")"
	}
	late := "            not started"
	if run.StartedAt != nil {
		late = fmt.Sprintf("%6d ms late", run.StartedAt.Sub(run.ScheduledAt).Milliseconds())
	}
	return plain(fmt.Sprintf("%-44s scheduled %s  %s  %s", name, run.ScheduledAt.Local().Format("15:04:05.000"), late, status))
}

// misfireLine is a misfire decision as they show it.
func misfireLine(m dispatcher.Misfire) string {
	return plain(fmt.Sprintf("%-44s missed %d fires from %s to %s: %s (%s)", m.App+"/"+m.Job+"/"+m.Trigger, m.Count,
		m.From.Local().Format(time.DateTime), m.To.Local().Format(time.DateTime), m.Decision, m.Reason))
}
