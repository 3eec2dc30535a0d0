package console

import (
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/console/kit"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// attentionPage shows current problems, and how to solve them.
type attentionPage struct {
	App string // the only one shown; empty: all that the token may see
	view.Attention
	// Found are the sections with entries, the most urgent first.
	Found []attentionCount
	// Firing are the alerts that fire, those with the same words together.
	Firing []firingAlerts
	// Undelivered are the alerts with a notification that was not delivered.
	Undelivered []alert.State
	// FailedJobs are the failed runs by job, that of the latest failure first.
	FailedJobs []failedJob
	// AllApps means that nodes and the database are examined, too. Tokens that are bound to apps do not see them.
	AllApps bool
	// Upcoming is nil if it is unknown, and UpcomingProblem is the reason.
	Upcoming        *kit.UpcomingChart
	UpcomingProblem string
	Computing       bool
	Partial         bool
}

// failedJob is a job with its failed runs among the listed ones.
type failedJob struct {
	Latest run.Run
	Count  int
	Since  *time.Time // when the first of them ended
}

// byJob groups failed runs by their jobs, in the order of the first of each.
func byJob(failed []run.Run) (jobs []failedJob) {
	at := map[string]int{}
	for _, r := range failed {
		name := r.App + "/" + r.Job
		i, known := at[name]
		if !known {
			i = len(jobs)
			at[name], jobs = i, append(jobs, failedJob{Latest: r})
		}
		jobs[i].Count++
		if since := jobs[i].Since; since == nil || r.EndedAt != nil && r.EndedAt.Before(*since) {
			jobs[i].Since = r.EndedAt
		}
	}
	return jobs
}

// firingAlerts are jobs for which a condition of an alert fires with the same words.
type firingAlerts struct {
	alert.State
	Jobs []string
}

// fewAlike is how many jobs with the same words have a row each.
const fewAlike = 2

// alike groups firing alerts, which are in their order, by their words.
func alike(states []alert.State) (groups []firingAlerts) {
	for i := 0; i < len(states); {
		one, n := firingAlerts{State: states[i]}, 1
		for i+n < len(states) && states[i].Alike(states[i+n]) {
			n++
		}
		if n <= fewAlike {
			n = 1
		}
		for _, state := range states[i : i+n] {
			if one.Jobs = append(one.Jobs, state.Job); state.Since.Before(one.Since) {
				one.Since = state.Since
			}
		}
		groups, i = append(groups, one), i+n
	}
	return groups
}

// attentionCount is a section of the page, and how many entries it has.
type attentionCount struct {
	Section string
	Count   string
}

// showAttention makes the first page that a person on call opens.
func showAttention(v *visit) (content, error) {
	page := attentionPage{App: v.query("app"), AllApps: len(v.token.Apps) == 0}
	found, err := v.client.Attention(v.Context(), page.App)
	if err != nil {
		return content{}, err
	}
	found.Groups, found.Credentials = fewer(found.Groups), fewer(found.Credentials)
	page.Undelivered = found.Undelivered()
	page.Attention, page.Found = found, attentionCounts(found, v.Texts)
	page.Firing = alike(found.Alerts.Items)
	page.FailedJobs = byJob(found.Failed.Items)
	page.addUpcoming(v)
	return content{Data: page, Refresh: true}, nil
}

// mostCauses is how many rows the sections with long rows have, so that the page stays small.
const mostCauses = 6

func fewer[T any](all view.Newest[T]) view.Newest[T] {
	if len(all.Items) > mostCauses {
		return view.Newest[T]{Items: all.Items[:mostCauses], More: true}
	}
	return all
}

// attentionCounts returns the sections with entries, the most urgent first.
func attentionCounts(a view.Attention, texts *kit.Texts) []attentionCount {
	var found []attentionCount
	add := func(section string, count int, more bool) {
		if count == 0 {
			return
		}
		text := strconv.Itoa(count)
		if more {
			text = texts.Text("attention.more_than", "count", text)
		}
		found = append(found, attentionCount{Section: section, Count: text})
	}
	if a.Rollback != nil {
		add("rollback", 1, false)
	}
	add("nodes", len(a.Nodes)+a.MoreNodes, false)
	add("circuits", len(a.Circuits.Items), a.Circuits.More)
	add("undelivered", len(a.Undelivered()), a.Alerts.More)
	add("alerts", len(a.Alerts.Items), a.Alerts.More)
	add("blocked", len(a.Blocked.Items), a.Blocked.More)
	add("overdue", len(a.Overdue.Items), a.Overdue.More)
	add("quarantined", len(a.Quarantined.Items), a.Quarantined.More)
	add("credentials", len(a.Credentials.Items), a.Credentials.More)
	add("failed", len(a.Failed.Items), a.Failed.More)
	missed := 0
	for _, m := range a.Misfires.Items {
		missed += m.Count
	}
	add("misfires", missed, a.Misfires.More)
	add("set-aside", len(a.SetAside.Items), a.SetAside.More)
	add("groups", len(a.Groups.Items), a.Groups.More)
	add("objectives", len(a.Objectives.Items), a.Objectives.More)
	add("certificates", len(a.Certificates.Items), a.Certificates.More)
	add("retention", len(a.Retention.Items), a.Retention.More)
	add("paused", len(a.Paused.Items), a.Paused.More)
	return found
}

// addUpcoming adds the picture of the upcoming fires. Without it, the rest of the page is still useful, so a failure is
// shown in place of the picture.
func (p *attentionPage) addUpcoming(v *visit) {
	upcoming, err := v.client.Upcoming(v.Context(), p.App)
	if err != nil {
		p.UpcomingProblem = err.Error()
		return
	}
	p.Computing, p.Partial = upcoming.Computing, upcoming.Partial
	if len(upcoming.Counts) == 0 || upcoming.Step <= 0 {
		return
	}
	counts := make([]int, len(upcoming.Counts))
	for i, count := range upcoming.Counts {
		counts[i] = int(count)
	}
	zone := v.Zone.In(v.Now, "").Location()
	chart := kit.NewUpcoming(upcoming.From, upcoming.Step.Std(), counts, zone, func(at time.Time, count int) string {
		return v.Texts.Text("attention.upcoming.mark", "time", at.In(zone).Format("15:04 Z07:00"), "n", count)
	})
	p.Upcoming = &chart
}
