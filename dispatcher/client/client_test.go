package client_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/verify"
	"github.com/carillon-dev/carillon/dispatcher/view"
	"github.com/carillon-dev/carillon/test/sqlitetest"
)

// newServer serves the real API over a new database, and returns its address and a token.
func newServer(t *testing.T) (*store.Store, *httptest.Server, string) {
	t.Helper()
	s, err := store.Open(t.Context(), sqlitetest.New(t), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	secret, hash := access.NewToken()
	if err := s.CreateToken(t.Context(), access.APIToken{ID: "test", Name: "test", Hash: hash,
		TokenSpec: access.TokenSpec{Scopes: access.Scopes()}}); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(api.New(s, api.Options{Logger: slog.New(slog.DiscardHandler)}))
	t.Cleanup(server.Close)
	return s, server, secret
}

func newClient(t *testing.T, endpoint, token string, transport http.RoundTripper) *client.Client {
	t.Helper()
	c, err := client.New(endpoint, token, client.Options{Transport: transport, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// roundTripper is a transport made of a function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// declared is a job as a Go program writes it: most fields keep their defaults.
func declared() dispatcher.Job {
	return dispatcher.Job{
		App: "crm", Name: "sync",
		JobSpec: dispatcher.JobSpec{Enabled: true, Target: target.Target{Webhook: &target.Webhook{URL: "https://example.com/?a=<b>&c"}},
			Payload: []byte(`{"a":1}`),
			Triggers: map[string]dispatcher.Trigger{
				"nightly": {TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: "0 0 2 * * ?", Timezone: "UTC"},
					Enabled: true}},
			}},
	}
}

func TestClientCallsEveryRoute(t *testing.T) {
	t.Parallel()
	s, server, token := newServer(t)
	c, ctx := newClient(t, server.URL+"/", token, nil), t.Context()

	app, err := c.PutApp(ctx, access.App{Name: "crm", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{Absent: true})
	if err != nil || app.Revision != 1 {
		t.Fatalf("PutApp = %+v, %v", app, err)
	}
	if app, err = c.PatchApp(ctx, "crm", false, client.Condition{Revision: 1}); err != nil || app.Enabled {
		t.Fatalf("PatchApp = %+v, %v", app, err)
	}
	if got, err := c.App(ctx, "crm"); err != nil || !cmp.Equal(got, app) {
		t.Errorf("App = %+v, %v, want %+v", got, err, app)
	}
	app.Usage = nil // lists omit it
	if got, err := c.Apps(ctx, input.Page{Limit: 1}); err != nil ||
		!cmp.Equal(got, client.List[access.App]{Items: []access.App{app}}) {
		t.Errorf("Apps = %+v, %v", got, err)
	}
	if app, err = c.PatchApp(ctx, "crm", true, client.Condition{}); err != nil || !app.Enabled || app.Revision != 3 {
		t.Fatalf("PatchApp back = %+v, %v", app, err)
	}
	job, err := c.PutJob(ctx, declared(), client.Condition{Absent: true})
	if err != nil || job.Triggers["nightly"].NextFireTime == nil || job.Target.Webhook.URL != declared().Target.Webhook.URL {
		t.Fatalf("PutJob = %+v, %v", job, err)
	}
	if job.Target.Webhook.Timeout != target.DefaultTimeout || job.Target.Webhook.Method != "POST" {
		t.Errorf("webhook is %+v, want the defaults where nothing was given", job.Target.Webhook)
	}
	if got, err := c.Job(ctx, "crm", "sync"); err != nil || !cmp.Equal(got, job) {
		t.Errorf("Job = %+v, %v, want %+v", got, err, job)
	}
	if job, err = c.PutJob(ctx, job, client.Condition{Revision: 1}); err != nil || job.Revision != 1 {
		t.Errorf("PutJob of the job from GET = %+v, %v", job, err)
	}
	job.Description = "changed"
	if job, err = c.PutJob(ctx, job, client.Condition{Revision: 1}); err != nil || job.Revision != 2 {
		t.Errorf("PutJob of a changed job = %+v, %v", job, err)
	}
	if job, err = c.PauseJob(ctx, client.Pausable{App: "crm", Job: "sync"}, dispatcher.PauseRequest{},
		client.Condition{}); err != nil || !job.Paused {
		t.Errorf("PauseJob = %+v, %v", job, err)
	}
	if job, err = c.PauseJob(ctx, client.Pausable{App: "crm", Job: "sync", Trigger: "nightly"}, dispatcher.PauseRequest{},
		client.Condition{Revision: job.Revision}); err != nil || !job.Triggers["nightly"].Paused {
		t.Errorf("PauseJob of a trigger = %+v, %v", job, err)
	}
	if job, err = c.ResumeJob(ctx, client.Pausable{App: "crm", Job: "sync"}, client.Condition{}); err != nil || job.Paused {
		t.Errorf("ResumeJob = %+v, %v", job, err)
	}
	rename := dispatcher.JobRename{Name: "import", Triggers: map[string]string{"nightly": "daily"}}
	if job, err = c.RenameJob(ctx, "crm", "sync", rename, client.Condition{Revision: job.Revision}); err != nil || job.Name != "import" {
		t.Errorf("RenameJob = %+v, %v", job, err)
	}
	rename = dispatcher.JobRename{Name: "sync", Triggers: map[string]string{"daily": "nightly"}}
	if job, err = c.RenameJob(ctx, "crm", "import", rename, client.Condition{Existing: true}); err != nil || job.Name != "sync" {
		t.Errorf("RenameJob back = %+v, %v", job, err)
	}
	if _, err := c.RenameJob(ctx, "crm", "sync", rename, client.Condition{}); err == nil {
		t.Error("RenameJob without a condition succeeded")
	}
	if got, err := c.Jobs(ctx, "crm", input.Page{}); err != nil || len(got.Items) != 1 {
		t.Errorf("Jobs = %+v, %v", got, err)
	}
	labels := input.Labels{"team": "pay", "tier": "1"}
	if got, err := c.Jobs(ctx, "crm", input.Page{Labels: labels}); err != nil || len(got.Items) != 0 {
		t.Errorf("Jobs with labels that none has = %+v, %v", got, err)
	}
	testLedger(t, c)
	testNodes(t, c, s)
	testCalendars(t, c)
	testTokens(t, c, server.URL)
	preview, err := c.Preview(ctx, view.PreviewRequest{Schedule: dispatcher.Schedule{Expression: "rate(1h)"}, Count: 2})
	if err != nil || len(preview.FireTimes) != 2 {
		t.Errorf("Preview = %+v, %v", preview, err)
	}
	if err := c.DeleteJob(ctx, "crm", "sync", client.Condition{Existing: true}); err != nil {
		t.Errorf("DeleteJob: %v", err)
	}
	if err := c.DeleteApp(ctx, "crm", client.Condition{Revision: 3}); err != nil {
		t.Errorf("DeleteApp: %v", err)
	}
}

func testLedger(t *testing.T, c *client.Client) {
	t.Helper()
	ctx := t.Context()
	r, err := c.RunJob(ctx, "crm", "sync")
	if err != nil || r.State != run.Queued {
		t.Fatalf("RunJob = %+v, %v", r, err)
	}
	if r, err = c.CancelRun(ctx, r.ID); err != nil || r.State != run.Cancelled {
		t.Errorf("CancelRun = %+v, %v", r, err)
	}
	if _, err = c.CancelRun(ctx, r.ID); !errors.Is(err, dispatcher.ErrConflict) {
		t.Errorf("CancelRun of a finished run = %v, want ErrConflict", err)
	}
	if r, err = c.RetryRun(ctx, r.ID); err != nil || r.State != run.Queued {
		t.Errorf("RetryRun = %+v, %v", r, err)
	}
	if got, err := c.Run(ctx, r.ID); err != nil || got.ID != r.ID {
		t.Errorf("Run = %+v, %v", got, err)
	}
	query := dispatcher.RunQuery{App: "crm", Job: "sync", State: run.Queued, From: r.ScheduledAt,
		To: r.ScheduledAt, Page: input.Page{Limit: 5}}
	if got, err := c.Runs(ctx, query); err != nil || len(got.Items) != 1 {
		t.Errorf("Runs = %+v, %v", got, err)
	}
	if got, err := c.Slots(ctx, "crm", "sync"); err != nil || len(got.Items) != 0 {
		t.Errorf("slots = %+v, %v, want none", got, err)
	}
	if got, err := c.Misfires(ctx, dispatcher.RunQuery{App: "crm"}); err != nil || len(got.Items) != 0 {
		t.Errorf("Misfires = %+v, %v", got, err)
	}
	at := r.ScheduledAt.Add(time.Hour + 123*time.Microsecond)
	if got, err := c.Explain(ctx, "crm", "sync", "nightly", at); err != nil || got.Verdict != verify.VerdictNone {
		t.Errorf("Explain = %+v, %v, want no scheduled time", got, err)
	}
	period := verify.Query{App: "crm", From: r.ScheduledAt, To: r.ScheduledAt.Add(time.Second), Page: input.Page{Limit: 5}}
	if got, err := c.Verify(ctx, period); err != nil || len(got.Items) != 1 || !got.Items[0].From.Equal(period.From) {
		t.Errorf("Verify = %+v, %v", got, err)
	}
}

// The API answers a whole second with the fire within it.
func TestExplainFindsTheFireWithinASecond(t *testing.T) {
	t.Parallel()
	_, server, token := newServer(t)
	c, ctx := newClient(t, server.URL+"/", token, nil), t.Context()
	if _, err := c.PutApp(ctx, access.App{Name: "crm", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{Absent: true}); err != nil {
		t.Fatal(err)
	}
	job := declared()
	job.Triggers = map[string]dispatcher.Trigger{
		"often": {TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: "rate(1500ms)"}, Enabled: true}}}
	stored, err := c.PutJob(ctx, job, client.Condition{Absent: true})
	if err != nil {
		t.Fatal(err)
	}
	for fire := range time.Duration(2) { // one of them, at least, has milliseconds
		at := stored.Triggers["often"].NextFireTime.Add(fire * 1500 * time.Millisecond)
		if got, err := c.Explain(ctx, "crm", "sync", "often", at.Truncate(time.Second)); err != nil || !got.At.Equal(at) {
			t.Errorf("Explain of the second of %s = %+v, %v, want that fire", at, got, err)
		}
	}
}

func testTokens(t *testing.T, c *client.Client, endpoint string) {
	t.Helper()
	ctx := t.Context()
	declared := access.APIToken{Name: "ci", TokenSpec: access.TokenSpec{Scopes: []access.Scope{access.ScopeRead}, Apps: []string{"crm"}}}
	made, err := c.PutToken(ctx, declared, client.Condition{Absent: true})
	if err != nil || made.Secret == "" {
		t.Fatalf("PutToken = %+v, %v", made.APIToken, err)
	}
	if _, err := newClient(t, endpoint, made.Secret, nil).App(ctx, "crm"); err != nil {
		t.Errorf("the new token is refused: %v", err)
	}
	if got, err := c.Token(ctx, "ci"); err != nil || got.ID != made.ID {
		t.Errorf("Token = %+v, %v", got, err)
	}
	if got, err := c.Tokens(ctx, input.Page{Limit: 1}); err != nil || len(got.Items) != 1 || got.Next != "ci" {
		t.Errorf("Tokens = %+v, %v", got, err)
	}
	rotated, err := c.RotateToken(ctx, "ci", access.TokenRotation{})
	if err != nil || rotated.Secret == made.Secret || rotated.Secret == "" {
		t.Errorf("RotateToken = %+v, %v", rotated.APIToken, err)
	}
	var problem *client.Error
	if _, err := newClient(t, endpoint, made.Secret, nil).App(ctx, "crm"); !errors.As(err, &problem) || problem.Status != 401 {
		t.Errorf("the old secret gets %v, want 401", err)
	}
	if err := c.DeleteToken(ctx, "test", client.Condition{Revision: 1}); !errors.Is(err, dispatcher.ErrConflict) {
		t.Errorf("DeleteToken of the last admin = %v, want ErrConflict", err)
	}
	if err := c.DeleteToken(ctx, "ci", client.Condition{Revision: rotated.Revision}); err != nil {
		t.Errorf("DeleteToken = %v", err)
	}
}

func testNodes(t *testing.T, c *client.Client, s *store.Store) {
	t.Helper()
	ctx := t.Context()
	now, err := s.Clock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Register(ctx, dispatcher.Node{ID: 9, Name: "n", State: dispatcher.NodeActive}, now); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Nodes(ctx); err != nil || len(got.Items) != 1 {
		t.Errorf("Nodes = %+v, %v", got, err)
	}
	for _, state := range []dispatcher.NodeState{dispatcher.NodePaused, dispatcher.NodeActive, dispatcher.NodeDraining} {
		if got, err := c.SetNodeState(ctx, 9, state); err != nil || got.State != state {
			t.Errorf("SetNodeState(%s) = %+v, %v", state, got, err)
		}
	}
	if _, err := c.SetNodeState(ctx, 9, dispatcher.NodeDead); !errors.Is(err, dispatcher.ErrConflict) {
		t.Errorf("SetNodeState(dead) = %v, want ErrConflict", err)
	}
}

func TestErrorsMatchDomainErrors(t *testing.T) {
	t.Parallel()
	_, server, token := newServer(t)
	c, ctx := newClient(t, server.URL, token, nil), t.Context()
	if _, err := c.App(ctx, "nosuch"); !errors.Is(err, dispatcher.ErrNotFound) {
		t.Errorf("App(nosuch) = %v, want ErrNotFound", err)
	}
	if _, err := c.App(ctx, ".."); err == nil {
		t.Error("App(..) gave no error")
	}
	if _, err := c.PutApp(ctx, access.App{Name: "crm"}, client.Condition{Revision: 3}); !errors.Is(err, dispatcher.ErrPrecondition) {
		t.Errorf("PutApp of revision 3 = %v, want ErrPrecondition", err)
	}
	made, err := c.PutApp(ctx, access.App{Name: "books"}, client.Condition{Absent: true})
	if err != nil {
		t.Fatal(err)
	}
	var stale *client.Error
	if _, err := c.PutApp(ctx, made, client.Condition{Revision: 3}); !errors.As(err, &stale) || stale.ChangedBy == "" ||
		!stale.ChangedAt.Equal(made.UpdatedAt) {
		t.Errorf("PutApp of revision 3 = %+v, want who changed it at %s", stale, made.UpdatedAt)
	}
	_, err = c.PutApp(ctx, access.App{Name: "A B", AppSpec: access.AppSpec{Description: strings.Repeat("x", 2000)}}, client.Condition{})
	var problems input.Problems
	var problem *client.Error
	if !errors.As(err, &problems) || len(problems) != 2 || !errors.As(err, &problem) || problem.Status != 422 || problem.RequestID == "" {
		t.Errorf("PutApp of a bad app = %v, want its two problems", err)
	}
	_, err = newClient(t, server.URL, "wrong", nil).App(ctx, "crm")
	if !errors.As(err, &problem) || problem.Status != http.StatusUnauthorized {
		t.Errorf("App with a wrong token = %v, want status 401", err)
	}
	_, err = newClient(t, server.URL+"/prefix", token, nil).App(ctx, "crm")
	if !errors.As(err, &problem) || len(problem.Problems) != 1 || problem.Problems[0].Code != input.CodeRouteUnknown {
		t.Errorf("App at a wrong endpoint = %v, want %s", err, input.CodeRouteUnknown)
	}
}

func TestEndpointsAreChecked(t *testing.T) {
	t.Parallel()
	for _, endpoint := range []string{"", "host:8080", "ftp://host", "https://", "https://h?x=1", "https://h#x",
		"https://u:hunter2@h", "https://u:hunter2@h:x"} {
		_, err := client.New(endpoint, "t", client.Options{})
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("New(%q) = %v, want an error without the password", endpoint, err)
		}
	}
}

// losing is a transport that loses the response to the first request of a method, after the server has handled it and
// then is called.
func losing(method string, then func()) roundTripper {
	lost := false
	return func(r *http.Request) (*http.Response, error) {
		response, err := http.DefaultTransport.RoundTrip(r)
		if err == nil && r.Method == method && !lost {
			lost = true
			_ = response.Body.Close()
			then()
			return nil, io.ErrUnexpectedEOF
		}
		return response, err
	}
}

// The write was done, but its response was lost: the node was killed, or the connection broke. The client
// must neither report a conflict, nor leave its user to import what it made itself.
func TestWriteWithLostResponseSucceeds(t *testing.T) {
	t.Parallel()
	_, server, token := newServer(t)
	none := func() {}
	put := newClient(t, server.URL, token, losing(http.MethodPut, none))
	app, err := put.PutApp(t.Context(), access.App{Name: "crm"}, client.Condition{Absent: true})
	if err != nil || app.Revision != 1 {
		t.Errorf("creation: %+v, %v, want revision 1", app, err)
	}
	put = newClient(t, server.URL, token, losing(http.MethodPut, none))
	job, err := put.PutJob(t.Context(), declared(), client.Condition{Absent: true})
	if err != nil || job.Revision != 1 {
		t.Errorf("creation of a job: revision %d, %v, want 1", job.Revision, err)
	}
	job.Description = "changed"
	put = newClient(t, server.URL, token, losing(http.MethodPut, none))
	job, err = put.PutJob(t.Context(), job, client.Condition{Revision: 1})
	if err != nil || job.Revision != 2 || job.Description != "changed" {
		t.Errorf("change of a job: revision %d, description %q, %v, want 2", job.Revision, job.Description, err)
	}
	remove := newClient(t, server.URL, token, losing(http.MethodDelete, none))
	if err := remove.DeleteJob(t.Context(), job.App, job.Name, client.Condition{Revision: 2}); err != nil {
		t.Errorf("deletion of a job: %v", err)
	}
}

// Another client has changed the object since the write whose response was lost. What this client gets is the loss: the
// write was done, so a conflict would be wrong, and so would be the object of the other client.
func TestLostWriteThatWasOverwrittenIsNoConflict(t *testing.T) {
	t.Parallel()
	_, server, token := newServer(t)
	other := newClient(t, server.URL, token, nil)
	c := newClient(t, server.URL, token, losing(http.MethodPut, func() {
		app := access.App{Name: "crm", AppSpec: access.AppSpec{Description: "of another client"}}
		if _, err := other.PutApp(t.Context(), app, client.Condition{Revision: 1}); err != nil {
			t.Error(err)
		}
	}))
	app, err := c.PutApp(t.Context(), access.App{Name: "crm"}, client.Condition{Absent: true})
	if errors.Is(err, dispatcher.ErrPrecondition) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("PutApp = %+v, %v, want the lost response", app, err)
	}
}

