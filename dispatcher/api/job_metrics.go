package api

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// jobMetrics serves the metrics of jobs, to a token that is bound to apps those of their jobs. They are read from the database
// when somebody asks, so every node tells the same, and a node that nobody asks keeps nothing.
func (a *API) jobMetrics(r *request) (response, error) {
	var problems input.Problems
	apps, err := a.overviewApps(r, &problems)
	if err != nil {
		return response{}, err
	}
	jobs, unlisted, err := a.store.HealthOfJobs(r.Context(), apps, dispatcher.MaxMeasuredJobs, time.Time{})
	if err != nil {
		return response{}, err
	}
	registry := prometheus.NewRegistry()
	if err := registry.Register(newJobGauges(jobs, unlisted)); err != nil {
		return response{}, err
	}
	return exposition(r, registry)
}

// jobGauges exports how jobs do.
type jobGauges struct {
	jobs     []dispatcher.JobHealth
	unlisted int

	failing, quarantined, paused, success, scheduled, next, late, others *prometheus.Desc
}

func newJobGauges(jobs []dispatcher.JobHealth, unlisted int) *jobGauges {
	gauge := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"app", "job"}, nil)
	}
	return &jobGauges{
		jobs: jobs, unlisted: unlisted,
		failing:     gauge("carillon_job_failing", "1 if the latest run that is over failed, timed out or was lost, else 0."),
		quarantined: gauge("carillon_job_quarantined", "1 if a trigger of the job cannot be evaluated, else 0."),
		paused:      gauge("carillon_job_paused", "1 if an operator paused the job or its app, else 0."),
		success: gauge("carillon_job_last_success_timestamp_seconds",
			"When the last run that succeeded ended, in Unix seconds; absent if none of the latest 100 did."),
		scheduled: gauge("carillon_job_latest_run_timestamp_seconds",
			"The scheduled time of the latest run, in Unix seconds; absent if there is none."),
		next: gauge("carillon_job_next_fire_timestamp_seconds", "When the job fires next, in Unix seconds; absent if it does not."),
		late: gauge("carillon_job_latest_lateness_seconds",
			"How late the latest run began; absent if it has not begun or was attempted again."),
		others: prometheus.NewDesc("carillon_job_unlisted", "Jobs without metrics, because the response has 1,000 of them already.", nil, nil),
	}
}

// Describe sends the descriptions of the metrics.
func (g *jobGauges) Describe(to chan<- *prometheus.Desc) {
	for _, one := range []*prometheus.Desc{g.failing, g.quarantined, g.paused, g.success, g.scheduled, g.next, g.late, g.others} {
		to <- one
	}
}

// Collect sends the metrics.
func (g *jobGauges) Collect(to chan<- prometheus.Metric) {
	send := func(of *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, value, labels...)
	}
	for _, job := range g.jobs {
		is := func(of *prometheus.Desc, yes bool) {
			value := 0.0
			if yes {
				value = 1
			}
			send(of, value, job.App, job.Name)
		}
		when := func(of *prometheus.Desc, at *time.Time) {
			if at != nil {
				send(of, float64(at.UnixMilli())/1000, job.App, job.Name)
			}
		}
		failed := job.Result == run.Failed || job.Result == run.TimedOut || job.Result == run.Lost
		is(g.failing, failed)
		is(g.quarantined, job.State == dispatcher.JobError)
		is(g.paused, job.Paused || job.AppPaused)
		when(g.success, job.LastSuccess)
		when(g.next, job.NextFireTime)
		if job.LatestRun != nil {
			when(g.scheduled, &job.LatestRun.ScheduledAt)
			if late := job.LatestRun.Lateness; late != nil {
				send(g.late, late.Std().Seconds(), job.App, job.Name)
			}
		}
	}
	send(g.others, float64(g.unlisted))
}
