package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
)

// route is one method of one path.
type route struct {
	method, path string
	// scope is required of the token; empty: the route needs no token.
	scope access.Scope
	// orScope permits the route, too; empty: no other does.
	orScope access.Scope
	// anyScope permits the route to every token; scope then says only that one is needed.
	anyScope bool
	// allApps refuses tokens that are bound to apps: the route concerns all of them.
	allApps bool
	// outage lets tokens pass that were accepted before, while the database is unreachable.
	outage bool
	// executors says that the route is for executors of XXL-JOB, which prove themselves by the token of their group.
	executors bool
	// query lists the known query parameters.
	query []string
	// repeated is the one of them that may be given several times; empty: none.
	repeated string
	// body tells that a POST takes a body, and large that it may be as large as an app.
	body, large bool
	// callback lets the token of an attempt pass that its target accepted, for the run in the path.
	callback bool
	serve    func(*API, *request) (response, error)
}

var (
	pageQuery           = []string{"limit", "cursor"}
	jobsQuery           = []string{"label", "limit", "cursor"}
	summariesQuery      = []string{"app", "state", "name", "host", "result", "label", "limit", "cursor"}
	runsQuery           = []string{"job", "trigger", "state", "parent", "from", "to", "limit", "cursor"}
	explainQuery        = []string{"at"}
	stripQuery          = []string{"past", "next"}
	timelineQuery       = []string{"from", "to", "job", "limit", "cursor"}
	statisticsQuery     = []string{"app", "from", "to"}
	verifyQuery         = []string{"from", "to", "limit", "cursor"}
	auditQuery          = []string{"app", "actor", "action", "subject", "refused", "from", "to", "order", "limit", "cursor"}
	deleteCalendarQuery = []string{"when_unused"}
	backfillsQuery      = []string{"job", "limit", "cursor"}
	logQuery            = []string{"attempt", "from_line"}
	misfiresQuery       = []string{"job", "trigger", "from", "to", "limit", "cursor"}
	alertStatesQuery    = []string{"alert", "job", "firing", "limit", "cursor"}
	alertEventsQuery    = []string{"alert", "job", "from", "to", "limit", "cursor"}
	deadLettersQuery    = []string{"job", "class", "state", "from", "to", "limit", "cursor"}
)

const (
	read    = access.ScopeRead
	operate = access.ScopeRun
	write   = access.ScopeWrite
	enlist  = access.ScopeRegister
	scrape  = access.ScopeMetrics
	moveOut = access.ScopeExport
	moveIn  = access.ScopeImport
	admin   = access.ScopeAdmin

	appPath      = "/v1/apps/{app}"
	jobPath      = appPath + "/jobs/{job}"
	statePath    = jobPath + "/state"
	triggerPath  = jobPath + "/triggers/{trigger}"
	calPath      = appPath + "/calendars/{calendar}"
	groupPath    = appPath + "/groups/{group}"
	alertPath    = appPath + "/alerts/{alert}"
	endpointPath = groupPath + "/endpoints/{endpoint}"
	backfillPath = appPath + "/backfills/{backfill}"
	bulkPath     = appPath + "/bulk"
	runPath      = "/v1/runs/{run}"
	nodePath     = "/v1/nodes/{node}"
	tokenPath    = "/v1/tokens/{token}"
)

