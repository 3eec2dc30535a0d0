package console

import (
	"net/http"
	"slices"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
)

// screen is a page that reads. Its route is GET base + path.
type screen struct {
	// name is that of its template, and the beginning of the keys of its texts. Its title is the text NAME.title.
	name string
	// path has wildcards as in http.ServeMux; {app} is the app of the page.
	path string
	// needs is the scope without which the page is neither shown in the menu nor served.
	needs access.Scope
	// allApps hides it from tokens that are bound to apps.
	allApps bool
	// menu is its place in the menu, or in that of the app if it has {app} and no other wildcard; 0: none.
	menu int
	show func(*visit) (content, error)
}

// action is a form that writes. Its route is POST base + path.
type action struct {
	// name is the beginning of the keys of its texts.
	name, path string
	needs      access.Scope
	allApps    bool
	// page is the screen that shows problems with the form; its path has no other wildcards than that of the action.
	// Empty: a page of its own.
	page string
	do   func(*visit) (done, error)
}

type content struct {
	// Title is that of the page; empty: the text NAME.title.
	Title string
	// App is the app whose menu the page has, if its path names none.
	App string
	// Data is the data of the template.
	Data any
	// Status is 200 if it is 0.
	Status int
	// Zone is that of the page's trigger; empty: it has none, or several with different zones.
	Zone string
	// Refresh permits the page to refresh itself.
	Refresh bool
	// Follow is the URL of the stream of its changes; empty: it has none. See follow.
	Follow string
	// To is another page, to which the browser goes instead; see visit.link.
	To string
}

// done is the result of an action.
type done struct {
	// to is the next page; see visit.link.
	to string
	// notice is the key of a text that the next page shows once, and values are names and values for it.
	notice string
	values []any
	// page is shown instead of a redirect, for content that can be shown only once; empty: the browser is redirected.
	page    string
	content content
}

// newMux serves screens, actions and the routes that need no session.
func (c *Console) newMux() *http.ServeMux {
	mux := http.NewServeMux()
	allowed := map[string][]string{}
	serve := func(method, at string, handle func(*visit)) {
		if at == "" || strings.HasSuffix(at, "/") {
			at += "{$}"
		}
		mux.HandleFunc(method+" "+base+at, func(_ http.ResponseWriter, r *http.Request) { handle(visitOf(r)) })
		allowed[at] = append(allowed[at], method)
		if method == http.MethodGet {
			allowed[at] = append(allowed[at], http.MethodHead)
		}
	}
	for _, s := range c.screens {
		serve(http.MethodGet, s.path, c.signedIn(func(v *visit) { v.serveScreen(s) }))
	}
	for _, a := range actions() {
		serve(http.MethodPost, a.path, c.signedIn(func(v *visit) { v.serveAction(a) }))
	}
	serve(http.MethodGet, runPath+"/changes", c.signedIn(follow(followRun)))
	serve(http.MethodGet, appPath+"/runs/changes", c.signedIn(follow(followRuns)))
	serve(http.MethodGet, "login", c.showLogin)
	serve(http.MethodPost, "login", c.login)
	serve(http.MethodGet, "login/oidc", c.beginOIDC)
	serve(http.MethodGet, "login/callback", c.finishOIDC)
	serve(http.MethodPost, "logout", c.logout)
	serve(http.MethodPost, "settings", c.settings)
	serve(http.MethodGet, "assets/{asset}", c.assets.serve)
	for at, methods := range allowed {
		slices.Sort(methods)
		mux.HandleFunc(base+at, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", strings.Join(methods, ", "))
			visitOf(r).fail(&pageError{status: http.StatusMethodNotAllowed, key: "problem.method", values: []any{"method", r.Method}})
		})
	}
	mux.HandleFunc("/", func(_ http.ResponseWriter, r *http.Request) { visitOf(r).fail(notFound("page", r.URL.Path)) })
	return mux
}

// inMenu returns the screens of the menu, or of that of an app, in their order.
func (c *Console) inMenu(ofApp bool) []screen {
	found := slices.DeleteFunc(slices.Clone(c.screens), func(s screen) bool {
		return s.menu == 0 || strings.Contains(s.path, "{app}") != ofApp
	})
	slices.SortStableFunc(found, func(a, b screen) int { return a.menu - b.menu })
	return found
}

const (
	readScope  = access.ScopeRead
	runScope   = access.ScopeRun
	writeScope = access.ScopeWrite
	adminScope = access.ScopeAdmin
)

// Paths of the objects of screens and actions.
const (
	runPath      = "runs/{run}"
	appPath      = "apps/{app}"
	jobPath      = appPath + "/jobs/{job}"
	triggerPath  = jobPath + "/triggers/{trigger}"
	memberPath   = appPath + "/groups/{group}/endpoints/{endpoint}"
	backfillPath = appPath + "/backfills/{backfill}"
	alertPath    = appPath + "/alerts/{alert}"
)

