package api_test

import (
	"database/sql"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/api/gate"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/invoke"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// rights are the callers that may use a route, and the results. It repeats the declarations of routes, so that a change
// of either needs one of the other.
type rights struct {
	scope access.Scope // empty: anyone may use the route
	or    access.Scope // allows it, too; empty: no other does
	fleet bool         // only for tokens that are bound to no app
	// anyScope permits the route to every token.
	anyScope bool
	ok       int // the status for a token that may
	// foreign is the status for a token that is bound to another app, on paths that name no app; on the others the
	// status is 403.
	foreign int
	// suspended is the status for the app's own token while the app is suspended; 0: the same as ok.
	suspended int
	body      string
	// unconditional routes write and take no condition.
	unconditional bool
	// prepare makes the objects of the route; a text that it returns is the body.
	prepare func(*world) string
}

// accesses has a row for each route. A row of a route that is not served is ignored.
var accesses = map[string]rights{
	"GET /livez":        {ok: 200},
	"GET /readyz":       {ok: 200},
	"GET /version":      {ok: 200},
	"GET /openapi.json": {ok: 200},
	"GET /metrics":      {ok: 200, scope: access.ScopeMetrics, fleet: true},
	"GET /metrics/jobs": {ok: 200, scope: access.ScopeMetrics, foreign: 200},

	"GET /v1/apps":               {ok: 200, scope: access.ScopeRead, foreign: 200},
	"GET /v1/apps/{app}":         {ok: 200, scope: access.ScopeRead},
	"PUT /v1/apps/{app}":         {ok: 200, scope: access.ScopeWrite, body: `{"enabled":true,"description":"changed"}`},
	"PATCH /v1/apps/{app}":       {ok: 200, scope: access.ScopeWrite, body: `{"enabled":true}`},
	"DELETE /v1/apps/{app}":      {ok: 204, scope: access.ScopeWrite, prepare: (*world).emptyApp},
	"GET /v1/apps/{app}/export":  {ok: 200, scope: access.ScopeExport, prepare: (*world).disableApp},
	"POST /v1/apps/{app}/import": {ok: 200, scope: access.ScopeImport, prepare: (*world).takeApp, suspended: 412},

	"GET /v1/apps/{app}/pauses":            {ok: 200, scope: access.ScopeRead},
	"POST /v1/apps/{app}/pauses":           {ok: 201, scope: access.ScopeWrite, unconditional: true},
	"DELETE /v1/apps/{app}/pauses/{pause}": {ok: 204, scope: access.ScopeWrite, unconditional: true, prepare: (*world).pauseApp},

	"GET /v1/apps/{app}/jobs":             {ok: 200, scope: access.ScopeRead},
	"GET /v1/apps/{app}/jobs/{job}":       {ok: 200, scope: access.ScopeRead},
	"PUT /v1/apps/{app}/jobs/{job}":       {ok: 200, scope: access.ScopeWrite, body: validJob},
	"DELETE /v1/apps/{app}/jobs/{job}":    {ok: 204, scope: access.ScopeWrite},
	"GET /v1/apps/{app}/jobs/{job}/slots": {ok: 200, scope: access.ScopeRead},
	"GET /v1/apps/{app}/jobs/{job}/state": {ok: 200, scope: access.ScopeRead},
	"PUT /v1/apps/{app}/jobs/{job}/state": {
		ok: 200, scope: access.ScopeWrite, body: `{"state":{"n":1}}`, prepare: (*world).carryState,
	},
	"DELETE /v1/apps/{app}/jobs/{job}/state":                   {ok: 204, scope: access.ScopeWrite},
	"GET /v1/apps/{app}/jobs/{job}/statistics":                 {ok: 200, scope: access.ScopeRead},
	"GET /v1/apps/{app}/jobs/{job}/objective":                  {ok: 200, scope: access.ScopeRead, prepare: (*world).carryState},
	"GET /v1/objectives":                                       {ok: 200, scope: access.ScopeRead, foreign: 200},
	"POST /v1/apps/{app}/jobs/{job}/run":                       {ok: 202, scope: access.ScopeRun, suspended: 409},
	"POST /v1/apps/{app}/jobs/{job}/backfill":                  {ok: 200, scope: access.ScopeRun, suspended: 409, body: dryBackfill},
	"POST /v1/apps/{app}/jobs/{job}/pause":                     {ok: 200, scope: access.ScopeWrite},
	"POST /v1/apps/{app}/jobs/{job}/resume":                    {ok: 200, scope: access.ScopeWrite},
	"POST /v1/apps/{app}/jobs/{job}/rename":                    {ok: 200, scope: access.ScopeWrite, body: `{"name":"renamed"}`},
	"POST /v1/apps/{app}/jobs/{job}/triggers/{trigger}/pause":  {ok: 200, scope: access.ScopeWrite},
	"POST /v1/apps/{app}/jobs/{job}/triggers/{trigger}/resume": {ok: 200, scope: access.ScopeWrite},
	"GET /v1/apps/{app}/jobs/{job}/triggers/{trigger}/explain": {ok: 200, scope: access.ScopeRead},
	"GET /v1/apps/{app}/jobs/{job}/triggers/{trigger}/strip":   {ok: 200, scope: access.ScopeRead},

	"GET /v1/apps/{app}/bulk": {ok: 200, scope: access.ScopeRead},
	"POST /v1/apps/{app}/bulk": {ok: 200, scope: access.ScopeRun, or: access.ScopeWrite,
		suspended: 409, body: dryBulk},
	"GET /v1/apps/{app}/bulk/{bulk}":                  {ok: 200, scope: access.ScopeRead},
	"POST /v1/apps/{app}/bulk/{bulk}/cancel":          {ok: 200, scope: access.ScopeRun, or: access.ScopeWrite},
	"GET /v1/apps/{app}/backfills":                    {ok: 200, scope: access.ScopeRead},
	"GET /v1/apps/{app}/backfills/{backfill}":         {ok: 200, scope: access.ScopeRead},
	"POST /v1/apps/{app}/backfills/{backfill}/pause":  {ok: 200, scope: access.ScopeRun},
	"POST /v1/apps/{app}/backfills/{backfill}/resume": {ok: 200, scope: access.ScopeRun},
	"POST /v1/apps/{app}/backfills/{backfill}/cancel": {ok: 200, scope: access.ScopeRun},

	"GET /v1/apps/{app}/calendars":               {ok: 200, scope: access.ScopeRead},
	"GET /v1/apps/{app}/calendars/{calendar}":    {ok: 200, scope: access.ScopeRead},
	"PUT /v1/apps/{app}/calendars/{calendar}":    {ok: 200, scope: access.ScopeWrite, body: `{"rules":[{"weekdays":["SAT"]}]}`},
	"DELETE /v1/apps/{app}/calendars/{calendar}": {ok: 204, scope: access.ScopeWrite},

	"GET /v1/apps/{app}/groups":                   {ok: 200, scope: access.ScopeRead},
	"GET /v1/apps/{app}/groups/{group}":           {ok: 200, scope: access.ScopeRead},
	"PUT /v1/apps/{app}/groups/{group}":           {ok: 200, scope: access.ScopeWrite, body: `{}`},
	"DELETE /v1/apps/{app}/groups/{group}":        {ok: 204, scope: access.ScopeWrite},
	"GET /v1/apps/{app}/groups/{group}/status":    {ok: 200, scope: access.ScopeRead},
	"GET /v1/apps/{app}/groups/{group}/endpoints": {ok: 200, scope: access.ScopeRead},
	"PUT /v1/apps/{app}/groups/{group}/endpoints/{endpoint}": {ok: 200, scope: access.ScopeRegister, or: access.ScopeWrite,
		unconditional: true, body: `{"url":"http://10.0.0.2:8080"}`},
	"DELETE /v1/apps/{app}/groups/{group}/endpoints/{endpoint}": {ok: 204, scope: access.ScopeRegister, or: access.ScopeWrite,
		unconditional: true},
	"POST /v1/apps/{app}/groups/{group}/endpoints/{endpoint}/drain":  {ok: 200, scope: access.ScopeWrite},
	"POST /v1/apps/{app}/groups/{group}/endpoints/{endpoint}/resume": {ok: 200, scope: access.ScopeWrite},

	"GET /v1/apps/{app}/alerts":                        {ok: 200, scope: access.ScopeRead},
	"GET /v1/apps/{app}/alerts/{alert}":                {ok: 200, scope: access.ScopeRead},
	"PUT /v1/apps/{app}/alerts/{alert}":                {ok: 200, scope: access.ScopeWrite, body: validAlert},
	"DELETE /v1/apps/{app}/alerts/{alert}":             {ok: 204, scope: access.ScopeWrite},
	"POST /v1/apps/{app}/alerts/{alert}/mute":          {ok: 200, scope: access.ScopeWrite, body: `{"reason":"tired"}`},
	"POST /v1/apps/{app}/alerts/{alert}/unmute":        {ok: 200, scope: access.ScopeWrite},
	"POST /v1/apps/{app}/alerts/{alert}/acknowledge":   {ok: 409, scope: access.ScopeRun, body: `{"job":"sync"}`}, // nothing holds
	"POST /v1/apps/{app}/alerts/{alert}/unacknowledge": {ok: 409, scope: access.ScopeRun, body: `{"job":"sync"}`},
	"POST /v1/apps/{app}/alerts/{alert}/test":          {ok: 202, scope: access.ScopeRun, suspended: 409},
	"GET /v1/apps/{app}/alert-states":                  {ok: 200, scope: access.ScopeRead},
	"GET /v1/apps/{app}/alert-events":                  {ok: 200, scope: access.ScopeRead},

	// Executors have the token of their group, and any other token is refused with code 500.
	"POST /xxl-job/{app}/{group}/api/registry": {
		ok: 200, body: `{"registryGroup":"EXECUTOR","registryKey":"workers","registryValue":"http://10.0.0.2:8080"}`,
	},
	"POST /xxl-job/{app}/{group}/api/registryRemove": {
		ok: 200, body: `{"registryGroup":"EXECUTOR","registryKey":"workers","registryValue":"http://10.0.0.1:8080"}`,
	},
	"POST /xxl-job/{app}/{group}/api/callback": {ok: 200, body: `[{"logId":1,"handleCode":200}]`},

	"GET /v1/apps/{app}/runs":     {ok: 200, scope: access.ScopeRead},
	"GET /v1/apps/{app}/misfires": {ok: 200, scope: access.ScopeRead},
	"GET /v1/apps/{app}/timeline": {ok: 200, scope: access.ScopeRead},
	"GET /v1/apps/{app}/verify":   {ok: 200, scope: access.ScopeRead},

	"GET /v1/apps/{app}/dead-letters":         {ok: 200, scope: access.ScopeRead},
	"POST /v1/apps/{app}/dead-letters/replay": {ok: 200, scope: access.ScopeRun, suspended: 409, body: `{}`},

	// The job bounds nothing, so no run has a slot.
	"POST /v1/apps/{app}/jobs/{job}/slots/release": {ok: 409, scope: access.ScopeRun, body: `{"reason":"stuck"}`},

	"GET /v1/runs/{run}":         {ok: 200, scope: access.ScopeRead, foreign: 404},
	"GET /v1/runs/{run}/request": {ok: 200, scope: access.ScopeRead, foreign: 404},
	"GET /v1/runs/{run}/log":     {ok: 409, scope: access.ScopeRead, foreign: 404}, // no executor has it
	"POST /v1/runs/{run}/cancel": {ok: 200, scope: access.ScopeRun, foreign: 404},
	"POST /v1/runs/{run}/retry":  {ok: 200, scope: access.ScopeRun, foreign: 404, suspended: 409, prepare: (*world).cancelRun},

	"POST /v1/runs/{run}/complete":  {ok: 200, scope: access.ScopeRun, foreign: 404, prepare: (*world).acceptRun},
	"POST /v1/runs/{run}/fail":      {ok: 200, scope: access.ScopeRun, foreign: 404, prepare: (*world).acceptRun},
	"POST /v1/runs/{run}/heartbeat": {ok: 200, scope: access.ScopeRun, foreign: 404, prepare: (*world).acceptRun},

	"GET /v1/nodes":                {ok: 200, scope: access.ScopeRead, fleet: true},
	"POST /v1/nodes/{node}/pause":  {ok: 200, scope: access.ScopeAdmin, fleet: true},
	"POST /v1/nodes/{node}/resume": {ok: 200, scope: access.ScopeAdmin, fleet: true},
	"POST /v1/nodes/{node}/drain":  {ok: 200, scope: access.ScopeAdmin, fleet: true},

	"GET /v1/rollback":         {ok: 200, scope: access.ScopeRead, fleet: true, prepare: (*world).rollBack},
	"POST /v1/rollback/skip":   {ok: 200, scope: access.ScopeAdmin, fleet: true, prepare: (*world).rollBack},
	"POST /v1/rollback/replay": {ok: 200, scope: access.ScopeAdmin, fleet: true, prepare: (*world).rollBack},

	"GET /v1/zones":        {ok: 200, scope: access.ScopeRead, fleet: true},
	"POST /v1/zones/use":   {ok: 200, scope: access.ScopeAdmin, fleet: true, body: zonesBody()},
	"POST /v1/zones/reset": {ok: 200, scope: access.ScopeAdmin, fleet: true},

	"POST /v1/schedules/preview": {
		ok: 200, scope: access.ScopeRead, foreign: 403,
		body: `{"expression":"0 0 2 * * ?","timezone":"UTC","app":"crm","calendar":"holidays"}`,
	},

	"GET /v1/jobs":                   {ok: 200, scope: access.ScopeRead, foreign: 200},
	"GET /v1/runs":                   {ok: 200, scope: access.ScopeRead, foreign: 200},
	"GET /v1/attention":              {ok: 200, scope: access.ScopeRead, foreign: 200},
	"GET /v1/upcoming":               {ok: 200, scope: access.ScopeRead, foreign: 200},
	"GET /v1/statistics":             {ok: 200, scope: access.ScopeRead, foreign: 200},
	"GET /v1/audit":                  {ok: 200, scope: access.ScopeRead, foreign: 200},
	"GET /v1/token":                  {ok: 200, scope: access.ScopeRead, anyScope: true, foreign: 200},
	"GET /v1/tokens":                 {ok: 200, scope: access.ScopeAdmin, fleet: true},
	"GET /v1/tokens/{token}":         {ok: 200, scope: access.ScopeAdmin, fleet: true},
	"PUT /v1/tokens/{token}":         {ok: 200, scope: access.ScopeAdmin, fleet: true, body: `{"scopes":["admin"]}`},
	"DELETE /v1/tokens/{token}":      {ok: 204, scope: access.ScopeAdmin, fleet: true},
	"POST /v1/tokens/{token}/rotate": {ok: 200, scope: access.ScopeAdmin, fleet: true},
}

// Texts of the tried app, which no other app's token may see.
const (
	foreignText = "a description that only tokens of crm see"
	foreignNode = "0000000000000007"
)

// TestEachRouteRefusesCredentials tries each route with every kind of credentials that must not pass, and then with
// those that must.
func TestEachRouteRefusesCredentials(t *testing.T) {
	t.Parallel()
	for _, rt := range api.Routes() {
		name := rt.Method + " " + rt.Path
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row, found := accesses[name]
			if !found {
				t.Fatalf("the route has no row in accesses; add one, and think about who may use it")
			}
			if row.scope != rt.Scope || row.or != rt.OrScope || row.fleet != rt.AllApps || row.anyScope != rt.AnyScope {
				t.Fatalf("the route needs scope %q or %q, all apps %v; accesses says %q or %q, %v",
					rt.Scope, rt.OrScope, rt.AllApps, row.scope, row.or, row.fleet)
			}
			newRouteTrial(t, rt, row).run()
		})
	}
}

