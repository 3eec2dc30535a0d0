package console_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/console"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Without the database, each page shows to any caller that it is unreachable, and since when. It holds nothing else.
func TestPagesWithoutADatabaseShowSinceWhenItIsUnreachable(t *testing.T) {
	t.Parallel()
	var away atomic.Bool
	since := time.Date(2026, 11, 27, 10, 20, 30, 0, time.UTC)
	w := newTrial(t, func(o *console.Options) { o.Reached = func() (time.Time, bool) { return since, !away.Load() } })
	b, stranger := w.signedIn(writes()), w.browse()
	if got := stranger.get("nodes"); got.StatusCode != http.StatusSeeOther {
		t.Errorf("a stranger: status %d, want the way to the login", got.StatusCode)
	}
	if err := w.store.Close(); err != nil {
		t.Fatal(err)
	}
	away.Store(true)
	for name, got := range map[string]page{
		"a page":                b.get("nodes"),
		"the page of an app":    b.get("apps/billing/jobs/invoices"),
		"a form":                b.post("apps/billing/jobs/invoices/pause", url.Values{"reason": {"night"}}),
		"a page to a stranger":  stranger.get("?app=billing"),
		"the login":             stranger.get("login"),
		"an attempt to sign in": stranger.post("login", url.Values{"token": {"carillon_x"}}),
		"the end of a session":  b.post("logout", nil),
	} {
		valid(t, name, got)
		for _, want := range []string{"The database cannot be reached",
			`datetime="2026-11-27T10:20:30.000Z"`, "misfire policy", "carillon doctor"} {
			if !strings.Contains(got.text, want) {
				t.Errorf("%s does not say %q:\n%s", name, want, got.text)
			}
		}
		if got.StatusCode != http.StatusServiceUnavailable || got.Header.Get("Retry-After") != "5" {
			t.Errorf("%s: status %d, Retry-After %q, want 503 and 5", name, got.StatusCode, got.Header.Get("Retry-After"))
		}
		if again := strings.Contains(got.text, `http-equiv="refresh"`); again != (got.Request.Method == http.MethodGet) {
			t.Errorf("%s: %s refreshes itself: %v", name, got.Request.Method, again)
		}
		if strings.Contains(got.text, w.file) || strings.Contains(got.text, "sql") {
			t.Errorf("%s tells of the database:\n%s", name, got.text)
		}
	}
}

// If only heartbeats fail, as while the disk is full, pages that can be read are still shown.
func TestReadablePagesAreShownWhileHeartbeatsFail(t *testing.T) {
	t.Parallel()
	w := newTrial(t, func(o *console.Options) { o.Reached = func() (time.Time, bool) { return time.Time{}, false } })
	if got := w.browse().get("login"); got.StatusCode != http.StatusOK {
		t.Errorf("the login: status %d, want 200", got.StatusCode)
	}
	if got := w.signedIn(writes()).get("nodes"); got.StatusCode != http.StatusOK {
		t.Errorf("a page: status %d, want 200", got.StatusCode)
	}
}

// fullDisk is a console's environment on a full disk, which can be read.
type fullDisk struct {
	console.API
	access.Sessions
}

var errFull = errors.New("SQLITE_FULL")

func (fullDisk) CreateSession(context.Context, access.Session, input.Change) error { return errFull }

func (fullDisk) Refused(err error) error {
	if errors.Is(err, errFull) {
		return input.Refuse(input.CodeUnavailable, "the disk is full; free space")
	}
	return nil
}

func TestSignInSaysThatTheDatabaseRefusesWrites(t *testing.T) {
	t.Parallel()
	w := newTrial(t, func(o *console.Options) {
		full := fullDisk{o.API, o.Sessions}
		o.API, o.Sessions = full, full
	})
	got := w.browse().post("login", url.Values{"token": {w.token("ann", reads())}})
	valid(t, "the login", got)
	if got.StatusCode != http.StatusServiceUnavailable || !strings.Contains(got.text, "the disk is full; free space") {
		t.Errorf("status %d, want 503 and the reason:\n%s", got.StatusCode, got.text)
	}
}

// A page without a database says whether it is away or refuses connections.
func TestOutageSaysHowTheDatabaseRefusesConnections(t *testing.T) {
	t.Parallel()
	w := newTrial(t, func(o *console.Options) { o.API = standby{o.API} })
	b := w.signedIn(reads())
	if err := w.store.Close(); err != nil {
		t.Fatal(err)
	}
	got := b.get("nodes")
	valid(t, "a page", got)
	if got.StatusCode != http.StatusServiceUnavailable || !strings.Contains(got.text, "the database is read-only") {
		t.Errorf("status %d, want 503 and the reason:\n%s", got.StatusCode, got.text)
	}
}

// standby is an API over a database that has become a standby.
type standby struct{ console.API }

func (standby) Refused(error) error {
	return input.Refuse(input.CodeUnavailable, "the database is read-only")
}

// People on call see an alert that did not arrive before they rely on alerts.
func TestAttentionShowsAlertsThatDidNotArrive(t *testing.T) {
	t.Parallel()
	arrived := alert.State{App: "bank", Alert: "on-call", Job: "arrived", Condition: target.AlertFailure, Firing: true}
	lost := arrived
	lost.Job, lost.Notification = "lost", &alert.Delivery{State: run.Failed, Class: run.ClassDNS, Error: "no such host"}
	found := watchedAttention(0)
	found.Alerts.Items = []alert.State{arrived, lost}
	w, _ := newCanned(t, map[string]any{"GET /v1/attention": found})
	got := w.signedIn(reads()).get("")
	_, section, _ := strings.Cut(got.text, `id="undelivered"`)
	section, _, _ = strings.Cut(section, "</section>")
	if !strings.Contains(section, "lost") || !strings.Contains(section, "no such host") || strings.Contains(section, "arrived") {
		t.Errorf("alerts that did not arrive: %s", section)
	}
}
