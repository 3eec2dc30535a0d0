package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
)

// lambdaService is the Invoke API in front of the runtime API, with the sample function's binary
// between them, as in Lambda.
type lambdaService struct {
	*httptest.Server
	work chan invocation

	mu        sync.Mutex
	invokes   int
	functions []string // names of the invoked functions, in order
	throttles int      // number of invocations to throttle next
	pending   map[string]chan functionResult
}

type invocation struct {
	id      string
	payload []byte
}

type functionResult struct {
	payload []byte
	failed  bool
}

func newLambdaService(t *testing.T) *lambdaService {
	t.Helper()
	s := &lambdaService{work: make(chan invocation), pending: map[string]chan functionResult{}}
	ended := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("POST /2015-03-31/functions/{function}/invocations", s.invoke)
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", func(w http.ResponseWriter, r *http.Request) {
		select {
		case next := <-s.work:
			w.Header().Set("Lambda-Runtime-Aws-Request-Id", next.id)
			w.Header().Set("Lambda-Runtime-Deadline-Ms", fmt.Sprint(time.Now().Add(patience).UnixMilli()))
			_, _ = w.Write(next.payload)
		case <-r.Context().Done():
		case <-ended:
		}
	})
	for path, failed := range map[string]bool{"response": false, "error": true} {
		mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/"+path, func(w http.ResponseWriter, r *http.Request) {
			payload, _ := io.ReadAll(r.Body)
			s.mu.Lock()
			result := s.pending[r.PathValue("id")]
			s.mu.Unlock()
			result <- functionResult{payload, failed}
			w.WriteHeader(http.StatusAccepted)
		})
	}
	s.Server = httptest.NewServer(mux)
	bootstrap := filepath.Join(t.TempDir(), "bootstrap")
	build := exec.Command("go", "build", "-tags", "lambda.norpc", "-o", bootstrap, "./lambda/sample")
	build.Dir = filepath.Join("..", "..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the sample: %v\n%s", err, out)
	}
	function := exec.Command(bootstrap)
	function.Env = append(os.Environ(), "AWS_LAMBDA_RUNTIME_API="+strings.TrimPrefix(s.URL, "http://"))
	if err := function.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = function.Process.Kill()
		_ = function.Wait()
		close(ended)
		s.Close()
	})
	return s
}

func (s *lambdaService) invoke(w http.ResponseWriter, r *http.Request) {
	payload, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.invokes++
	s.functions = append(s.functions, r.PathValue("function"))
	id, result := fmt.Sprint("req-", s.invokes), make(chan functionResult, 1)
	s.pending[id] = result
	throttled := s.throttles > 0
	s.throttles--
	s.mu.Unlock()
	w.Header().Set("X-Amzn-Requestid", id)
	switch {
	case !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/"):
		w.WriteHeader(http.StatusForbidden)
		return
	case throttled:
		w.Header().Set("X-Amzn-Errortype", "TooManyRequestsException")
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(w, `{"Reason":"ReservedFunctionConcurrentInvocationLimitExceeded","message":"Rate Exceeded."}`)
		return
	}
	s.work <- invocation{id, payload}
	ended := <-result
	w.Header().Set("X-Amz-Executed-Version", "$LATEST")
	if ended.failed {
		w.Header().Set("X-Amz-Function-Error", "Unhandled")
	}
	_, _ = w.Write(ended.payload)
}

// of counts the invocations of a function, by the name in the request.
func (s *lambdaService) of(function string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, one := range s.functions {
		if one == function {
			n++
		}
	}
	return n
}

// environment returns the variables for a node that invokes functions here.
func (s *lambdaService) environment() []string {
	return []string{
		"AWS_ENDPOINT_URL_LAMBDA=" + s.URL, "AWS_REGION=eu-central-1", "AWS_ACCESS_KEY_ID=AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY=hunter2hunter2",
		"AWS_CONFIG_FILE=" + os.DevNull, "AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull,
	}
}

func (s *lambdaService) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.invokes
}

// anyFunction are bounds of an app that may invoke every function with every role.
func anyFunction() *target.Bounds {
	return &target.Bounds{Lambda: target.LambdaBounds{Functions: []string{"*"}, Roles: []string{"*"}}}
}