// routeTrial is one route of a world with apps crm and shop.
type routeTrial struct {
	*world
	rt        gate.Route
	row       rights
	run1      run.Run
	path      string
	body      string
	forbidden []string // texts of crm that are not in the request
}

func newRouteTrial(t testing.TB, rt gate.Route, row rights) *routeTrial {
	t.Helper()
	invoker := invoke.New(invoke.Options{})
	t.Cleanup(invoker.Close)
	c := &routeTrial{world: newWorld(t, api.Options{Fleet: invoker, Requests: invoker}), rt: rt, row: row, body: row.body}
	c.must(http.StatusCreated, "PUT", oneApp, `{"description":"`+foreignText+`"}`)
	c.must(http.StatusCreated, "PUT", "/v1/apps/shop", `{}`)
	c.must(http.StatusCreated, "PUT", oneJob, validJob)
	c.must(http.StatusCreated, "PUT", oneApp+"/calendars/holidays", `{"rules":[{"weekdays":["SUN"]}]}`)
	c.must(http.StatusCreated, "PUT", oneGroup, validGroup)
	c.must(http.StatusCreated, "PUT", oneAlert, validAlert)
	c.must(http.StatusCreated, "PUT", oneEndpoint, `{"url":"http://10.0.0.1:8080"}`)
	c.run1 = into[run.Run](c.must(http.StatusAccepted, "POST", oneJob+"/run", ""))
	c.register(t.Context(), 7)
	c.newToken("victim", []access.Scope{access.ScopeAdmin})
	if row.prepare != nil {
		if body := row.prepare(c.world); body != "" {
			c.body = body
		}
	}
	backfill := ""
	if strings.Contains(rt.Path, "{backfill}") {
		asked := strings.Replace(dryBackfill, `"dry_run":true,`, "", 1)
		backfill = into[repeat.Backfill](c.must(http.StatusAccepted, "POST", oneJob+"/backfill", asked)).ID
	}
	bulk := ""
	if strings.Contains(rt.Path, "{bulk}") {
		bulk = into[repeat.BulkAction](c.must(http.StatusAccepted, "POST", oneApp+"/bulk", `{"action":"run_jobs"}`)).ID
	}
	c.path = strings.NewReplacer("{backfill}", backfill, "{bulk}", bulk, "{app}", "crm", "{job}", "sync", "{trigger}", "nightly",
		"{calendar}", "holidays",
		"{group}", "workers", "{alert}", "on-call", "{endpoint}", "w1", "{run}", c.run1.ID, "{node}", foreignNode, "{token}", "victim",
		"{pause}", c.pauseID()).Replace(rt.Path)
	if strings.HasSuffix(rt.Path, "/explain") {
		c.path += "?at=2026-05-01T10:00:00Z"
	}
	for _, text := range []string{foreignText, "crm", "sync", "nightly", "holidays", "workers", "on-call", "victim", c.run1.ID} {
		if !strings.Contains(c.path+c.body, text) {
			c.forbidden = append(c.forbidden, text)
		}
	}
	return c
}