// routes lists every route; openapi.json describes the same.
var routes = []route{
	{method: "GET", path: "/livez", serve: (*API).live},
	{method: "GET", path: "/readyz", serve: (*API).ready},
	{method: "GET", path: "/version", serve: (*API).version},
	{method: "GET", path: "/openapi.json", serve: (*API).openAPI},
	{method: "GET", path: "/metrics", scope: scrape, allApps: true, outage: true, serve: (*API).metrics},
	{method: "GET", path: "/metrics/jobs", scope: scrape, query: []string{"app"}, serve: (*API).jobMetrics},

	{method: "GET", path: "/v1/apps", scope: read, query: pageQuery, serve: (*API).listApps},
	{method: "GET", path: appPath, scope: read, serve: (*API).getApp},
	{method: "PUT", path: appPath, scope: write, serve: (*API).putApp},
	{method: "PATCH", path: appPath, scope: write, serve: (*API).patchApp},
	{method: "DELETE", path: appPath, scope: write, serve: (*API).deleteApp},
	{method: "GET", path: appPath + "/export", scope: moveOut, serve: (*API).exportApp},
	{method: "POST", path: appPath + "/import", scope: moveIn, body: true, large: true, serve: (*API).importApp},

	{method: "GET", path: appPath + "/pauses", scope: read, serve: (*API).listPauses},
	{method: "POST", path: appPath + "/pauses", scope: write, body: true, serve: (*API).pauseApp},
	{method: "DELETE", path: appPath + "/pauses/{pause}", scope: write, serve: (*API).endPause},

	{method: "GET", path: appPath + "/jobs", scope: read, query: jobsQuery, repeated: "label", serve: (*API).listJobs},
	{method: "GET", path: jobPath, scope: read, serve: (*API).getJob},
	{method: "PUT", path: jobPath, scope: write, serve: (*API).putJob},
	{method: "DELETE", path: jobPath, scope: write, serve: (*API).deleteJob},
	{method: "GET", path: jobPath + "/slots", scope: read, serve: (*API).listSlots},
	{method: "GET", path: statePath, scope: read, serve: (*API).getState},
	{method: "PUT", path: statePath, scope: write, serve: (*API).putState},
	{method: "DELETE", path: statePath, scope: write, serve: (*API).deleteState},
	{method: "GET", path: jobPath + "/objective", scope: read, serve: (*API).getObjective},
	{method: "GET", path: appPath + "/objectives", scope: read, query: pageQuery, serve: (*API).listObjectives},
	{method: "POST", path: jobPath + "/run", scope: operate, body: true, serve: (*API).runJob},
	{method: "POST", path: jobPath + "/backfill", scope: operate, body: true, serve: (*API).createBackfill},
	{method: "POST", path: jobPath + "/pause", scope: write, body: true, serve: pause(true)},
	{method: "POST", path: jobPath + "/resume", scope: write, serve: pause(false)},
	{method: "POST", path: jobPath + "/rename", scope: write, body: true, serve: (*API).renameJob},
	{method: "POST", path: triggerPath + "/pause", scope: write, body: true, serve: pause(true)},
	{method: "POST", path: triggerPath + "/resume", scope: write, serve: pause(false)},
	{method: "GET", path: triggerPath + "/explain", scope: read, query: explainQuery, serve: (*API).explain},
	{method: "GET", path: triggerPath + "/strip", scope: read, query: stripQuery, serve: (*API).strip},

	{method: "GET", path: appPath + "/backfills", scope: read, query: backfillsQuery, serve: (*API).listBackfills},
	{method: "GET", path: backfillPath, scope: read, serve: (*API).getBackfill},
	{method: "POST", path: backfillPath + "/pause", scope: operate, serve: changeBackfill(repeat.PauseBackfill)},
	{method: "POST", path: backfillPath + "/resume", scope: operate, serve: changeBackfill(repeat.ResumeBackfill)},
	{method: "POST", path: backfillPath + "/cancel", scope: operate, serve: changeBackfill(repeat.CancelBackfill)},

	{method: "GET", path: bulkPath, scope: read, query: pageQuery, serve: (*API).listBulkActions},
	{method: "POST", path: bulkPath, scope: operate, orScope: write, body: true, serve: (*API).createBulkAction},
	{method: "GET", path: bulkPath + "/{bulk}", scope: read, serve: (*API).getBulkAction},
	{method: "POST", path: bulkPath + "/{bulk}/cancel", scope: operate, orScope: write, serve: (*API).cancelBulkAction},

	{method: "GET", path: appPath + "/calendars", scope: read, query: pageQuery, serve: (*API).listCalendars},
	{method: "GET", path: calPath, scope: read, serve: (*API).getCalendar},
	{method: "PUT", path: calPath, scope: write, serve: (*API).putCalendar},
	{method: "DELETE", path: calPath, scope: write, query: deleteCalendarQuery, serve: (*API).deleteCalendar},

	{method: "GET", path: appPath + "/groups", scope: read, query: pageQuery, serve: (*API).listGroups},
	{method: "GET", path: groupPath, scope: read, serve: (*API).getGroup},
	{method: "PUT", path: groupPath, scope: write, serve: (*API).putGroup},
	{method: "DELETE", path: groupPath, scope: write, serve: (*API).deleteGroup},
	{method: "GET", path: groupPath + "/endpoints", scope: read, query: pageQuery, serve: (*API).listEndpoints},
	{method: "GET", path: groupPath + "/status", scope: read, serve: (*API).groupStatus},
	{method: "PUT", path: endpointPath, scope: enlist, orScope: write, serve: (*API).registerEndpoint},
	{method: "DELETE", path: endpointPath, scope: enlist, orScope: write, serve: (*API).deregisterEndpoint},
	{method: "POST", path: endpointPath + "/drain", scope: write, serve: drainEndpoint(true)},
	{method: "POST", path: endpointPath + "/resume", scope: write, serve: drainEndpoint(false)},

	{method: "GET", path: appPath + "/alerts", scope: read, query: pageQuery, serve: (*API).listAlerts},
	{method: "GET", path: alertPath, scope: read, serve: (*API).getAlert},
	{method: "PUT", path: alertPath, scope: write, serve: (*API).putAlert},
	{method: "DELETE", path: alertPath, scope: write, serve: (*API).deleteAlert},
	{method: "POST", path: alertPath + "/mute", scope: write, body: true, serve: (*API).muteAlert},
	{method: "POST", path: alertPath + "/unmute", scope: write, serve: (*API).unmuteAlert},
	{method: "POST", path: alertPath + "/acknowledge", scope: operate, body: true, serve: (*API).acknowledgeAlert},
	{method: "POST", path: alertPath + "/unacknowledge", scope: operate, body: true, serve: (*API).withdrawAcknowledgement},
	{method: "POST", path: alertPath + "/test", scope: operate, serve: (*API).testAlert},
	{method: "GET", path: appPath + "/alert-states", scope: read, query: alertStatesQuery, serve: (*API).listAlertStates},
	{method: "GET", path: appPath + "/alert-events", scope: read, query: alertEventsQuery, serve: (*API).listAlertEvents},

	{method: "POST", path: executorPath + "/registry", executors: true, body: true, serve: (*API).registerExecutor},
	{method: "POST", path: executorPath + "/registryRemove", executors: true, body: true, serve: (*API).deregisterExecutor},
	{method: "POST", path: executorPath + "/callback", executors: true, body: true, serve: (*API).callBackOfExecutor},

	{method: "GET", path: appPath + "/runs", scope: read, query: runsQuery, serve: (*API).listRuns},
	{method: "GET", path: appPath + "/misfires", scope: read, query: misfiresQuery, serve: (*API).listMisfires},
	{method: "GET", path: appPath + "/dead-letters", scope: read, query: deadLettersQuery, serve: (*API).listDeadLetters},
	{method: "POST", path: appPath + "/dead-letters/replay", scope: operate, body: true, serve: (*API).replayDeadLetters},
	{method: "GET", path: appPath + "/timeline", scope: read, query: timelineQuery, serve: (*API).timeline},
	{method: "GET", path: appPath + "/verify", scope: read, query: verifyQuery, serve: (*API).verify},
	{method: "GET", path: runPath, scope: read, serve: (*API).getRun},
	{method: "GET", path: runPath + "/request", scope: read, serve: (*API).requestOfRun},
	{method: "GET", path: runPath + "/log", scope: read, query: logQuery, serve: (*API).runLog},
	{method: "POST", path: runPath + "/cancel", scope: operate, serve: (*API).cancelRun},
	{method: "POST", path: runPath + "/release", scope: operate, serve: (*API).releaseRun},
	{method: "POST", path: runPath + "/retry", scope: operate, serve: (*API).retryRun},
	{method: "POST", path: runPath + "/complete", scope: operate, callback: true, body: true, serve: (*API).completeRun},
	{method: "POST", path: runPath + "/fail", scope: operate, callback: true, body: true, serve: (*API).failRun},
	{method: "POST", path: runPath + "/heartbeat", scope: operate, callback: true, body: true, serve: (*API).extendRun},

	{method: "GET", path: "/v1/jobs", scope: read, query: summariesQuery, repeated: "label", serve: (*API).listSummaries},
	{method: "GET", path: "/v1/attention", scope: read, query: []string{"app"}, serve: (*API).attention},
	{method: "GET", path: "/v1/upcoming", scope: read, query: []string{"app", "hours"}, serve: (*API).upcomingFires},
	{method: "GET", path: "/v1/statistics", scope: read, query: statisticsQuery, serve: (*API).statistics},

	{method: "GET", path: "/v1/audit", scope: read, query: auditQuery, serve: (*API).listAudit},

	{method: "GET", path: "/v1/nodes", scope: read, allApps: true, serve: (*API).listNodes},
	{method: "POST", path: nodePath + "/pause", scope: admin, allApps: true, serve: setNode(dispatcher.NodePaused)},
	{method: "POST", path: nodePath + "/resume", scope: admin, allApps: true, serve: setNode(dispatcher.NodeActive)},
	{method: "POST", path: nodePath + "/drain", scope: admin, allApps: true, serve: setNode(dispatcher.NodeDraining)},

	{method: "GET", path: "/v1/token", scope: read, anyScope: true, serve: (*API).ownToken},
	{method: "GET", path: "/v1/tokens", scope: admin, allApps: true, query: pageQuery, serve: (*API).listTokens},
	{method: "GET", path: tokenPath, scope: admin, allApps: true, serve: (*API).getToken},
	{method: "PUT", path: tokenPath, scope: admin, allApps: true, serve: (*API).putToken},
	{method: "DELETE", path: tokenPath, scope: admin, allApps: true, serve: (*API).deleteToken},
	{method: "POST", path: tokenPath + "/rotate", scope: admin, allApps: true, body: true, serve: (*API).rotateToken},

	{method: "GET", path: "/v1/rollback", scope: read, allApps: true, serve: (*API).getRollback},
	{method: "POST", path: "/v1/rollback/skip", scope: admin, allApps: true, serve: resolveRollback(dispatcher.RollbackSkip)},
	{method: "POST", path: "/v1/rollback/replay", scope: admin, allApps: true, serve: resolveRollback(dispatcher.RollbackReplay)},

	{method: "GET", path: "/v1/zones", scope: read, allApps: true, serve: (*API).getZones},
	{method: "POST", path: "/v1/zones/use", scope: admin, allApps: true, body: true, large: true, serve: (*API).useZones},
	{method: "POST", path: "/v1/zones/reset", scope: admin, allApps: true, serve: (*API).resetZones},

	{method: "POST", path: "/v1/schedules/preview", scope: read, body: true, serve: (*API).preview},
}

