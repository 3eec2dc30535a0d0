package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
)

// Nodes that have just started check everything once.
const settling = 5 * time.Second

// grace is how long after its scheduled time a fire of the app may arrive.
const grace = 15 * time.Second

// measure runs both phases.
func (w *world) measure(ctx context.Context) (found findings, err error) {
	from := time.Now().Add(settling).Truncate(time.Second)
	until := from.Add(w.quiet)
	if err := pause(ctx, time.Until(until)); err != nil {
		return found, err
	}
	hostile, err := w.startHostile(ctx)
	if err != nil {
		return found, err
	}
	begun := time.Now().Truncate(time.Second).Add(time.Second)
	ended := begun.Add(w.hostile)
	w.useAPI(ctx, ended, &found)
	if found.report, err = hostile.end(); err != nil {
		return found, err
	}
	wanted := perSecond * int((w.quiet+w.hostile)/time.Second)
	late := func() int { return len(w.receivers.lateness(from, until)) + len(w.receivers.lateness(begun, ended)) }
	// Fires continue, so reports of chainJob also arrive for fires after the phase.
	manual, reports := found.manual, w.receivers.countOf(chainJob)
	arrived := func() bool {
		return late() >= wanted && w.receivers.countQueued(manualJob) >= manual && w.receivers.countQueued(reportJob) >= reports
	}
	for end := time.Now().Add(grace); !arrived() && time.Now().Before(end); {
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return found, err
		}
	}
	found.quiet, found.hostile = w.receivers.lateness(from, until), w.receivers.lateness(begun, ended)
	found.missing = wanted - len(found.quiet) - len(found.hostile)
	found.missingManual = max(0, manual-w.receivers.countQueued(manualJob))
	found.missingReports = max(0, reports-w.receivers.countQueued(reportJob))
	if found.lost, err = w.countLostRuns(ctx, hostile.config.Runs); err != nil {
		return found, err
	}
	if found.unsuccessful, err = w.unsuccessfulRuns(ctx); err != nil {
		return found, err
	}
	for _, n := range w.nodes {
		if !n.alive() {
			found.deadNodes = append(found.deadNodes, n.name)
		}
	}
	if found.nodeResponses, err = w.countNodeResponses(ctx); err != nil {
		return found, err
	}
	w.receivers.mu.Lock()
	defer w.receivers.mu.Unlock()
	found.touched = w.receivers.touched
	return found, nil
}

// useAPI reads a job and runs one each second, like the app's owner, until an instant.
func (w *world) useAPI(ctx context.Context, until time.Time, found *findings) {
	for i := 0; time.Now().Before(until) && ctx.Err() == nil; i++ {
		asked, cancel := context.WithTimeout(ctx, 5*time.Second)
		status, _, err := call(asked, "GET", "http://"+w.nodes[i%len(w.nodes)].listen+"/v1/apps/"+appName+"/jobs/lambda", w.owner, "")
		cancel()
		found.apiRequests++
		if err != nil || status != http.StatusOK {
			found.apiFailed++
		}
		asked, cancel = context.WithTimeout(ctx, 5*time.Second)
		status, _, err = call(asked, "POST", "http://"+w.nodes[i%len(w.nodes)].listen+"/v1/apps/"+appName+"/jobs/"+manualJob+"/run", w.owner, "")
		cancel()
		found.apiRequests++
		if err == nil && status == http.StatusAccepted {
			found.manual++
		} else {
			found.apiFailed++
		}
		_ = pause(ctx, time.Second) // ctx also ends the loop
	}
}

// countLostRuns counts the runs of the app that its owner can no longer read.
func (w *world) countLostRuns(ctx context.Context, runs []string) (lost int, err error) {
	for _, run := range runs {
		status, text, err := call(ctx, "GET", "http://"+w.nodes[0].listen+"/v1/runs/"+run, w.owner, "")
		if err != nil {
			return lost, err
		}
		if status != http.StatusOK || !strings.Contains(text, `"app":"`+appName+`"`) {
			lost++
		}
	}
	return lost, nil
}