// screens lists all screens: those about events, those of apps and their objects other than jobs, and those that belong
// to no app.
func screens() []screen {
	return []screen{
		{name: "attention", path: "", needs: readScope, menu: 10, show: showAttention},
		{name: "jobs", path: "jobs", needs: readScope, menu: 20, show: showJobs},
		{name: "all_runs", path: "runs", needs: readScope, menu: 25, show: showRuns},
		{name: "search", path: "search", needs: readScope, show: showSearch},
		{name: "timeline", path: "timeline", needs: readScope, menu: 40, show: showTimeline},
		{name: "preview", path: "preview", needs: readScope, menu: 50, show: showPreview},
		{name: "runs", path: appPath + "/runs", needs: readScope, menu: 10, show: showRuns},
		{name: "job", path: jobPath, needs: readScope, show: showJob},
		{name: "explain", path: triggerPath + "/explain", needs: readScope, show: showExplain},
		{name: "job_statistics", path: jobPath + "/statistics", needs: readScope, show: showJobStatistics},
		{name: "compare", path: jobPath + "/compare", needs: readScope, show: showCompare},
		{name: "run", path: runPath, needs: readScope, show: showRun},
		{name: "confirm", path: "chosen-runs", needs: runScope, show: showChosenRuns},
		{name: "run_job", path: jobPath + "/run", needs: runScope, show: showRunJob},
		{name: "cancel_run", path: runPath + "/cancel", needs: runScope, show: showCancelRun},
		{name: "confirm", path: jobPath + "/slots/{run}/release", needs: runScope, show: showSlotRelease},

		{name: "apps", path: "apps", needs: readScope, menu: 30, show: showApps},
		{name: "app", path: appPath, needs: readScope, show: showApp},
		{name: "confirm", path: appPath + "/pause", needs: writeScope, show: showAppPause},
		{name: "confirm", path: appPath + "/disable", needs: writeScope, show: showAppSwitch},
		{name: "groups", path: appPath + "/groups", needs: readScope, menu: 20, show: showList((*client.Client).Groups, false)},
		{name: "group", path: appPath + "/groups/{group}", needs: readScope, show: showGroup},
		{name: "calendars", path: appPath + "/calendars", needs: readScope, menu: 30, show: showList((*client.Client).Calendars, false)},
		{name: "calendar", path: appPath + "/calendars/{calendar}", needs: readScope, show: showCalendar},
		{name: "misfires", path: appPath + "/misfires", needs: readScope, menu: 40, show: showMisfires},
		{name: "backfills", path: appPath + "/backfills", needs: readScope, menu: 50, show: showBackfills},
		{name: "backfill_new", path: appPath + "/new-backfill", needs: runScope, show: showNewBackfill},
		{name: "backfill", path: backfillPath, needs: readScope, show: showBackfill},
		{name: "confirm", path: backfillPath + "/cancel", needs: runScope, show: showBackfillCancel},
		{name: "alerts", path: appPath + "/alerts", needs: readScope, menu: 60, show: showAlerts},
		{name: "alert", path: alertPath, needs: readScope, show: showAlert},
		{name: "dead_letters", path: appPath + "/dead-letters", needs: readScope, menu: 70, show: showDeadLetters},
		{name: "bulk", path: appPath + "/bulk", needs: readScope, menu: 80, show: showList((*client.Client).BulkActions, true)},
		{name: "bulk_action", path: appPath + "/bulk/{bulk}", needs: readScope, show: showBulkAction},
		{name: "bulk_new", path: appPath + "/new-bulk", needs: readScope, show: showNewBulkAction},

		{name: "statistics", path: "statistics", needs: readScope, menu: 70, show: showStatistics},
		{name: "objectives", path: "objectives", needs: readScope, menu: 75, show: showObjectives},
		{name: "nodes", path: "nodes", needs: readScope, allApps: true, menu: 60, show: showNodes},
		{name: "confirm", path: "nodes/{node}/pause", needs: adminScope, allApps: true, show: showNodeState("node_pause")},
		{name: "confirm", path: "nodes/{node}/drain", needs: adminScope, allApps: true, show: showNodeState("node_drain")},
		{name: "audit", path: "audit", needs: readScope, menu: 80, show: showAudit},
		{name: "audit_entry", path: "audit/{entry}", needs: readScope, show: showAuditEntry},
		{name: "tokens", path: "tokens", needs: adminScope, allApps: true, menu: 90, show: showTokens},
		{name: "token_new", path: "tokens/new", needs: adminScope, allApps: true, show: showNewToken},
		{name: "confirm", path: "tokens/{token}/rotate", needs: adminScope, allApps: true, show: showTokenRotation},
		{name: "confirm", path: "tokens/{token}/revoke", needs: adminScope, allApps: true, show: showTokenRevocation},
		{name: "rollback", path: "rollback", needs: readScope, allApps: true, menu: 100, show: showRollback},
		{name: "confirm", path: "rollback/skip", needs: adminScope, allApps: true, show: showRollbackChoice(dispatcher.RollbackSkip)},
		{name: "confirm", path: "rollback/replay", needs: adminScope, allApps: true, show: showRollbackChoice(dispatcher.RollbackReplay)},
	}
}