// run tries all credentials. Those that may use the route come last, because they change its objects.
func (c *routeTrial) run() {
	c.t.Helper()
	scope := c.row.scope
	unknown, _ := access.NewToken()
	revoked := c.newToken("revoked", access.Scopes())
	if err := c.store.DeleteToken(c.t.Context(), "revoked", input.Change{Actor: "test"}); err != nil {
		c.t.Fatal(err)
	}
	c.refuses("no", "", 401)
	c.refuses("wrong", "Bearer "+unknown, 401)
	c.refuses("cut", "Bearer "+c.token[:len(c.token)-1], 401)
	c.refuses("basic", "Basic YWRtaW46YWRtaW4=", 401)
	c.expired()
	c.refuses("revoked", "Bearer "+revoked, 401)
	for _, other := range access.Scopes() {
		if !c.row.anyScope && other != scope && other != c.row.or {
			c.refuses("only "+string(other), "Bearer "+c.newToken("only-"+string(other), []access.Scope{other}), 403)
		}
	}
	others := slices.DeleteFunc(access.Scopes(), func(s access.Scope) bool { return s == scope || s == c.row.or })
	if !c.row.anyScope {
		c.refuses("all scopes but one", "Bearer "+c.newToken("others", others), 403)
	}
	foreign := 403
	if !c.row.fleet && !strings.Contains(c.rt.Path, "{app}") {
		foreign = c.row.foreign
	}
	c.isForeign("Bearer "+c.newToken("foreign", access.Scopes(), "shop"), foreign)
	if c.row.fleet {
		c.refuses("bound to the app", "Bearer "+c.newToken("bound", access.Scopes(), "crm"), 403)
	}
	c.inSuspendedApp()
	if scope == "" {
		return
	}
	if got := c.ask("Bearer "+c.newToken("exact", []access.Scope{scope}), c.path); got.Code != c.row.ok {
		c.t.Errorf("with scope %s alone: status %d, want %d: %s", scope, got.Code, c.row.ok, got.Body)
	}
}

