package platform

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// ecsAgent implements the agent's protocol. It is its own transport, so that it works in virtual time.
type ecsAgent struct {
	begun time.Time
	// respond may replace the response to the nth request, from 1. Otherwise every request is granted.
	respond func(n int, w http.ResponseWriter) bool
	mu      sync.Mutex
	asked   []string // "0s true 30", by time since begun
}

func (a *ecsAgent) RoundTrip(q *http.Request) (*http.Response, error) {
	if err := q.Context().Err(); err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	a.ServeHTTP(w, q)
	if w.Code == http.StatusTeapot { // it hangs
		<-q.Context().Done()
		return nil, q.Context().Err()
	}
	return w.Result(), nil
}

func (a *ecsAgent) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	body, _ := io.ReadAll(q.Body)
	var asked struct {
		ProtectionEnabled *bool
		ExpiresInMinutes  *int
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if q.Method != http.MethodPut || q.URL.Path != "/api/task-7/task-protection/v1/state" || decoder.Decode(&asked) != nil ||
		asked.ProtectionEnabled == nil || asked.ExpiresInMinutes != nil && (*asked.ExpiresInMinutes < 1 || *asked.ExpiresInMinutes > 2880) {
		http.Error(w, "not a request of this API: "+q.Method+" "+q.URL.Path+" "+string(body), http.StatusBadRequest)
		return
	}
	minutes := 0
	if asked.ExpiresInMinutes != nil {
		minutes = *asked.ExpiresInMinutes
	}
	after := time.Since(a.begun) // wall clock: virtual, because it is called in a bubble
	a.asked = append(a.asked, fmt.Sprintf("%s %t %d", after, *asked.ProtectionEnabled, minutes))
	if a.respond != nil && a.respond(len(a.asked), w) {
		return
	}
	fmt.Fprintf(w, `{"protection":{"ProtectionEnabled":%t,"TaskArn":"arn:aws:ecs:eu-central-1:123456789012:task/c/7"},"requestID":"r1"}`,
		*asked.ProtectionEnabled)
}

func (a *ecsAgent) requests() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.asked)
}

// protected runs script with a TaskProtection in virtual time, and returns the protection and its log.
func protected(t *testing.T, agent *ecsAgent, script func(p *TaskProtection)) (*TaskProtection, string) {
	t.Helper()
	var log bytes.Buffer
	agent.begun = time.Now()
	p := NewTaskProtection("http://169.254.170.2/api/task-7/", &http.Client{Transport: agent}, slog.New(slog.NewTextHandler(&log, nil)),
		prometheus.NewRegistry())
	ctx, end := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { p.Run(ctx) })
	script(p)
	synctest.Wait()
	end()
	running.Wait()
	return p, log.String()
}

// after advances virtual time and lets everything run that is due.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestProtectionIsAskedForRenewedAndDropped(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		script func(p *TaskProtection)
		want   []string
		state  float64
	}{
		"nothing long": {func(p *TaskProtection) { after(3 * time.Hour) }, nil, 0},
		"asked at once": {func(p *TaskProtection) {
			defer p.Hold()()
			after(time.Minute)
		}, []string{"0s true 30"}, 1},
		"dropped after a quiet time": {func(p *TaskProtection) {
			release := p.Hold()
			after(time.Minute)
			release()
			after(time.Hour)
		}, []string{"0s true 30", "1m15s false 0"}, 0},
		"released twice counts once": {func(p *TaskProtection) {
			defer p.Hold()()
			release := p.Hold()
			release()
			release()
			after(time.Minute)
		}, []string{"0s true 30"}, 1},
		"renewed in good time while it is needed": {func(p *TaskProtection) {
			release := p.Hold()
			after(40 * time.Minute)
			release()
			after(time.Minute)
		}, []string{"0s true 30", "15m0s true 30", "30m0s true 30", "40m15s false 0"}, 0},
		"a job of every ten seconds does not flap": {func(p *TaskProtection) {
			for range 30 {
				release := p.Hold()
				after(time.Second)
				release()
				after(9 * time.Second)
			}
		}, []string{"0s true 30"}, 1},
		"taken again after it was dropped": {func(p *TaskProtection) {
			release := p.Hold()
			synctest.Wait()
			release()
			after(time.Minute)
			defer p.Hold()()
			after(time.Second)
		}, []string{"0s true 30", "15s false 0", "1m0s true 30"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				agent := &ecsAgent{}
				p, log := protected(t, agent, tt.script)
				if diff := cmp.Diff(tt.want, agent.requests()); diff != "" {
					t.Error("requests (-want +got):\n" + diff)
				}
				if got := testutil.ToFloat64(p.state); got != tt.state {
					t.Errorf("carillon_task_protection is %v, want %v", got, tt.state)
				}
				if log != "" {
					t.Errorf("without an error it logged %s", log)
				}
			})
		})
	}
}

