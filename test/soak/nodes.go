package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher/engine"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/invoke"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// nodesVariable holds the configuration of a process with nodes, as JSON.
const nodesVariable = "SOAK_NODES"

// nodesConfig configures a process with nodes.
type nodesConfig struct {
	Database string
	Nodes    int
	// Labels are the labels of the first node; the others have none.
	Labels input.Labels
	// Short makes them send heartbeats, poll and check more often, so that a short turn covers everything.
	Short bool
}

// nodesReport is the work of a process's nodes since their start, and their state.
type nodesReport struct {
	Statements, Fires, Polls, Polling float64 // Polling in seconds
	Circuits                          float64 // largest number of one node
	Held                              float64 // runs in flight
	RSS                               float64 // MiB of the process
}

// runNodes is a process with nodes. For each line of input it writes a report; it ends with its input.
func runNodes(ctx context.Context, in io.Reader, out io.Writer) error {
	var config nodesConfig
	if err := json.Unmarshal([]byte(os.Getenv(nodesVariable)), &config); err != nil {
		return fmt.Errorf("%s: %w", nodesVariable, err)
	}
	registry := prometheus.NewRegistry()
	s, err := store.Open(ctx, config.Database, store.Options{Options: db.Options{Metrics: registry}})
	if err != nil {
		return err
	}
	registries := []*prometheus.Registry{registry}
	life, end := context.WithCancel(ctx)
	defer end()
	var running sync.WaitGroup
	for i := range config.Nodes {
		of := prometheus.NewRegistry()
		registries = append(registries, of)
		invoker := invoke.New(invoke.Options{Version: "soak", ConnsPerHost: 512, Egress: web.Egress{Loopback: true}})
		defer invoker.Close()
		options := engine.Options{
			Name: "soak-" + strconv.Itoa(i), Version: "soak", Metrics: of, Drain: time.Second,
			// The soak purges separately, to measure the time.
			PurgeInterval: 24 * time.Hour,
			Logger:        slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		}
		if config.Short {
			options.Window, options.Heartbeat, options.Handler = time.Second, time.Second, 3*time.Second
		}
		if i == 0 {
			options.Labels = config.Labels
		}
		running.Go(func() { engine.New(s, invoker, options).Run(life) })
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		r, err := readReport(registries)
		if err == nil {
			err = json.NewEncoder(out).Encode(r)
		}
		if err != nil {
			return err
		}
	}
	end()
	running.Wait()
	return errors.Join(s.Close(), ctx.Err())
}

// readReport reads the metrics of a process.
func readReport(registries []*prometheus.Registry) (r nodesReport, err error) {
	for _, registry := range registries {
		families, err := registry.Gather()
		if err != nil {
			return r, err
		}
		for _, family := range families {
			for _, m := range family.GetMetric() {
				switch family.GetName() {
				case "carillon_database_statements_total":
					r.Statements += m.GetCounter().GetValue()
				case "carillon_attempts_total":
					r.Fires += m.GetCounter().GetValue()
				case "carillon_poll_seconds":
					r.Polls += float64(m.GetHistogram().GetSampleCount())
					r.Polling += m.GetHistogram().GetSampleSum()
				case "carillon_circuits_open":
					r.Circuits = max(r.Circuits, m.GetGauge().GetValue())
				case "carillon_pool_runs":
					r.Held += m.GetGauge().GetValue()
				}
			}
		}
	}
	r.RSS = residentMiB()
	return r, nil
}

// residentMiB returns the memory of this process.
func residentMiB() float64 {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(statm))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseFloat(fields[1], 64) // 0 for an unexpected format
	return pages * float64(os.Getpagesize()) / (1 << 20)
}
