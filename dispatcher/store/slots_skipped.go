package store

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/series"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// skipReason says why a run that wanted a slot was skipped.
type skipReason string

const (
	skipForbidden    skipReason = "forbid"        // another run of the job has not ended, and its policy is forbid
	skipQueueFull    skipReason = "queue_full"    // as many runs wait as queue_limit allows
	skipReplaced     skipReason = "replaced"      // a later run took its place before it began
	skipEndpointBusy skipReason = "endpoint_busy" // the endpoint runs the job already
	skipWaiting      skipReason = "waiting_runs"  // as many runs of the app wait as its bounds allow
	skipChain        skipReason = "chain"         // it would be outside what may follow the first run of its chain
)

// reasonOfSkip returns the reason of a run that is skipped.
func reasonOfSkip(policy run.ConcurrencyPolicy, endpoint string) skipReason {
	switch {
	case endpoint != "":
		return skipEndpointBusy
	case policy == run.ConcurrencyReplace:
		return skipReplaced
	case policy == run.ConcurrencyForbid:
		return skipForbidden
	}
	return skipQueueFull
}

// skips counts the runs that this process skipped.
type skips struct {
	total *prometheus.CounterVec
	apps  *series.Apps[map[skipReason]prometheus.Counter]
}

func newSkips() *skips {
	s := &skips{total: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "carillon_skipped_runs_total",
		Help: "Runs that this node did not attempt, because they got no slot or because of a quota of their app, by app and reason.",
	}, []string{"app", "reason"})}
	s.apps = series.New(func(app string) map[skipReason]prometheus.Counter {
		all := map[skipReason]prometheus.Counter{}
		for _, reason := range []skipReason{skipForbidden, skipQueueFull, skipReplaced, skipEndpointBusy, skipWaiting, skipChain} {
			all[reason] = s.total.WithLabelValues(app, string(reason))
		}
		return all
	})
	return s
}

// skipped is a run that a transaction skipped.
type skipped struct {
	app    string
	reason skipReason
}

// count counts runs once the transaction that skipped them is committed.
func (s *skips) count(runs []skipped) {
	for _, run := range runs {
		s.apps.Of(run.app)[run.reason].Inc()
	}
}

// noteSkipped notes which runs a transaction skips. Few do, so the names of their apps are read only then.
func noteSkipped(ctx context.Context, t *tx, skips []ending) error {
	if len(skips) == 0 {
		return nil
	}
	ids := make([]int64, len(skips))
	for i, one := range skips {
		ids[i] = one.held.JobID
	}
	apps := map[int64]string{}
	query := t.Rows(0, 1, "", db.IDColumns...) + ` SELECT DISTINCT j.id, a.name FROM b JOIN jobs AS j ON j.id = b.id
		JOIN apps AS a ON a.id = j.app_id`
	_, err := db.Collect(ctx, t, func(row db.Scanner) (struct{}, error) {
		var id int64
		var app string
		err := row.Scan(&id, &app)
		apps[id] = app
		return struct{}{}, err
	}, query, t.Batch(ids)...)
	if err != nil {
		return fmt.Errorf("read the apps of skipped runs: %w", err)
	}
	for i, one := range skips {
		t.skipped = append(t.skipped, skipped{apps[ids[i]], one.reason})
	}
	return nil
}