// expired tries a token that expired a minute ago.
func (c *routeTrial) expired() {
	c.t.Helper()
	past := time.Now().Add(-time.Minute)
	secret, hash := access.NewToken()
	if err := c.store.CreateToken(c.t.Context(), access.APIToken{
		ID: "expired", Name: "expired", Hash: hash, TokenSpec: access.TokenSpec{Scopes: access.Scopes(), ExpiresAt: &past},
		TokenStatus: access.TokenStatus{CreatedAt: past.Add(-time.Hour)},
	}); err != nil {
		c.t.Fatal(err)
	}
	c.refuses("expired", "Bearer "+secret, 401)
}

// ask makes the request.
func (c *routeTrial) ask(authorization, path string) reply {
	c.t.Helper()
	headers := []string{"Authorization: " + authorization, "X-Request-Id: same"}
	if slices.Contains([]string{"PUT", "PATCH", "DELETE"}, c.rt.Method) && !c.row.unconditional {
		headers = append(headers, "If-Match: *")
	}
	return c.do(c.rt.Method, path, c.body, headers...)
}

// refuses checks a status, that the response shows nothing of the app, and that the database is unchanged. A route that
// needs no token takes any.
func (c *routeTrial) refuses(kind, authorization string, want int) {
	c.t.Helper()
	if c.row.scope == "" {
		want = c.row.ok
	}
	before := c.content()
	got := c.ask(authorization, c.path)
	if got.Code != want {
		c.t.Errorf("%s: status %d, want %d: %.300s", kind, got.Code, want, got.Body)
	}
	for _, text := range c.forbidden {
		if got.Code >= 400 && strings.Contains(got.Body.String(), text) {
			c.t.Errorf("%s: the response reveals %q: %s", kind, text, got.Body)
		}
	}
	if diff := cmp.Diff(before, c.content()); diff != "" {
		c.t.Errorf("%s: the database changed (-before +after):\n%s", kind, diff)
	}
}

