package api

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

//go:embed openapi.json
var openAPIDocument []byte

// live checks that the process is alive.
//
// It does not check the database: an unreachable database must not make an orchestrator restart every node.
func (a *API) live(*request) (response, error) {
	return response{body: readiness{Status: "ok"}}, nil
}

// ready checks that the node is ready. The node is ready if the database responds and the node is still registered. A
// paused or draining node is ready too: it serves the API but claims nothing.
func (a *API) ready(r *request) (response, error) {
	const timeout = 5 * time.Second
	// Other probes use the result of this one, so it does not end with its caller.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), timeout)
	defer cancel()
	if err := a.database.check(ctx, r.Now, a.opts.Database); err != nil {
		a.log.WarnContext(ctx, "not ready: database", "request_id", r.ID, "err", err)
		return response{}, cmp.Or(a.Refused(err), input.Refuse(input.CodeUnavailable, "the database does not answer"))
	}
	if err := a.opts.Ready(ctx); err != nil {
		a.log.WarnContext(ctx, "not ready: engine", "request_id", r.ID, "err", err)
		if shown, is := errors.AsType[*input.Problem](err); is {
			return response{}, shown
		}
		return response{}, input.Refuse(input.CodeUnavailable, "the engine is not ready")
	}
	return response{body: readiness{Status: "ok", Warnings: a.opts.Warnings()}}, nil
}

// readiness is the response of a ready node. Warnings need an operator, but no other node would be better.
type readiness struct {
	Status   string   `json:"status"`
	Warnings []string `json:"warnings,omitempty"`
}

// databaseCheck asks the database once for all probes that come within a moment, however many there are.
type databaseCheck struct {
	mu  sync.Mutex
	at  time.Time
	err error
}

func (c *databaseCheck) check(ctx context.Context, now time.Time, ask func(context.Context) error) error {
	const kept = 100 * time.Millisecond
	c.mu.Lock()
	defer c.mu.Unlock()
	// A caller that waited meanwhile came before this check, or shortly after.
	if now.Sub(c.at) < kept {
		return c.err
	}
	c.err = ask(ctx)
	c.at = time.Now() //nolint:forbidigo // of this process, as all its requests have
	return c.err
}

// version gets the version of the server and of its time zone data.
func (a *API) version(*request) (response, error) {
	server := a.opts.Server
	server.Zones = schedule.ZonesVersion()
	return response{body: server}, nil
}

// metrics gets the metrics of this node for Prometheus. Needs a token that is not bound to apps. Give it to Prometheus
// as authorization.credentials_file.
func (a *API) metrics(r *request) (response, error) {
	return exposition(r, a.opts.Metrics)
}

// exposition writes the metrics of a gatherer in the format that the client accepts.
func exposition(r *request, from prometheus.Gatherer) (response, error) {
	families, err := from.Gather()
	if err != nil {
		return response{}, err
	}
	var text bytes.Buffer
	format := expfmt.NewFormat(expfmt.TypeTextPlain)
	accepted := expfmt.NegotiateAccept(r.Header, expfmt.DefaultOpenMetricsAcceptedFormats()...)
	if accepted.FormatType() == expfmt.TypeOpenMetrics {
		format = accepted
	}
	encoder := expfmt.NewEncoder(&text, format)
	for _, family := range families {
		if err := encoder.Encode(family); err != nil {
			return response{}, err
		}
	}
	if closer, ends := encoder.(expfmt.Closer); ends {
		if err := closer.Close(); err != nil {
			return response{}, err
		}
	}
	return response{body: json.RawMessage(text.Bytes()), header: map[string]string{"Content-Type": string(format)}}, nil
}

// openAPI gets this document.
func (a *API) openAPI(*request) (response, error) {
	return response{body: json.RawMessage(openAPIDocument)}, nil
}

// jobMetrics gets the metrics of jobs for Prometheus. Every node returns the same, so scrape only one. At most 1,000
// jobs are shown, by app and name; carillon_job_unlisted counts the others. A token that is bound to apps sees only
// their jobs.
//
// jobMetrics reads the metrics from the database at each request, so every node returns the same, and a node without
// requests keeps nothing.
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

// jobGauges exports the metrics of jobs.
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