func TestRedirectsAndForeignPagesAreErrors(t *testing.T) {
	t.Parallel()
	for name, response := range map[string]http.HandlerFunc{
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusMovedPermanently)
		},
		"a page":     func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>log in</html>") },
		"a 404 page": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", http.StatusNotFound) },
	} {
		var followed atomic.Bool
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/elsewhere" {
				followed.Store(true)
			}
			response(w, r)
		}))
		t.Cleanup(server.Close)
		if app, err := newClient(t, server.URL, "t", nil).PutApp(t.Context(), access.App{Name: "crm"},
			client.Condition{}); err == nil || followed.Load() {
			t.Errorf("%s: PutApp = %+v, followed %v; want an error", name, app, followed.Load())
		}
	}
}

// Another server may respond at a wrong endpoint. Its response must never pass for an object that
// was read, written or deleted: Terraform would plan with it.
func TestForeignResponsesAreRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status      int
		media, body string
	}{
		"an empty 200":         {200, "", ""},
		"an empty 200 of JSON": {200, "application/json", ""},
		"a 204":                {204, "", ""},
		"an empty object":      {200, "application/json", "{}"},
		"null":                 {200, "application/json", "null"},
		"an object of another": {200, "application/json", `{"app":"x","name":"y","id":"z"}`},
		"JSON as text":         {200, "text/plain", `{"app":"crm","name":"crm"}`},
		"an odd status":        {206, "application/json", `{"app":"crm","name":"crm"}`},
		"a list":               {200, "application/json", `[]`},
		"a login page":         {200, "text/html", "<html>"},
		"a 404 of JSON":        {404, "application/json", `{"errors":[{"code":"not_found"}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tt.media)
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			}))
			t.Cleanup(server.Close)
			c, ctx := newClient(t, server.URL, "t", nil), t.Context()
			job := dispatcher.Job{App: "crm", Name: "crm"}
			calls := map[string]func() error{
				"App":      func() error { _, err := c.App(ctx, "crm"); return err },
				"Apps":     func() error { _, err := c.Apps(ctx, input.Page{}); return err },
				"PutApp":   func() error { _, err := c.PutApp(ctx, access.App{Name: "crm"}, client.Condition{}); return err },
				"PatchApp": func() error { _, err := c.PatchApp(ctx, "crm", true, client.Condition{}); return err },
				"Job":      func() error { _, err := c.Job(ctx, "crm", "crm"); return err },
				"Jobs":     func() error { _, err := c.Jobs(ctx, "crm", input.Page{}); return err },
				"PutJob":   func() error { _, err := c.PutJob(ctx, job, client.Condition{}); return err },
				"PauseJob": func() error {
					_, err := c.PauseJob(ctx, client.Pausable{App: "crm", Job: "crm"}, dispatcher.PauseRequest{}, client.Condition{})
					return err
				},
				"RenameJob": func() error {
					_, err := c.RenameJob(ctx, "crm", "crm", dispatcher.JobRename{Name: "x"}, client.Condition{Existing: true})
					return err
				},
				"RunJob":    func() error { _, err := c.RunJob(ctx, "crm", "crm"); return err },
				"Run":       func() error { _, err := c.Run(ctx, "crm"); return err },
				"CancelRun": func() error { _, err := c.CancelRun(ctx, "crm"); return err },
				"RetryRun":  func() error { _, err := c.RetryRun(ctx, "crm"); return err },
				"Runs":      func() error { _, err := c.Runs(ctx, dispatcher.RunQuery{App: "crm"}); return err },
				"Slots":     func() error { _, err := c.Slots(ctx, "crm", "sync"); return err },
				"Misfires":  func() error { _, err := c.Misfires(ctx, dispatcher.RunQuery{App: "crm"}); return err },
				"Nodes":     func() error { _, err := c.Nodes(ctx); return err },
				"Preview":   func() error { _, err := c.Preview(ctx, view.PreviewRequest{}); return err },
			}
			if tt.status != 204 { // the status of a DELETE
				calls["DeleteApp"] = func() error { return c.DeleteApp(ctx, "crm", client.Condition{}) }
				calls["DeleteJob"] = func() error { return c.DeleteJob(ctx, "crm", "crm", client.Condition{}) }
			}
			for call, do := range calls {
				if err := do(); !errors.Is(err, client.ErrForeign) || errors.Is(err, dispatcher.ErrNotFound) {
					t.Errorf("%s = %v, want ErrForeign", call, err)
				}
			}
		})
	}
}

func TestCancelledRequestEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	c := newClient(t, "http://carillon.test", "t", roundTripper(func(r *http.Request) (*http.Response, error) {
		cancel()
		return nil, r.Context().Err()
	}))
	if _, err := c.App(ctx, "crm"); !errors.Is(err, context.Canceled) {
		t.Errorf("App = %v, want it cancelled", err)
	}
}