// isForeign tries a token of another app. The response must not show whether the app or run exists.
func (c *routeTrial) isForeign(authorization string, want int) {
	c.t.Helper()
	c.refuses("foreign", authorization, want)
	got := c.ask(authorization, c.path).Body.String()
	for _, text := range c.forbidden {
		if c.row.scope != "" && strings.Contains(got, text) {
			c.t.Errorf("foreign: the response reveals %q: %s", text, got)
		}
	}
	for known, unknown := range map[string]string{
		"crm": "zzz", c.run1.ID: run.Key{TriggerID: 1, ScheduledAt: c.run1.ScheduledAt, Kind: run.KindManual}.String(),
	} {
		if !strings.Contains(c.path, known) {
			continue
		}
		none := c.ask(authorization, strings.Replace(c.path, known, unknown, 1)).Body.String()
		if diff := cmp.Diff(strings.ReplaceAll(none, unknown, "NAME"), strings.ReplaceAll(got, known, "NAME")); diff != "" {
			c.t.Errorf("foreign: the response tells whether %s exists (-none +foreign):\n%s", known, diff)
		}
	}
}

// inSuspendedApp tries the app's own token on a copy of the world with the app suspended.
func (c *routeTrial) inSuspendedApp() {
	c.t.Helper()
	if c.row.scope == access.ScopeAdmin || c.row.scope == "" {
		return // no token of an app has the scope admin
	}
	s := newRouteTrial(c.t, c.rt, c.row)
	app, err := s.store.App(s.t.Context(), "crm")
	app.Name = "crm" // POST import creates it
	app.Bounds = &target.Bounds{Suspended: true, SuspendedReason: "it floods others"}
	if err == nil || strings.HasSuffix(c.rt.Path, "/import") {
		_, _, err = s.store.PutApp(s.t.Context(), app, input.Change{Actor: "test", Operator: true})
	}
	if err != nil {
		s.t.Fatal(err)
	}
	want := c.row.ok
	switch {
	case c.row.fleet:
		want = 403
	case c.row.suspended != 0:
		want = c.row.suspended
	}
	got := s.ask("Bearer "+s.newToken("own", access.Scopes(), "crm"), s.path)
	if got.Code != want {
		s.t.Errorf("suspended: status %d, want %d: %s", got.Code, want, got.Body)
	}
	for _, row := range s.rows("apps") {
		if strings.Contains(row, `"name":"crm"`) && (!strings.Contains(row, `"enabled":0`) || !strings.Contains(row,
			`\"suspended\":true`)) {
			s.t.Errorf("the app's own token lifts its suspension: %s", row)
		}
	}
}

