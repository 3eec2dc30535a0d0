package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// fireLine is an attempt as carillon dev and carillon tail show it: job, scheduled time, lateness, status.
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
	if r.StartedAt != nil {
		late = fmt.Sprintf("%6d ms late", r.StartedAt.Sub(r.ScheduledAt).Milliseconds())
	}
	return plain(fmt.Sprintf("%-44s scheduled %s  %s  %s", name, r.ScheduledAt.Local().Format("15:04:05.000"), late, status))
}

// misfireLine is a misfire decision as they show it.
func misfireLine(m dispatcher.Misfire) string {
	return plain(fmt.Sprintf("%-44s missed %d fires from %s to %s: %s (%s)", m.App+"/"+m.Job+"/"+m.Trigger, m.Count,
		m.From.Local().Format(time.DateTime), m.To.Local().Format(time.DateTime), m.Decision, m.Reason))
}
