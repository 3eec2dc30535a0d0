package main

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
)

// told is a receiver of notifications that records them, and echoes each in its response.
type told struct {
	*httptest.Server
	mu       sync.Mutex
	messages []notice
}

type notice struct {
	path   string
	header http.Header
	body   []byte
}

func newTold(t *testing.T) *told {
	t.Helper()
	r := &told{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.messages = append(r.messages, notice{req.URL.Path, req.Header, body})
		w.WriteHeader(http.StatusAccepted) // as PagerDuty does
		_, _ = w.Write([]byte(req.URL.Path + string(body)))
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *told) all() []notice {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]notice(nil), r.messages...)
}

// await waits until a number of messages have come, and returns the last.
func (r *told) await(t *testing.T, count int) notice {
	t.Helper()
	until(t, "a notification", func() bool { return len(r.all()) >= count })
	all := r.all()
	if len(all) > count {
		t.Fatalf("%d notifications came, want %d; the last is %s", len(all), count, all[len(all)-1].body)
	}
	return all[count-1]
}

// alertWorld is a node with its receivers, and a job with a target that can be broken.
type alertWorld struct {
	*process
	*workspace
	slack, duty, program *told
	broken               atomic.Bool
	began                time.Time
}

func newAlertWorld(t *testing.T) *alertWorld {
	t.Helper()
	w := &alertWorld{slack: newTold(t), duty: newTold(t), program: newTold(t), began: time.Now().Truncate(time.Second)}
	target := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		if w.broken.Load() {
			out.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(out, hostileTarget)
		}
	}))
	t.Cleanup(target.Close)
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	w.process = startNodeWith(t, database, newToken(t, database), []string{
		"SECRET_SHOP_SLACK=" + w.slack.URL + "/services/T0/B0/" + mark,
		"SECRET_SHOP_PAGERDUTY=" + mark + "-routing-key", "SECRET_SHOP_SIGNING=" + signingSecret,
	}, quick()...)
	w.workspace = emptyWorkspace(t, w.process)
	text := string(must[[]byte](t)(os.ReadFile(filepath.Join("..", "..", "..", "docs", "alerts.md"))))
	config := `terraform {
  required_providers {
    carillon = { source = "carillon-dev/carillon" }
  }
}
resource "carillon_app" "shop" { name = "shop" }
`
	for _, block := range regexp.MustCompile("(?ms)^```terraform\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		config += block[1]
	}
	for _, name := range []string{"import", "pay", "close-books"} {
		config += `resource "carillon_job" "` + name + `" {
  app  = carillon_app.shop.name
  name = "` + name + `"
  labels = ` + map[bool]string{true: `{ tier = "critical" }`, false: "{}"}[name == "pay"] + `
  target {
    webhook {
      url = "` + target.URL + `"
    }
  }
  retry {
    max_attempts = 1
  }
}
`
	}
	config = strings.NewReplacer(
		"https://hooks.slack.com", w.slack.URL, "https://events.pagerduty.com", w.duty.URL, "https://ops.example.com", w.program.URL,
	).Replace(config)
	if err := os.WriteFile(filepath.Join(w.dir, "main.tf"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := carillon(t, nil, "lint", w.dir); code != 0 {
		t.Fatalf("carillon lint: exit %d: %s%s", code, out, errs)
	}
	w.apply()
	return w
}

// signingSecret has the mark of the canary in what it encodes.
//
//nolint:gochecknoglobals // a table
var signingSecret = "whsec_" + base64.StdEncoding.EncodeToString([]byte(mark+" 0123456789 0123456789 0123456789"))

// end runs a job and waits for its end.
func (w *alertWorld) end(t *testing.T, job string) run.Run {
	t.Helper()
	r := must[run.Run](t)(w.RunJob(t.Context(), "shop", job))
	until(t, "the run to end", func() bool { return hasEnded(must[run.Run](t)(w.Run(t.Context(), r.ID))) })
	return r
}

// says runs a command and requires texts in its output.
func (w *alertWorld) says(t *testing.T, line string, want ...string) string {
	t.Helper()
	out, errs, code := w.commandWith("", strings.Fields(line)...)
	if code != 0 {
		t.Fatalf("carillon %s: exit %d: %s%s", line, code, out, errs)
	}
	for _, text := range want {
		if !strings.Contains(out, text) {
			t.Errorf("carillon %s says %q, want %q in it", line, out, text)
		}
	}
	return out
}

// changesNothing requires an empty plan.
func (w *alertWorld) changesNothing(t *testing.T) {
	t.Helper()
	if out, code := w.terraform("plan", "-detailed-exitcode", "-no-color"); code != 0 {
		t.Errorf("plan: exit %d, want no change:\n%s", code, out)
	}
}

// A story: the steps of the page about alerts, in order. Each transition is sent once, to the
// receiver that the page names, in the form that it reads.
func TestStoryOfAlerts(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	w := newAlertWorld(t)
	w.changesNothing(t)
	w.says(t, "alert test shop/channel --wait", "succeeded")
	if m := w.slack.await(t, 1); !strings.Contains(string(m.body), "Test of alert shop/channel") || m.path != "/services/T0/B0/"+mark {
		t.Errorf("test is %s at %s", m.body, m.path)
	}

	w.broken.Store(true)
	failed := w.end(t, "import")
	w.end(t, "import") // the second failure is no transition
	w.end(t, "pay")
	w.end(t, "close-books")
	if body := string(w.slack.await(t, 2).body); !strings.Contains(body, "🔴 Job shop/import failed") || !strings.Contains(body, failed.ID) {
		t.Errorf("Slack got %s, want the failure of run %s", body, failed.ID)
	}
	opened := dutyEvent(t, w.duty.await(t, 1))
	if opened.Action != "trigger" || opened.Key != mark+"-routing-key" || !strings.HasSuffix(opened.Dedup, "/shop/on-call/pay/failure") ||
		opened.Payload.Severity != "critical" || !strings.HasPrefix(opened.Payload.Summary, "Job shop/pay failed: ") {
		t.Errorf("PagerDuty got %+v", opened)
	}
	w.isSigned(t, w.program.await(t, 1), "firing", 1)
	w.says(t, "alert firing shop", "shop/channel", "shop/on-call", "close-books", "succeeded")

	w.says(t, "alert acknowledge shop/on-call pay --until 8h --reason known", "pay")
	if acknowledged := dutyEvent(t, w.duty.await(t, 2)); acknowledged.Action != "acknowledge" || acknowledged.Dedup != opened.Dedup {
		t.Errorf("PagerDuty got %+v, want an acknowledgement", acknowledged)
	}
	w.says(t, "alert firing shop --alert on-call", "e2e")
	w.changesNothing(t)

	w.broken.Store(false)
	for _, job := range []string{"import", "pay", "close-books"} {
		w.end(t, job)
	}
	if m := w.slack.await(t, 3); !strings.Contains(string(m.body), "🟢 Job shop/import succeeds again") {
		t.Errorf("Slack got %s, want the recovery", m.body)
	}
	if resolved := dutyEvent(t, w.duty.await(t, 3)); resolved.Action != "resolve" || resolved.Dedup != opened.Dedup {
		t.Errorf("PagerDuty got %+v, want a resolution", resolved)
	}
	w.isSigned(t, w.program.await(t, 2), "resolved", 2)
	if out := w.says(t, "alert firing shop"); strings.Count(out, "\n") != 1 {
		t.Errorf("after the recovery, carillon alert firing says\n%s", out)
	}
}

// A story: a muted alert records transitions. When the mute is lifted, it sends only conditions that are still active.
func TestStoryOfAMutedAlert(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	w := newAlertWorld(t)
	w.says(t, "alert mute shop/channel --until 8h --reason migration", "is muted until")
	w.says(t, "alert mute shop/program", "is muted until you unmute it")
	w.changesNothing(t)
	w.broken.Store(true)
	w.end(t, "import")
	w.end(t, "close-books")
	until(t, "both to be recorded", func() bool {
		return strings.Count(w.says(t, "alert events shop"), "no, muted") == 2
	})
	w.broken.Store(false)
	w.end(t, "close-books")
	until(t, "the recovery to be recorded", func() bool {
		return strings.Contains(w.says(t, "alert events shop/close-books"), "resolved")
	})
	w.says(t, "alert firing shop", "muted")
	w.says(t, "alert unmute shop/channel", "notifies again")
	w.says(t, "alert unmute shop/program")
	if m := w.slack.await(t, 1); !strings.Contains(string(m.body), "🔴 Job shop/import failed") {
		t.Errorf("Slack got %s, want what still holds", m.body)
	}
	w.says(t, "alert test shop/program --wait", "succeeded")
	w.isSigned(t, w.program.await(t, 1), "test", 0)
}

// No secret of an alert appears in the API, the logs, the Terraform state or the history.
func TestSecretsOfAlertsAreNotShown(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	w := newAlertWorld(t)
	w.broken.Store(true)
	for _, job := range []string{"import", "pay", "close-books"} {
		w.end(t, job)
	}
	w.slack.await(t, 1)
	w.duty.await(t, 1)
	w.program.await(t, 1)
	all := map[string]string{"logs": w.logs.String()}
	for _, command := range []string{"alert list shop -o json", "alert show shop/on-call -o json", "alert firing shop -o json",
		"alert events shop -o json", "run list shop -o json", "audit -o json", "export shop"} {
		all[command] = w.says(t, command)
	}
	type list = struct{ Items []alert.State }
	states := must[list](t)(decoded[list](all["alert firing shop -o json"]))
	for _, s := range states.Items {
		if s.Notification != nil {
			all["run "+s.Notification.Run] = w.says(t, "run show "+s.Notification.Run+" --body -o json")
		}
	}
	if len(states.Items) != 3 {
		t.Errorf("%d conditions hold, want 3", len(states.Items))
	}
	all["state"], _ = w.terraform("state", "pull")
	for where, text := range all {
		for _, secret := range marks(mark) {
			if strings.Contains(text, secret) {
				t.Errorf("%s: %s has a secret as %s", where, text, secret)
			}
		}
	}
}

// decoded decodes JSON.
func decoded[T any](text string) (value T, err error) {
	err = json.Unmarshal([]byte(text), &value)
	return value, err
}

type duty struct {
	Key     string `json:"routing_key"`
	Action  string `json:"event_action"`
	Dedup   string `json:"dedup_key"`
	Payload struct{ Summary, Severity string }
}

func dutyEvent(t *testing.T, m notice) duty {
	t.Helper()
	return must[duty](t)(decoded[duty](string(m.body)))
}

// isSigned checks the signature and the content of a notification, as receivers do.
func (w *alertWorld) isSigned(t *testing.T, m notice, transition target.AlertTransition, sequence int64) {
	t.Helper()
	hook, err := standardwebhooks.NewWebhook(signingSecret)
	if err != nil {
		t.Fatal(err)
	}
	if err := hook.Verify(m.body, m.header); err != nil {
		t.Errorf("signature of %s: %v", m.body, err)
	}
	n := must[target.AlertNotification](t)(decoded[target.AlertNotification](string(m.body)))
	if n.Transition != transition || n.Sequence != sequence || n.Alert != "program" || n.At.Before(w.began) {
		t.Errorf("notification is %s, want %s with sequence %d, of after %s", m.body, transition, sequence, w.began)
	}
}
