package console_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

func TestMenusMarkThePageAndThoseAboveIt(t *testing.T) {
	t.Parallel()
	all := operated(1)
	for request, response := range watched(1) {
		all[request] = response
	}
	w, _ := newCanned(t, all)
	b := w.signedIn(everything())
	marked := regexp.MustCompile(`aria-current="([a-z]+)">([^<]+)<`)
	for at, want := range map[string]string{
		"": "page Attention", "jobs": "page Jobs", "audit/" + access.AuditID(fixedAt, 5): "true Audit log",
		"apps/billing/backfills":    "true Apps, page Backfills",
		"apps/billing/backfills/b1": "true Apps, true Backfills", "apps/billing/jobs/invoices": "true Apps, true Jobs",
		"runs/r1": "true Runs, true Runs",
	} {
		var got []string
		for _, found := range marked.FindAllStringSubmatch(b.get(at).text, -1) {
			got = append(got, found[1]+" "+found[2])
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("page %q marks %q, want %q", at, got, want)
		}
	}
}

func TestSearchesAndLinksOfPages(t *testing.T) {
	t.Parallel()
	w, _ := newCanned(t, watched(50))
	b := w.signedIn(everything())
	for at, wants := range map[string][]string{
		"": {
			`jobs?result=failed">List the jobs</a>`, `jobs?state=paused">List the jobs</a>`,
		},
		"apps/billing/jobs/invoices": {`/audit/one-00"><time `},
	} {
		text := b.get(at).text
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("page %q lacks %s", at, want)
			}
		}
	}
}

func TestInvalidFilterIsShownAndNothingListed(t *testing.T) {
	t.Parallel()
	b := newTrial(t).signedIn(reads())
	got := b.get("jobs?state=FOO&name=in")
	if got.StatusCode != http.StatusBadRequest && got.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("status %d, want a refusal", got.StatusCode)
	}
	if !strings.Contains(got.text, `role="alert"`) || !strings.Contains(got.text, "FOO") ||
		!strings.Contains(got.text, `name="name" value="in"`) || strings.Contains(got.text, `data-key="jobs"`) {
		t.Errorf("the page does not tell it next to the filter, or lists something:\n%s", got.text)
	}
}

func TestUnhealthyNodeDoesNotLookActive(t *testing.T) {
	t.Parallel()
	skewed, late, busy, well := nodeOf("skewed"), nodeOf("late"), nodeOf("busy"), nodeOf("well")
	skewed.Lag, late.ClockOffset, well.Lag, well.ClockOffset = 0, 0, 0, 0
	quiet, expired := nodeOf("quiet"), nodeOf("expired")
	quiet.SilentFor = input.Duration(57 * time.Second)
	expired.ClockOffset, expired.Lag, expired.CertificateEndsAt = 0, 0, new(expired.HeartbeatAt.Add(-time.Hour))
	skewed.ClockOffset = input.Duration(2 * dispatcher.WrongClock)
	late.Lag = input.Duration(2 * dispatcher.LateLag)
	busy.ClockOffset, busy.Lag, busy.Saturated = 0, late.Lag, true
	dead, left := nodeOf("vanished"), nodeOf("left")
	dead.State, left.State, left.Deregistered = dispatcher.NodeDead, dispatcher.NodeDead, true
	all := []dispatcher.Node{skewed, quiet, expired, late, busy, well, dead, left}
	w, _ := newCanned(t, map[string]any{"GET /v1/nodes": items(all, "")})
	text := w.signedIn(reads()).get("nodes").text
	if !strings.Contains(text, "silent for 57 s") {
		t.Errorf("the page does not say for how long a node is silent: %s", text)
	}
	for name, want := range map[string]string{
		"skewed": "clock", "quiet": "silent", "expired": "expired", "late": "late", "busy": "saturated", "well": "active",
		"vanished": "dead", "left": "stopped",
	} {
		if found := regexp.MustCompile(`>` + name + `<br>.*?data-state="([a-z]+)"`).FindStringSubmatch(text); found == nil || found[1] != want {
			t.Errorf("node %s is shown as %q, want %s", name, found, want)
		}
	}
}

func TestLoginWithASessionLeadsOn(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	b := w.signedIn(reads())
	for next, want := range map[string]string{"": "./", "?next=jobs%3Fname%3Dx": "./jobs?name=x", "?next=//evil.example": "./"} {
		if got := b.get("login" + next); got.StatusCode != http.StatusSeeOther || got.Header.Get("Location") != want {
			t.Errorf("login%s: status %d to %q, want 303 to %s", next, got.StatusCode, got.Header.Get("Location"), want)
		}
	}
	if got := w.browse().get("login"); got.StatusCode != http.StatusOK {
		t.Errorf("without a session: status %d, want the login", got.StatusCode)
	}
}

func TestBrowsersAreToldToStayWithHTTPS(t *testing.T) {
	t.Parallel()
	b := newTrial(t).browse()
	for proto, want := range map[string]string{"": "", "http": "", "https": "max-age=31536000"} {
		got := b.send(http.MethodGet, "login", nil, map[string]string{"X-Forwarded-Proto": proto})
		if header := got.Header.Get("Strict-Transport-Security"); header != want {
			t.Errorf("behind a proxy that says %q: header %q, want %q", proto, header, want)
		}
	}
}