// content is all rows of the database without the audit log, and without the times at which tokens were used.
func (w *world) content() []string {
	w.t.Helper()
	var all []string
	for _, table := range w.query(`SELECT name AS n FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'
		AND name <> 'audit_log' ORDER BY name`) {
		all = append(all, w.rows(table["n"].(string))...)
	}
	return all
}

// rows returns the rows of a table as JSON.
func (w *world) rows(table string) []string {
	w.t.Helper()
	var all []string
	for _, row := range w.query("SELECT * FROM " + table) {
		delete(row, "last_used_at")
		if table == "api_tokens" && row["name"] != "victim" {
			continue // the test writes these itself
		}
		text, err := json.Marshal(row)
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, table+" "+string(text))
	}
	slices.Sort(all)
	return all
}

func (w *world) query(statement string) []map[string]any {
	w.t.Helper()
	if w.raw == nil {
		db, err := sql.Open("sqlite", "file:"+w.file+"?mode=ro")
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { _ = db.Close() })
		w.raw = db
	}
	found, err := w.raw.QueryContext(w.t.Context(), statement)
	if err != nil {
		w.t.Fatal(err)
	}
	defer found.Close()
	names, err := found.Columns()
	if err != nil {
		w.t.Fatal(err)
	}
	var all []map[string]any
	for found.Next() {
		values, into := make([]any, len(names)), make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		if err := found.Scan(into...); err != nil {
			w.t.Fatal(err)
		}
		row := map[string]any{}
		for i, name := range names {
			row[name] = values[i]
		}
		all = append(all, row)
	}
	if err := found.Err(); err != nil {
		w.t.Fatal(err)
	}
	return all
}