// newMux serves routes, and a problem for every other method and path.
func (a *API) newMux() *http.ServeMux {
	mux := http.NewServeMux()
	allowed := map[string][]string{}
	for _, rt := range routes {
		mux.Handle(rt.method+" "+rt.path, a.handle(rt))
		allowed[rt.path] = append(allowed[rt.path], rt.method)
		if rt.method == http.MethodGet {
			allowed[rt.path] = append(allowed[rt.path], http.MethodHead)
		}
	}
	for path, methods := range allowed {
		slices.Sort(methods)
		mux.Handle(path, a.handle(route{path: path, serve: wrongMethod(strings.Join(methods, ", "))}))
	}
	mux.Handle("/", a.handle(route{path: "/", serve: (*API).unknownRoute}))
	return mux
}

func wrongMethod(allow string) func(*API, *request) (response, error) {
	return func(_ *API, r *request) (response, error) {
		return response{header: map[string]string{"Allow": allow}},
			input.Refuse(input.CodeMethodNotServed, "method %s is not supported here; supported methods: %s",
				input.Echo(r.Method), allow)
	}
}

// unknownRoute has a code of its own, so that a client with a wrong endpoint does not conclude that
// the requested object was deleted.
func (a *API) unknownRoute(r *request) (response, error) {
	return response{}, input.Refuse(input.CodeRouteUnknown, "there is no route %s; /openapi.json lists all routes",
		input.Echo(r.URL.Path))
}
