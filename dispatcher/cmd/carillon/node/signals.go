package node

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher/engine"
	"github.com/carillon-dev/carillon/dispatcher/platform"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// machineSignals is what a node tells the machine that it runs on. The zero value tells it nothing.
type machineSignals struct {
	systemd platform.Systemd
	fleet   string    // of the lines of metrics; empty: none
	out     io.Writer // of these lines
}

// signals returns the signals that flags and environment ask for.
func (s *Flags) signals(ctx context.Context, out io.Writer, log *slog.Logger) machineSignals {
	systemd, err := platform.SystemdFrom(os.Getenv, os.Getpid())
	if err != nil {
		log.WarnContext(ctx, "the notifications of systemd are not as documented", "err", err)
	}
	return machineSignals{systemd: systemd, fleet: s.EMF, out: out}
}

// running are the signals of a node that runs.
type running struct {
	node    atomic.Pointer[engine.Engine] // nil: it waits for its database
	started chan string                   // the status of a node that has just begun to dispatch
	stop    context.CancelFunc
	loops   sync.WaitGroup
}

// startSignals starts the signals of a node. It sets a hook of the engine. The drain begins when ctx
// ends; end must be called after it.
func startSignals(ctx context.Context, o *Options, registry prometheus.Gatherer) *running {
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	r := &running{started: make(chan string, 1), stop: stop}
	listen := o.Listen
	o.Engine.OnStarted = func(id run.NodeID) {
		r.started <- fmt.Sprintf("dispatching as node %s, API on %s", id, listen)
	}
	if o.signals.systemd.Present() {
		r.loops.Go(func() { r.notifySystemd(life, ctx.Done(), o.signals.systemd, o.Log) })
	}
	if o.signals.fleet != "" {
		r.loops.Go(func() { r.writeMetrics(life, newMetricLines(o), registry) })
	}
	return r
}

// end ends the signals, with a last line of metrics.
func (r *running) end() {
	r.stop()
	r.loops.Wait()
}

const (
	// startExtension is how much time to start a node that waits for its database asks systemd for,
	// again and again. The wait may be long, and systemd would end the node after 90 s.
	startExtension = time.Minute
	// extendEvery is how often it asks.
	extendEvery = startExtension / 4
)

// notifySystemd tells systemd how the node fares until life ends: when it is ready, when it drains,
// and, at half of the watchdog's time, that its loops turn.
func (r *running) notifySystemd(life context.Context, draining <-chan struct{}, systemd platform.Systemd, log *slog.Logger) {
	send := func(messages ...string) {
		if err := systemd.Notify(messages...); err != nil {
			log.WarnContext(life, "systemd was not notified", "err", err)
		}
	}
	send(platform.SystemdStatus("waiting for the database"), platform.SystemdExtend(startExtension))
	extend := time.NewTicker(extendEvery)
	defer extend.Stop()
	var watchdog <-chan time.Time
	if interval := systemd.Watchdog(); interval > 0 {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		watchdog = ticker.C
	}
	started := r.started
	for {
		select {
		case <-life.Done():
			return
		case <-draining:
			send(platform.SystemdStopping, platform.SystemdStatus("draining"))
			extend.Stop()
			draining, started = nil, nil
		case status := <-started:
			send(platform.SystemdReady, platform.SystemdStatus(status))
			extend.Stop()
			started = nil
		case <-extend.C:
			send(platform.SystemdExtend(startExtension))
		case <-watchdog:
			if err := r.stalled(time.Now()); err != nil {
				log.ErrorContext(life, "the watchdog of systemd is not notified: the node is stuck", "err", err)
				continue
			}
			send(platform.SystemdWatchdog)
		}
	}
}

// stalled returns nil while the loops of the node turn. A node that waits for its database has none.
func (r *running) stalled(now time.Time) error {
	if node := r.node.Load(); node != nil {
		return node.Stalled(now)
	}
	return nil
}
