package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/servers"
)

const deadLetterQueue = "arn:aws:sqs:eu-central-1:123456789012:dead-letters"

// warehouse is the target of the jobs in docs/chains.md. It records requests by path.
type warehouse struct {
	*httptest.Server
	mu     sync.Mutex
	got    map[string][][]byte
	kinds  map[string][]string // Carillon-Kind and Carillon-Parent-Event of each request, by path
	status map[string]int      // of responses, by path; 0 means 200
}

func newWarehouse(t *testing.T) *warehouse {
	t.Helper()
	w := &warehouse{got: map[string][][]byte{}, kinds: map[string][]string{}, status: map[string]int{}}
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.got[r.URL.Path] = append(w.got[r.URL.Path], body)
		kind := strings.TrimSpace(r.Header.Get("Carillon-Kind") + " " + r.Header.Get("Carillon-Parent-Event"))
		w.kinds[r.URL.Path] = append(w.kinds[r.URL.Path], kind)
		if status := w.status[r.URL.Path]; status != 0 {
			rw.WriteHeader(status)
		}
		_, _ = io.WriteString(rw, `{"rows": 40}`)
	}))
	t.Cleanup(w.Close)
	return w
}

// respond sets the response status of a path.
func (w *warehouse) respond(path string, status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status[path] = status
}

// requests returns the number of requests of a path.
func (w *warehouse) requests(path string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.got[path])
}

// document waits for the nth request of a path, from 1, and decodes it.
func (w *warehouse) document(t *testing.T, path string, n int) (body dispatcher.FollowDocument, text, kind string) {
	t.Helper()
	until(t, "a request to "+path, func() bool { return w.requests(path) >= n })
	w.mu.Lock()
	defer w.mu.Unlock()
	text, kind = string(w.got[path][n-1]), w.kinds[path][n-1]
	_ = json.Unmarshal([]byte(text), &body) // other bodies are compared as text
	return body, text, kind
}

// shopOfChains applies the configuration of docs/chains.md to a node.
func shopOfChains(t *testing.T, n *process, w *warehouse) *workspace {
	t.Helper()
	space := emptyWorkspace(t, n)
	config := `terraform {
  required_providers {
    carillon = { source = "carillon-dev/carillon" }
  }
}
resource "carillon_app" "shop" {
  name = "shop"
  bounds {
    sqs {
      queues = ["` + deadLetterQueue + `"]
    }
  }
}
` + blockOf(t, "chains.md", "terraform")
	config = strings.NewReplacer("https://warehouse.example.com", w.URL, "https://oncall.example.com", w.URL).Replace(config)
	if err := os.WriteFile(filepath.Join(space.dir, "main.tf"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	space.apply()
	if out, code := space.terraform("plan", "-detailed-exitcode", "-no-color"); code != 0 {
		t.Errorf("plan after apply: exit %d, want no change:\n%s", code, out)
	}
	return space
}

// runToEnd runs a job by hand and waits for its end.
func (n *process) runToEnd(t *testing.T, app, job string) run.Run {
	t.Helper()
	r := must[run.Run](t)(n.RunJob(t.Context(), app, job))
	until(t, "the end of a run of "+job, func() bool {
		r = must[run.Run](t)(n.Run(t.Context(), r.ID))
		return hasEnded(r)
	})
	return r
}

// follower waits until a run has a follower in a job, and returns the follower after its end.
func (n *process) follower(t *testing.T, of, job string) (r run.Run) {
	t.Helper()
	until(t, "a run of "+job+" that follows and ends", func() bool {
		for _, ref := range must[run.Run](t)(n.Run(t.Context(), of)).FollowedBy {
			if ref.Job == job {
				r = must[run.Run](t)(n.Run(t.Context(), ref.Run))
				return hasEnded(r)
			}
		}
		return false
	})
	return r
}

// The story of docs/chains.md: the second of three chained jobs fails, and its dead letter is queued and replayed.
func TestStoryOfChains(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		aws, w := servers.NewAWS(t), newWarehouse(t)
		aws.CreateQueue(deadLetterQueue)
		n := startNodeWith(t, database, newToken(t, database), aws.Environment(), quick()...)
		shopOfChains(t, n, w)

		// load succeeds, report gets its response and fails, and publish does not run.
		w.respond("/report", http.StatusUnprocessableEntity)
		load := n.runToEnd(t, "shop", "load")
		report := n.follower(t, load.ID, "report")
		got, text, kind := w.document(t, "/report", 1)
		if got.Event != run.OnSuccess || got.Parent.Run != load.ID || string(got.Result) != `{"rows":40}` || kind != "chain on_success" {
			t.Errorf("report got %s (%s), want what load responded", text, kind)
		}
		if report.Kind != run.KindChain || report.State != run.Failed || !report.ScheduledAt.Equal(load.ScheduledAt) ||
			report.Cause == nil || report.Cause.Run != load.ID {
			t.Errorf("the run of report is %+v, want one that failed and follows %s", report, load.ID)
		}
		n.follower(t, report.ID, "report.on_failure")
		var dead dispatcher.FollowDocument
		messages := aws.Messages(deadLetterQueue)
		if len(messages) != 1 || json.Unmarshal([]byte(messages[0].Body), &dead) != nil {
			t.Fatalf("the queue has %+v, want one document", messages)
		}
		if p := dead.Parent; dead.Event != run.OnFailure || p.Run != report.ID || p.HTTPStatus != 422 ||
			p.State != run.Failed || p.Attempts != 1 || string(dead.Result) != `{"rows":40}` {
			t.Errorf("the dead letter is %+v, want the run of report and its response", dead)
		}
		shown, _, _ := n.commandWith("", "run", "show", report.ID)
		for _, want := range []string{load.ID + " on_success", "followed by", "shop/report.on_failure on_failure, succeeded"} {
			if !strings.Contains(shown, want) {
				t.Errorf("carillon run show does not say %q:\n%s", want, shown)
			}
		}
		if got := w.requests("/publish"); got != 0 {
			t.Errorf("publish got %d requests after a failure", got)
		}

		n.replayStory(t, w, report)
		if got := len(aws.Messages(deadLetterQueue)); got != 1 || w.requests("/publish") != 1 || w.requests("/load") != 1 {
			t.Errorf("%d messages, %d requests to publish and %d to load, want one each", got, w.requests("/publish"), w.requests("/load"))
		}
	})
}

