package api

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

//go:embed openapi.json
var openAPIDocument []byte

// live says that the process is alive. It does not check the database: an unreachable database must
// not make an orchestrator restart every node.
func (a *API) live(*request) (response, error) {
	return response{body: map[string]string{"status": "ok"}}, nil
}

// ready says whether the node can work: the database answers and the engine is ready.
func (a *API) ready(r *request) (response, error) {
	const timeout = 5 * time.Second
	// Other probes use what this one finds, so it does not end with its caller.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), timeout)
	defer cancel()
	if err := a.database.check(ctx, r.Now, a.opts.Database); err != nil {
		a.log.WarnContext(ctx, "not ready: database", "request_id", r.ID, "err", err)
		return response{}, input.Refuse(input.CodeUnavailable, "the database does not answer")
	}
	if err := a.opts.Ready(ctx); err != nil {
		a.log.WarnContext(ctx, "not ready: engine", "request_id", r.ID, "err", err)
		return response{}, input.Refuse(input.CodeUnavailable, "the engine is not ready")
	}
	return response{body: readiness{Status: "ok", Warnings: a.opts.Warnings()}}, nil
}

// readiness is what a node that is ready says. Warnings need an operator, but no other node would be better.
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
	// Who waited meanwhile came before this check, or shortly after.
	if now.Sub(c.at) < kept {
		return c.err
	}
	c.err = ask(ctx)
	c.at = time.Now() //nolint:forbidigo // of this process, as all its requests have
	return c.err
}

func (a *API) version(*request) (response, error) {
	return response{body: dispatcher.ServerVersion{Version: a.opts.Version, Zones: schedule.ZonesVersion()}}, nil
}

// metrics serves the node's metrics in the Prometheus text format or, if the client accepts it, in that of OpenMetrics,
// which has exemplars.
func (a *API) metrics(r *request) (response, error) {
	return exposition(r, a.opts.Metrics)
}

// exposition writes what a gatherer has in the format that the client accepts.
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

func (a *API) openAPI(*request) (response, error) {
	return response{body: json.RawMessage(openAPIDocument)}, nil
}