// Each failure of the agent is counted and retried, but only the first is logged, with the agent's message.
func TestProtectionSurvivesFailuresOfTheAgent(t *testing.T) {
	t.Parallel()
	text := func(status int, body string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}
	}
	const arn = `"arn:aws:ecs:eu-central-1:123456789012:task/c/7"`
	for name, tt := range map[string]struct {
		fail func(http.ResponseWriter)
		says []string
	}{
		"a deployment is blocked": {text(200, `{"requestID":"r9","failure":{"Arn":`+arn+`,"Detail":"x","Reason":"DEPLOYMENT_BLOCKED"}}`),
			[]string{"DEPLOYMENT_BLOCKED", "r9"}},
		"the task has no service": {text(200, `{"failure":{"Arn":`+arn+`,"Detail":"stand-alone","Reason":"TASK_NOT_VALID"}}`),
			[]string{"TASK_NOT_VALID", "stand-alone"}},
		"the role may not": {text(400, `{"requestID":"r9","error":{"Arn":`+arn+`,"Code":"AccessDeniedException","Message":"not authorized"}}`),
			[]string{"AccessDeniedException", "not authorized", "400"}},
		"throttled":       {text(400, `{"error":{"Code":"ThrottlingException","Message":"Rate exceeded"}}`), []string{"ThrottlingException"}},
		"a server error":  {text(500, `{"error":{"Code":"ServerException","Message":"internal"}}`), []string{"500", "ServerException"}},
		"an old agent":    {text(404, "404 page not found"), []string{"404", "page not found"}},
		"no JSON":         {text(200, "<html>"), []string{"html"}},
		"an empty object": {text(200, "{}"), []string{"without a protection"}},
		"the opposite of the request": {text(200, `{"protection":{"ProtectionEnabled":false,"TaskArn":`+arn+`}}`),
			[]string{"the protection is false after asking for true"}},
		"it hangs": {text(http.StatusTeapot, ""), []string{"deadline exceeded"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const failures = 4
				agent := &ecsAgent{respond: func(n int, w http.ResponseWriter) bool {
					if n <= failures {
						tt.fail(w)
					}
					return n <= failures
				}}
				p, log := protected(t, agent, func(p *TaskProtection) {
					defer p.Hold()()
					if synctest.Wait(); testutil.ToFloat64(p.state) != 0 {
						t.Error("carillon_task_protection is 1 before ECS has granted it")
					}
					for range 3 { // further attempts need no further request
						defer p.Hold()()
					}
					after(2 * time.Minute)
				})
				if got := len(agent.requests()); got != failures+1 {
					t.Errorf("it asked %d times, want %d failures and a success: %v", got, failures, agent.requests())
				}
				if got := testutil.ToFloat64(p.errors); got != failures {
					t.Errorf("carillon_task_protection_errors_total is %v, want %d", got, failures)
				}
				if got := testutil.ToFloat64(p.state); got != 1 {
					t.Errorf("carillon_task_protection is %v in the end, want 1", got)
				}
				if failed, works := strings.Count(log, "failed and is retried"), strings.Count(log, "works again"); failed != 1 || works != 1 {
					t.Errorf("it logged %d failures and %d recoveries, want one of each:\n%s", failed, works, log)
				}
				for _, want := range tt.says {
					if !strings.Contains(log, want) {
						t.Errorf("the log does not say %q:\n%s", want, log)
					}
				}
			})
		})
	}
}

func TestProtectionRetriesWithBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		agent := &ecsAgent{respond: func(_ int, w http.ResponseWriter) bool {
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}}
		_, log := protected(t, agent, func(p *TaskProtection) {
			release := p.Hold()
			after(200 * time.Second)
			release()
		})
		var before time.Duration
		for i, request := range agent.requests() {
			offset, what, _ := strings.Cut(request, " ")
			at, err := time.ParseDuration(offset)
			most := min(time.Second<<i/2, time.Minute)
			if i == 0 {
				most = 0
			}
			if pause := at - before; err != nil || what != "true 30" || pause < most/2 || pause > most {
				t.Errorf("request %d is %q, want one for 30 minutes, from half of %s to %s after the one before", i, request, most, most)
			}
			before = at
		}
		if before < 2*time.Minute {
			t.Errorf("the last request came after %s, want one each minute at least", before)
		}
		if got := strings.Count(log, "\n"); got != 1 {
			t.Errorf("it logged %d lines for one spell of failures, want 1:\n%s", got, log)
		}
	})
}

// If renewals fail until the protection ends, the metric reports no protection.
func TestProtectionThatCannotBeRenewedEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		agent := &ecsAgent{respond: func(n int, w http.ResponseWriter) bool {
			if n > 1 {
				w.WriteHeader(http.StatusBadGateway)
			}
			return n > 1
		}}
		protected(t, agent, func(p *TaskProtection) {
			defer p.Hold()()
			after(29 * time.Minute)
			if got := testutil.ToFloat64(p.state); got != 1 {
				t.Errorf("after 29 minutes carillon_task_protection is %v, want 1: ECS still protects the task", got)
			}
			after(2 * time.Minute)
			if got := testutil.ToFloat64(p.state); got != 0 {
				t.Errorf("after 31 minutes carillon_task_protection is %v, want 0", got)
			}
		})
	})
}

// A request that timed out may have been granted, so the protection is dropped when the attempt ends.
func TestProtectionOfUnknownOutcomeIsDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		agent := &ecsAgent{respond: func(n int, w http.ResponseWriter) bool {
			if n == 1 {
				w.WriteHeader(http.StatusTeapot)
			}
			return n == 1
		}}
		protected(t, agent, func(p *TaskProtection) {
			release := p.Hold()
			after(time.Second)
			release()
			after(time.Hour)
		})
		if got := agent.requests(); len(got) != 2 || !strings.HasSuffix(got[1], " false 0") {
			t.Errorf("it asked %v, want a request that hangs, and then for no protection", got)
		}
	})
}

// hungAgent never responds, and never notices that the client has gone.
type hungAgent struct{ end chan struct{} }

func (h hungAgent) RoundTrip(*http.Request) (*http.Response, error) {
	<-h.end
	return nil, errors.New("gone")
}

func TestHoldNeverBlocks(t *testing.T) {
	t.Parallel()
	agent := hungAgent{make(chan struct{})}
	log := slog.New(slog.DiscardHandler)
	p := NewTaskProtection("http://169.254.170.2/api/x", &http.Client{Transport: agent}, log, prometheus.NewRegistry())
	ctx, end := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { p.Run(ctx) })
	for range 1000 {
		p.Hold()()
	}
	end()
	close(agent.end)
	running.Wait()
}