// replayStory follows docs/chains.md for dead letters: the run of report is counted, replayed while
// its receiver still fails, and replayed again, and then publish follows it.
func (n *process) replayStory(t *testing.T, w *warehouse, report run.Run) {
	t.Helper()
	command := func(args ...string) string {
		t.Helper()
		out, errs, code := n.commandWith("", append([]string{"dead-letter"}, args...)...)
		if code != 0 {
			t.Fatalf("carillon dead-letter %v: exit %d: %s%s", args, code, out, errs)
		}
		return out
	}
	ended := func(state run.State, attempts int) {
		t.Helper()
		until(t, "the replayed run to end as "+string(state), func() bool {
			run := must[run.Run](t)(n.Run(t.Context(), report.ID))
			return run.State == state && len(run.Attempts) == attempts
		})
	}
	out := command("list", "shop/report", "--since", "24h")
	if strings.Count(out, "\n") != 2 || !strings.Contains(out, report.ID) {
		t.Errorf("dead-letter list says\n%s", out)
	}
	out = command("replay", "shop/report", "--since", "24h", "--dry-run")
	if strings.Join(strings.Fields(out), " ") != "dead letters 1" {
		t.Errorf("--dry-run says %q", out)
	}
	command("replay", "shop", "--class", "http_4xx", "--yes")
	ended(run.Failed, 2)
	w.respond("/report", 0)
	if out := command("replay", "shop/report", "--yes", "-o", "json"); !strings.Contains(out, `"replayed": 1`) {
		t.Errorf("the replay says %s", out)
	}
	ended(run.Succeeded, 3)
	n.follower(t, report.ID, "publish")
	if _, text, kind := w.document(t, "/publish", 1); text != `{"channel":"daily"}` || kind != "chain on_success" {
		t.Errorf("publish got %s (%s), want its own payload", text, kind)
	}
	if out := command("list", "shop", "-o", "jsonl"); out != "" {
		t.Errorf("there are still dead letters: %s", out)
	}
	if _, errs, code := n.commandWith("", "dead-letter", "replay", "shop"); code != exitUsage || !strings.Contains(errs, "--dry-run") {
		t.Errorf("without --yes: exit %d, %s", code, errs)
	}
}

// People get one notification for a failed run and one for missed fires.
func TestFailuresAndMisfiresAreReported(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		aws, w := servers.NewAWS(t), newWarehouse(t)
		n := startNodeWith(t, database, newToken(t, database), aws.Environment(), quick()...)
		shopOfChains(t, n, w)
		w.respond("/load", http.StatusForbidden)
		load := n.runToEnd(t, "shop", "load")
		got, text, kind := w.document(t, "/failed", 1)
		if got.Event != run.OnFailure || got.Parent.Run != load.ID || got.Parent.Class != run.ClassHTTP4xx ||
			kind != "follow on_failure" {
			t.Errorf("people are told %s (%s), want the run that failed", text, kind)
		}

		job := must[dispatcher.Job](t)(n.Job(t.Context(), "shop", "load"))
		nightly := job.Triggers["nightly"]
		nightly.Expression, nightly.Timezone, nightly.MisfirePolicy = "* * * * * ?", "UTC", dispatcher.Skip
		nightly.MisfireAfter = input.Duration(time.Second)
		job.Triggers["nightly"] = nightly
		must[dispatcher.Job](t)(n.PauseJob(t.Context(), client.Pausable{App: "shop", Job: "load"}, dispatcher.PauseRequest{},
			client.Condition{Existing: true}))
		must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{Existing: true}))
		elapse(5 * time.Second) // fires are missed
		must[dispatcher.Job](t)(n.ResumeJob(t.Context(), client.Pausable{App: "shop", Job: "load"}, client.Condition{Existing: true}))
		got, text, kind = w.document(t, "/missed", 1)
		if p := got.Parent; got.Event != run.OnMisfire || p.Missed == nil || p.Missed.Count < 1 ||
			p.Decision != dispatcher.DecisionSkip || kind != "follow on_misfire" {
			t.Errorf("people are told %s (%s), want the fires that were missed", text, kind)
		}
	})
}
