package platform

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher/backoff"
)

// ECSAgentVariable is the variable in which ECS gives a container the address of the agent.
const ECSAgentVariable = "ECS_AGENT_URI"

// The times of task protection.
const (
	// protectFor is how long ECS protects the task without a renewal, for example because the node
	// hangs. The node renews at half of it, so the agent may fail for a quarter of an hour.
	protectFor = 30 * time.Minute
	// protectQuiet is how long the node keeps the protection after the last long attempt. Otherwise a job
	// that runs every minute would take and drop it all the time, and ECS throttles these requests.
	protectQuiet = 15 * time.Second
	// protectTimeout bounds one request to the agent, which calls ECS.
	protectTimeout = 10 * time.Second
	// protectRetry and protectRetryMost are the pauses after a failure, doubled each time.
	protectRetry     = time.Second
	protectRetryMost = time.Minute
)

// TaskProtection protects the node's ECS task from scale-in and deployments while long attempts
// run. It never delays an attempt: Run sends the requests to the agent, and logs, counts and
// retries errors.
type TaskProtection struct {
	url    string
	client *http.Client
	log    *slog.Logger
	state  prometheus.Gauge
	errors prometheus.Counter
	wake   chan struct{}

	mu      sync.Mutex
	held    int       // attempts that need protection
	heldTo  time.Time // when the last of them ended
	failing bool      // the latest request failed; only Run uses it and those below
	expires time.Time // end of the protection that ECS granted, or zero
	unknown bool      // a failed request may still have been granted
}

// NewTaskProtection returns the protection by the agent at address, the value of ECS_AGENT_URI. It starts
// nothing; call Run.
func NewTaskProtection(address string, client *http.Client, log *slog.Logger, metrics prometheus.Registerer) *TaskProtection {
	p := &TaskProtection{
		url: strings.TrimSuffix(address, "/") + "/task-protection/v1/state", client: client, log: log, wake: make(chan struct{}, 1),
		state: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "carillon_task_protection", Help: "1 while ECS protects the node's task from scale-in and deployments, else 0.",
		}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "carillon_task_protection_errors_total", Help: "Requests for task protection that failed.",
		}),
	}
	metrics.MustRegister(p.state, p.errors)
	return p
}

// Hold asks for protection until release is called. It returns at once, before ECS has responded.
func (p *TaskProtection) Hold() (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held++; p.held == 1 {
		p.notify()
	}
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.held--; p.held == 0 {
			p.heldTo = time.Now()
			p.notify()
		}
	})
}

// notify wakes Run. One pending wake-up is enough.
func (p *TaskProtection) notify() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Run takes, renews and drops the protection until ctx ends. Then it leaves the protection in
// place: the process ends, and the task with it.
func (p *TaskProtection) Run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait, want := p.next(time.Now())
		if wait <= 0 {
			// A Hold does not shorten the pause after a failure.
			err := backoff.Pauses{First: protectRetry, Most: protectRetryMost}.Repeat(ctx, func() error {
				if wait, want = p.next(time.Now()); wait > 0 {
					return nil
				}
				return p.request(ctx, want)
			}, func(f backoff.Failure) bool {
				if ctx.Err() == nil {
					p.errors.Inc()
					if !p.failing {
						p.log.WarnContext(ctx, "task protection failed and is retried", "wanted", want, "retry", f.Pause.String(), "err", f.Err)
					}
					p.failing = true
				}
				return ctx.Err() == nil
			})
			if err != nil {
				return // ctx has ended
			}
			if p.failing {
				p.log.InfoContext(ctx, "task protection works again")
			}
			p.failing = false
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-p.wake:
		}
	}
}

// next returns the wait until the next request, and then whether that asks for protection.
func (p *TaskProtection) next(now time.Time) (wait time.Duration, want bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.expires.IsZero() && !now.Before(p.expires) {
		p.expires = time.Time{}
		p.state.Set(0)
	}
	switch quiet := p.heldTo.Add(protectQuiet).Sub(now); {
	case p.held > 0 && p.expires.IsZero():
		return 0, true
	case p.held > 0:
		return p.expires.Add(-protectFor / 2).Sub(now), true
	case p.expires.IsZero() && !p.unknown:
		return time.Hour, false
	default:
		return quiet, false
	}
}

// request asks the agent to protect the task or to drop the protection.
func (p *TaskProtection) request(ctx context.Context, protect bool) error {
	asked := time.Now()
	p.mu.Lock()
	p.unknown = true
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, protectTimeout)
	defer cancel()
	granted, err := p.put(ctx, protect)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unknown, p.expires = false, time.Time{}
	p.state.Set(0)
	if granted {
		// Measured by the node's own clock, so no later than at ECS.
		p.expires = asked.Add(protectFor)
		p.state.Set(1)
	}
	return nil
}

// protectionRequest and protectionResponse are messages of the ECS agent. A response has one of three members.
type protectionRequest struct {
	ProtectionEnabled bool
	ExpiresInMinutes  int `json:",omitempty"`
}

type protectionResponse struct {
	Protection *struct{ ProtectionEnabled bool } `json:"protection"`
	Failure    *struct{ Reason, Detail string }  `json:"failure"`
	Error      *struct{ Code, Message string }   `json:"error"`
	RequestID  string                            `json:"requestID"`
}

// put sends one request and returns whether the task is protected now.
func (p *TaskProtection) put(ctx context.Context, protect bool) (granted bool, err error) {
	body := protectionRequest{ProtectionEnabled: protect}
	if protect {
		body.ExpiresInMinutes = int(protectFor / time.Minute)
	}
	text, err := json.Marshal(body)
	if err != nil {
		return false, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, p.url, bytes.NewReader(text))
	if err != nil {
		return false, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := p.client.Do(request)
	if err != nil {
		return false, fmt.Errorf("ask the ECS agent: %w", err)
	}
	defer response.Body.Close()
	text, err = io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return false, fmt.Errorf("read the response of the ECS agent: %w", err)
	}
	var r protectionResponse
	problem := json.Unmarshal(text, &r)
	switch {
	case problem == nil && r.Error != nil:
		return false, fmt.Errorf("ECS agent: status %d: %s: %s (request %s)", response.StatusCode, r.Error.Code, r.Error.Message, r.RequestID)
	case problem == nil && r.Failure != nil:
		return false, fmt.Errorf("ECS: %s: %s (request %s)", r.Failure.Reason, r.Failure.Detail, r.RequestID)
	case response.StatusCode != http.StatusOK || problem != nil || r.Protection == nil:
		return false, fmt.Errorf("ECS agent: status %d without a protection: %.200q", response.StatusCode, text)
	case r.Protection.ProtectionEnabled != protect:
		return false, fmt.Errorf("ECS agent: the protection is %t after asking for %t", r.Protection.ProtectionEnabled, protect)
	}
	return protect, nil
}
