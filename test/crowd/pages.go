package crowd

import (
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// Page is a page of the console, below its path.
type Page struct{ Name, At string }

// Pages returns the pages that a person opens on an app, with another job for each n. operator adds those of all apps.
func (c *Crowd) Pages(app string, n int, operator bool) []Page {
	job := c.Of(app, n)
	name := c.Job(job)
	inApp, ofJob := "apps/"+app, "apps/"+app+"/jobs/"+name
	of := "?app=" + app
	latest := c.latest(job)
	run := run.Key{ScheduledAt: latest, TriggerID: run.TriggerID(app, name, tick), Kind: run.KindSchedule}
	pages := []Page{
		{"attention of an app", of}, {"jobs of an app", "jobs" + of},
		{"jobs of an app by next fire", "jobs" + of + "&sort=next"}, {"objectives of an app", "objectives" + of},
		{"jobs by host", fmt.Sprintf("jobs?app=%s&host=host%d.example.com", app, n%200)},
		{"jobs by name", "jobs?app=" + app + "&name=" + name[len(name)-3:]}, {"jobs by one name", "jobs?app=" + app + "&name=" + name},
		{"jobs by state", "jobs?app=" + app + "&state=error"}, {"jobs by state that none has", "jobs?app=" + app + "&state=complete"},
		{"jobs by label", fmt.Sprintf("jobs?app=%s&label=team%%3Dteam-%d", app, n%50)},
		{"jobs by label that none has", "jobs?app=" + app + "&label=team%3Dnone"},
		{"jobs by result", "jobs?app=" + app + "&result=failed"},
		{"runs of an app", inApp + "/runs"}, {"runs of an app by state", inApp + "/runs?state=failed"},
		{"runs of an app by rare state", inApp + "/runs?state=lost"},
		{"runs of an app by class", inApp + "/runs?class=http_5xx"}, {"runs by class", "runs?class=http_5xx"},
		{"runs by error", "runs?error=none"},
		{"runs by label", fmt.Sprintf("runs?label=team%%3Dteam-%d", n%50)}, {"runs by kind", "runs?kind=manual"}, {"runs", "runs"},
		{"search", "search?q=job"}, {"search for an id", "search?q=evt_none"},
		{"runs of a job", inApp + "/runs?job=" + name}, {"job", ofJob}, {"job_statistics", ofJob + "/statistics"},
		{"run", "runs/" + run.String()},
		{"explain", ofJob + "/triggers/" + tick + "/explain?at=" + input.FormatInstant(latest)},
		{"timeline", "timeline" + of}, {"run_job", ofJob + "/run"}, {"app", inApp}, {"misfires", inApp + "/misfires"},
		{"backfills", inApp + "/backfills"},
		{"count of a backfill", inApp + "/new-backfill?job=" + name + "&from=" + input.FormatInstant(c.Now.Add(-7*day)) + "&to=" +
			input.FormatInstant(c.Now.Add(-time.Hour))},
		{"alerts", inApp + "/alerts"}, {"dead letters", inApp + "/dead-letters"}, {"bulk actions", inApp + "/bulk"},
		{"count of a bulk action", inApp + "/new-bulk?action=pause_jobs&name=job"},
		{"count of retries", inApp + "/new-bulk?action=retry_runs"},
		{"count of cancellations", inApp + "/new-bulk?action=cancel_runs&state=retrying"},
		{"statistics of an app", "statistics" + of}, {"audit log of an app", "audit" + of},
	}
	if app == Big || app == Small {
		pages = append(pages, Page{"groups", inApp + "/groups"}, Page{"group", inApp + "/groups/group-01"},
			Page{"calendars", inApp + "/calendars"}, Page{"calendar", inApp + "/calendars/calendar-01"},
			Page{"alert", inApp + "/alerts/alert-01"})
	}
	if !operator {
		return append(pages, Page{"attention", ""}, Page{"jobs", "jobs"}, Page{"statistics", "statistics"}, Page{"audit log", "audit"})
	}
	return append(pages, Page{"attention", ""}, Page{"jobs", "jobs"},
		Page{"jobs further on", "jobs?cursor=" + dispatcher.JobCursor(app, name)}, Page{"jobs of all apps by name", "jobs?name=" + name},
		Page{"jobs of all apps by next fire", "jobs?sort=next"}, Page{"objectives", "objectives"},
		Page{"jobs of all apps by state", "jobs?state=complete"}, Page{"jobs of all apps by label", "jobs?label=team%3Dnone"},
		Page{"jobs of all apps by result", "jobs?result=failed"},
		Page{"jobs of all apps by host", fmt.Sprintf("jobs?host=host%d.example.com", n%200)},
		Page{"timeline of all apps", "timeline"}, Page{"apps", "apps"}, Page{"statistics", "statistics"}, Page{"nodes", "nodes"},
		Page{"audit log", "audit"}, Page{"audit log of an actor", "audit?actor=ada"}, Page{"tokens", "tokens"}, Page{"rollback", "rollback"})
}

// latest returns the scheduled time of a job's latest run.
func (c *Crowd) latest(n int) time.Time {
	between, _ := period(n)
	return c.Now.Add(-time.Duration(n) * 7919 * time.Second % between).Truncate(time.Second)
}