// A throttled function is invoked again later, and the two throttles do not use up the job's only
// attempt. A failing function is invoked again and then given up. Each attempt is one Invoke.
func TestFunctionIsInvokedThroughThrottlesAndFailures(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		s := newLambdaService(t)
		s.throttles = 2
		n := startNodeWith(t, database, newToken(t, database), s.environment())
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "fn",
			AppSpec: access.AppSpec{Enabled: true, Bounds: anyFunction()}}, client.Condition{}))
		call := func(name, payload string, attempts int) run.Run {
			t.Helper()
			job := dispatcher.Job{App: "fn", Name: name}
			job.SetDefaults()
			job.Target.Lambda = &target.Lambda{}
			job.Target.Lambda.SetDefaults()
			job.Target.Lambda.Function, job.Target.Lambda.Concurrency = "sample", 1
			job.Payload = json.RawMessage(payload)
			job.Retry.MaxAttempts = attempts
			if attempts > 1 {
				job.Retry.Delays = []input.Duration{0}
			}
			stored := must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
			if stored.Target.Lambda == nil || stored.Target.Lambda.Function != "sample" {
				t.Fatalf("stored target = %+v", stored.Target)
			}
			id := must[run.Run](t)(n.RunJob(t.Context(), "fn", name)).ID
			until(t, "the run to end", func() bool { return must[run.Run](t)(n.Run(t.Context(), id)).EndedAt != nil })
			return must[run.Run](t)(n.Run(t.Context(), id))
		}
		r := call("adds", `{"amounts":[1,2,3]}`, 1)
		if r.State != run.Succeeded || len(r.Attempts) != 3 ||
			r.Attempts[0].Class != run.ClassThrottled || r.Attempts[1].Class != run.ClassThrottled {
			t.Fatalf("run = %+v, want success after two throttles", r)
		}
		for i, throttled := range r.Attempts[:2] {
			if wait := r.Attempts[i+1].StartedAt.Sub(throttled.EndedAt); wait < time.Second {
				t.Errorf("invoked again %s after a throttle, want a second at least", wait)
			}
		}
		if got := r.Attempts[2].Response; got == nil ||
			got.Body != fmt.Sprintf(`{"run":%q,"total":6,"calls":1}`, r.ID) || got.ExecutedVersion != "$LATEST" ||
			got.RequestID == "" || got.Phases.FirstByte <= 0 || got.Phases.LastByte < got.Phases.FirstByte {
			t.Errorf("answer = %+v, want what the function said", got)
		}
		failed := call("fails", `{"fail":true}`, 2)
		if failed.State != run.Failed || failed.Class != run.ClassFunctionError ||
			len(failed.Attempts) != 2 || !strings.Contains(failed.Error, "told to fail") {
			t.Errorf("run = %+v, want two failures", failed)
		}
		for _, attempt := range failed.Attempts {
			if attempt.Response == nil || attempt.Response.FunctionError != "Unhandled" {
				t.Errorf("attempt = %+v, want the function's error", attempt)
			}
		}
		if got := s.count(); got != len(r.Attempts)+len(failed.Attempts) {
			t.Errorf("%d invocations for %d attempts", got, len(r.Attempts)+len(failed.Attempts))
		}
	})
}

const functions = `
terraform {
  required_providers {
    carillon = {
      source = "carillon-dev/carillon"
    }
  }
}
variable "function" { type = string }
resource "carillon_app" "fn" {
  name   = "fn"
  bounds {
    lambda {
      functions = ["*"]
      roles     = ["arn:aws:iam::123456789012:role/invoker"]
    }
  }
}
resource "carillon_job" "adds" {
  app      = carillon_app.fn.name
  name     = "adds"
  target {
    lambda {
      function    = var.function
      timeout     = "5m"
      concurrency = 2
    }
  }
  payload  = jsonencode({ amounts = [1, 2, 3] })
  trigger {
    name       = "tick"
    expression = "* * * * * ?"
    timezone   = "UTC"
  }
}
resource "carillon_job" "elsewhere" {
  app     = carillon_app.fn.name
  name    = "elsewhere"
  enabled = false
  target {
    lambda {
      function       = "arn:aws:lambda:eu-west-1:123456789012:function:other:7"
      client_context = jsonencode({ custom = { a = "b" } })
      assume_role {
        role_arn     = "arn:aws:iam::123456789012:role/invoker"
        session_tags = { team = "billing" }
      }
    }
  }
  trigger {
    name       = "tick"
    expression = "0 0 3 * * ?"
    timezone   = "UTC"
  }
}
`

// Terraform declares functions, which are then invoked on schedule. A new qualifier is invoked once
// it is declared, and invocations never change the plan.
func TestTerraformDeclaresFunctions(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		s := newLambdaService(t)
		n := startNodeWith(t, database, newToken(t, database), s.environment())
		w := emptyWorkspace(t, n)
		if err := os.WriteFile(filepath.Join(w.dir, "main.tf"), []byte(functions), 0o600); err != nil {
			t.Fatal(err)
		}
		w.apply("-target=carillon_app.fn", "-var=function=sample")
		app := must[access.App](t)(n.App(t.Context(), "fn"))
		app.Bounds = anyFunction()
		must[access.App](t)(n.PutApp(t.Context(), app, client.Condition{Existing: true}))
		for _, function := range []string{"sample", "sample:live"} {
			w.apply("-var=function=" + function)
			until(t, function+" to be invoked twice", func() bool { return s.of(function) >= 2 })
			if out, code := w.terraform("plan", "-detailed-exitcode", "-no-color", "-var=function="+function); code != 0 {
				t.Errorf("plan after %s was invoked: exit %d, want 0, for nothing is to be changed:\n%s", function, code, out)
			}
		}
		n.settled(t, "fn", time.Now()) // wait for runs that still use no qualifier
		before, live := s.of("sample"), s.of("sample:live")
		until(t, "the alias to be invoked again", func() bool { return s.of("sample:live") >= live+2 })
		if after := s.of("sample"); after != before {
			t.Errorf("%d invocations without the qualifier came after those with it", after-before)
		}
		r := func() run.Run {
			runs := n.allRuns("fn")
			return must[run.Run](t)(n.Run(t.Context(), runs[len(runs)-1].ID))
		}()
		if r.State != run.Succeeded || len(r.Attempts) != 1 || r.Attempts[0].Response == nil ||
			!strings.Contains(r.Attempts[0].Response.Body, `"total":6`) {
			t.Errorf("the first run = %+v, want what the function said", r)
		}
		want := &target.AssumeRole{RoleARN: "arn:aws:iam::123456789012:role/invoker",
			SessionTags: map[string]string{"team": "billing"}}
		got := must[dispatcher.Job](t)(n.Job(t.Context(), "fn", "elsewhere")).Target.Lambda
		if diff := cmp.Diff(want, got.AssumeRole); diff != "" {
			t.Errorf("role (-want +got):\n%s", diff)
		}
		state, _ := w.terraform("show", "-json")
		if !strings.Contains(state, `"session_tags":{"team":"billing"}`) || !strings.Contains(state, `"function":"sample:live"`) ||
			strings.Contains(state, "hunter2") {
			t.Errorf("state = %s", state)
		}
		w.apply("-destroy", "-var=function=sample")
	})
}