// unsuccessfulRuns counts runs of the app without success, by their record in the ledger. It reads 1000 of each state.
func (w *world) unsuccessfulRuns(ctx context.Context) (map[string]int, error) {
	counts := map[string]int{}
	for _, state := range run.FinalStates {
		if state == run.Succeeded {
			continue
		}
		url := fmt.Sprintf("http://%s/v1/apps/%s/runs?limit=1000&state=%s", w.nodes[0].listen, appName, state)
		var page struct{ Items []run.Run }
		status, text, err := call(ctx, "GET", url, w.owner, "")
		if err == nil && status == http.StatusOK {
			err = json.Unmarshal([]byte(text), &page)
		}
		if err != nil || status != http.StatusOK {
			return nil, fmt.Errorf("list runs of the app that are %s: status %d: %w: %.200s", state, status, err, text)
		}
		for _, one := range page.Items {
			counts[fmt.Sprintf("%s of %s: %s", state, one.Job, one.Error)]++
		}
	}
	return counts, nil
}

// countNodeResponses counts the runs of the hostile app that got a response from a node's API.
func (w *world) countNodeResponses(ctx context.Context) (n int, err error) {
	var listens []string
	for _, n := range w.nodes {
		listens = append(listens, n.listen)
	}
	for i := range ownTargets(listens) {
		url := fmt.Sprintf("http://%s/v1/apps/%s/runs?limit=1000&job=%s", w.nodes[0].listen, hostileName, ownJob(i))
		status, text, err := call(ctx, "GET", url, w.operator, "")
		if status == http.StatusNotFound {
			continue // the job was refused
		}
		if err != nil || status != http.StatusOK {
			return n, fmt.Errorf("list runs of the hostile app: status %d: %w: %.200s", status, err, text)
		}
		var page struct {
			Items []struct {
				HTTPStatus int `json:"http_status"`
			}
		}
		if err := json.Unmarshal([]byte(text), &page); err != nil {
			return n, err
		}
		for _, run := range page.Items {
			if run.HTTPStatus != 0 {
				n++
			}
		}
	}
	return n, nil
}

// hostileProcess is the owner of the hostile app.
type hostileProcess struct {
	config  hostileConfig
	command *exec.Cmd
	out     bytes.Buffer
}

// lowest is the priority of the hostile process, so that it can harm the app only through the nodes.
const lowest = 19

func (w *world) startHostile(ctx context.Context) (*hostileProcess, error) {
	config := hostileConfig{Token: w.intruder, Dawdler: w.dawdler, Seed: w.seed, For: w.hostile,
		Shared: w.receivers.shared, Victim: w.receivers.own}
	for _, n := range w.nodes {
		config.Nodes = append(config.Nodes, n.listen)
	}
	status, text, err := call(ctx, "GET", "http://"+config.Nodes[0]+"/v1/apps/"+appName+"/runs?limit=20", w.owner, "")
	if err != nil || status != http.StatusOK {
		return nil, fmt.Errorf("list runs of the app: status %d: %w: %.200s", status, err, text)
	}
	var page struct{ Items []struct{ ID string } }
	if err := json.Unmarshal([]byte(text), &page); err != nil {
		return nil, err
	}
	for _, run := range page.Items {
		config.Runs = append(config.Runs, run.ID)
	}
	encoded, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	h := &hostileProcess{config: config, command: exec.CommandContext(ctx, program, asHostile)} //nolint:gosec // this program
	h.command.Env = append(os.Environ(), hostileVariable+"="+string(encoded))
	h.command.Stdout, h.command.Stderr = &h.out, os.Stderr
	if err := w.spawn.Start(h.command); err != nil {
		return nil, err
	}
	return h, syscall.Setpriority(syscall.PRIO_PGRP, h.command.Process.Pid, lowest)
}

// end waits until the process ends, and returns its report.
func (h *hostileProcess) end() (r report, err error) {
	if err := h.command.Wait(); err != nil {
		return r, fmt.Errorf("owner of the hostile app: %w", err)
	}
	return r, json.Unmarshal(h.out.Bytes(), &r)
}

// pause waits, or returns the error of ctx.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