// actions lists all actions, in the same order.
func actions() []action {
	return []action{
		{name: "run_job", path: jobPath + "/run", needs: runScope, page: "run_job", do: runJob},
		{name: "job", path: jobPath + "/pause", needs: writeScope, page: "job", do: pauseJob},
		{name: "job", path: jobPath + "/resume", needs: writeScope, page: "job", do: resumeJob},
		{name: "slot_release", path: jobPath + "/slots/{run}/release", needs: runScope, do: releaseSlot},
		{name: "job", path: triggerPath + "/pause", needs: writeScope, page: "job", do: pauseJob},
		{name: "job", path: triggerPath + "/resume", needs: writeScope, page: "job", do: resumeJob},
		{name: "run", path: runPath + "/retry", needs: runScope, page: "run", do: changeRun((*client.Client).RetryRun, "run.retried")},
		{name: "cancel_run", path: runPath + "/cancel", needs: runScope, page: "cancel_run",
			do: changeRun((*client.Client).CancelRun, "cancel_run.done")},
		{name: "run", path: runPath + "/complete", needs: runScope, page: "run",
			do: endRun((*client.Client).CompleteRun, "run.completed")},
		{name: "run", path: runPath + "/fail", needs: runScope, page: "run",
			do: endRun((*client.Client).FailRun, "run.ended_failed")},
		{name: "chosen", path: "chosen-runs", needs: runScope, do: changeChosenRuns},

		{name: "app_pause", path: appPath + "/pause", needs: writeScope, do: pauseApp},
		{name: "app_resume", path: appPath + "/pauses/{pause}/end", needs: writeScope, do: endAppPause},
		{name: "app_disable", path: appPath + "/disable", needs: writeScope, do: setApp(false, "app.notice.disabled")},
		{name: "app_enable", path: appPath + "/enable", needs: writeScope, do: setApp(true, "app.notice.enabled")},
		{name: "member_drain", path: memberPath + "/drain", needs: writeScope, do: drainMember(true, "group.notice.drained")},
		{name: "member_resume", path: memberPath + "/resume", needs: writeScope, do: drainMember(false, "group.notice.resumed")},
		{name: "backfill_start", path: appPath + "/backfills", needs: runScope, do: startBackfill},
		{name: "backfill_pause", path: backfillPath + "/pause", needs: runScope, do: changeBackfill(repeat.PauseBackfill)},
		{name: "backfill_resume", path: backfillPath + "/resume", needs: runScope, do: changeBackfill(repeat.ResumeBackfill)},
		{name: "backfill_cancel", path: backfillPath + "/cancel", needs: runScope, do: changeBackfill(repeat.CancelBackfill)},
		{name: "alert_mute", path: alertPath + "/mute", needs: writeScope, page: "alert", do: muteAlert},
		{name: "alert_unmute", path: alertPath + "/unmute", needs: writeScope, page: "alert", do: unmuteAlert},
		{name: "alert_acknowledge", path: alertPath + "/acknowledge", needs: runScope, page: "alert", do: acknowledgeAlert},
		{name: "alert_withdraw", path: alertPath + "/unacknowledge", needs: runScope, page: "alert", do: withdrawAcknowledgement},
		{name: "alert_test", path: alertPath + "/test", needs: runScope, page: "alert", do: testAlert},
		{name: "bulk_start", path: appPath + "/bulk", needs: readScope, page: "bulk_new", do: startBulkAction},
		{name: "bulk_cancel", path: appPath + "/bulk/{bulk}/cancel", needs: readScope, do: cancelBulkAction},
		{name: "dead_letter_retry", path: appPath + "/dead-letters/{run}/retry", needs: runScope,
			do: changeRun((*client.Client).RetryRun, "dead_letters.notice.retried")},
		{name: "node_pause", path: "nodes/{node}/pause", needs: adminScope, allApps: true,
			do: setNode(dispatcher.NodePaused, "nodes.notice.paused")},
		{name: "node_drain", path: "nodes/{node}/drain", needs: adminScope, allApps: true,
			do: setNode(dispatcher.NodeDraining, "nodes.notice.drained")},
		{name: "node_resume", path: "nodes/{node}/resume", needs: adminScope, allApps: true,
			do: setNode(dispatcher.NodeActive, "nodes.notice.resumed")},
		{name: "token_create", path: "tokens/new", needs: adminScope, allApps: true, page: "token_new", do: createToken},
		{name: "token_rotate", path: "tokens/{token}/rotate", needs: adminScope, allApps: true, do: rotateToken},
		{name: "token_revoke", path: "tokens/{token}/revoke", needs: adminScope, allApps: true, do: revokeToken},
		{name: "rollback_skip", path: "rollback/skip", needs: adminScope, allApps: true, do: resolveRollback(dispatcher.RollbackSkip)},
		{name: "rollback_replay", path: "rollback/replay", needs: adminScope, allApps: true, do: resolveRollback(dispatcher.RollbackReplay)},
	}
}
