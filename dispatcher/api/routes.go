package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api/gate"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
)

// route is a route with what serves it once the gate has let a request in.
type route struct {
	gate.Route
	serve func(*API, *request) (response, error)
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
	{gate.Route{Method: "GET", Path: "/livez", Probe: true}, (*API).live},
	{gate.Route{Method: "GET", Path: "/readyz", Probe: true}, (*API).ready},
	{gate.Route{Method: "GET", Path: "/version"}, (*API).version},
	{gate.Route{Method: "GET", Path: "/openapi.json"}, (*API).openAPI},
	{gate.Route{Method: "GET", Path: "/metrics", Scope: scrape, AllApps: true, Outage: true}, (*API).metrics},
	{gate.Route{Method: "GET", Path: "/metrics/jobs", Scope: scrape, Query: []string{"app"}}, (*API).jobMetrics},

	{gate.Route{Method: "GET", Path: "/v1/apps", Scope: read, Query: pageQuery}, (*API).listApps},
	{gate.Route{Method: "GET", Path: appPath, Scope: read}, (*API).getApp},
	{gate.Route{Method: "PUT", Path: appPath, Scope: write}, (*API).putApp},
	{gate.Route{Method: "PATCH", Path: appPath, Scope: write}, (*API).patchApp},
	{gate.Route{Method: "DELETE", Path: appPath, Scope: write}, (*API).deleteApp},
	{gate.Route{Method: "GET", Path: appPath + "/export", Scope: moveOut, Memory: gate.ExportMemory}, (*API).exportApp},
	{gate.Route{Method: "POST", Path: appPath + "/import", Scope: moveIn, Body: true, Large: true}, (*API).importApp},

	{gate.Route{Method: "GET", Path: appPath + "/pauses", Scope: read}, (*API).listPauses},
	{gate.Route{Method: "POST", Path: appPath + "/pauses", Scope: write, Body: true}, (*API).pauseApp},
	{gate.Route{Method: "DELETE", Path: appPath + "/pauses/{pause}", Scope: write}, (*API).endPause},

	{gate.Route{Method: "GET", Path: appPath + "/jobs", Scope: read, Query: jobsQuery, Repeated: "label"}, (*API).listJobs},
	{gate.Route{Method: "GET", Path: jobPath, Scope: read}, (*API).getJob},
	{gate.Route{Method: "PUT", Path: jobPath, Scope: write}, (*API).putJob},
	{gate.Route{Method: "DELETE", Path: jobPath, Scope: write}, (*API).deleteJob},
	{gate.Route{Method: "GET", Path: jobPath + "/slots", Scope: read}, (*API).listSlots},
	{gate.Route{Method: "GET", Path: statePath, Scope: read}, (*API).getState},
	{gate.Route{Method: "PUT", Path: statePath, Scope: write}, (*API).putState},
	{gate.Route{Method: "DELETE", Path: statePath, Scope: write}, (*API).deleteState},
	{gate.Route{Method: "GET", Path: jobPath + "/objective", Scope: read}, (*API).getObjective},
	{gate.Route{Method: "GET", Path: appPath + "/objectives", Scope: read, Query: pageQuery}, (*API).listObjectives},
	{gate.Route{Method: "POST", Path: jobPath + "/run", Scope: operate, Body: true}, (*API).runJob},
	{gate.Route{Method: "POST", Path: jobPath + "/backfill", Scope: operate, Body: true}, (*API).createBackfill},
	{gate.Route{Method: "POST", Path: jobPath + "/pause", Scope: write, Body: true}, pause(true)},
	{gate.Route{Method: "POST", Path: jobPath + "/resume", Scope: write}, pause(false)},
	{gate.Route{Method: "POST", Path: jobPath + "/rename", Scope: write, Body: true}, (*API).renameJob},
	{gate.Route{Method: "POST", Path: triggerPath + "/pause", Scope: write, Body: true}, pause(true)},
	{gate.Route{Method: "POST", Path: triggerPath + "/resume", Scope: write}, pause(false)},
	{gate.Route{Method: "GET", Path: triggerPath + "/explain", Scope: read, Query: explainQuery}, (*API).explain},
	{gate.Route{Method: "GET", Path: triggerPath + "/strip", Scope: read, Query: stripQuery}, (*API).strip},

	{gate.Route{Method: "GET", Path: appPath + "/backfills", Scope: read, Query: backfillsQuery}, (*API).listBackfills},
	{gate.Route{Method: "GET", Path: backfillPath, Scope: read}, (*API).getBackfill},
	{gate.Route{Method: "POST", Path: backfillPath + "/pause", Scope: operate}, changeBackfill(repeat.PauseBackfill)},
	{gate.Route{Method: "POST", Path: backfillPath + "/resume", Scope: operate}, changeBackfill(repeat.ResumeBackfill)},
	{gate.Route{Method: "POST", Path: backfillPath + "/cancel", Scope: operate}, changeBackfill(repeat.CancelBackfill)},

	{gate.Route{Method: "GET", Path: bulkPath, Scope: read, Query: pageQuery}, (*API).listBulkActions},
	{gate.Route{Method: "POST", Path: bulkPath, Scope: operate, OrScope: write, Body: true}, (*API).createBulkAction},
	{gate.Route{Method: "GET", Path: bulkPath + "/{bulk}", Scope: read}, (*API).getBulkAction},
	{gate.Route{Method: "POST", Path: bulkPath + "/{bulk}/cancel", Scope: operate, OrScope: write}, (*API).cancelBulkAction},

	{gate.Route{Method: "GET", Path: appPath + "/calendars", Scope: read, Query: pageQuery}, (*API).listCalendars},
	{gate.Route{Method: "GET", Path: calPath, Scope: read}, (*API).getCalendar},
	{gate.Route{Method: "PUT", Path: calPath, Scope: write}, (*API).putCalendar},
	{gate.Route{Method: "DELETE", Path: calPath, Scope: write, Query: deleteCalendarQuery}, (*API).deleteCalendar},

	{gate.Route{Method: "GET", Path: appPath + "/groups", Scope: read, Query: pageQuery}, (*API).listGroups},
	{gate.Route{Method: "GET", Path: groupPath, Scope: read}, (*API).getGroup},
	{gate.Route{Method: "PUT", Path: groupPath, Scope: write}, (*API).putGroup},
	{gate.Route{Method: "DELETE", Path: groupPath, Scope: write}, (*API).deleteGroup},
	{gate.Route{Method: "GET", Path: groupPath + "/endpoints", Scope: read, Query: pageQuery}, (*API).listEndpoints},
	{gate.Route{Method: "GET", Path: groupPath + "/status", Scope: read}, (*API).groupStatus},
	{gate.Route{Method: "PUT", Path: endpointPath, Scope: enlist, OrScope: write}, (*API).registerEndpoint},
	{gate.Route{Method: "DELETE", Path: endpointPath, Scope: enlist, OrScope: write}, (*API).deregisterEndpoint},
	{gate.Route{Method: "POST", Path: endpointPath + "/drain", Scope: write}, drainEndpoint(true)},
	{gate.Route{Method: "POST", Path: endpointPath + "/resume", Scope: write}, drainEndpoint(false)},

	{gate.Route{Method: "GET", Path: appPath + "/alerts", Scope: read, Query: pageQuery}, (*API).listAlerts},
	{gate.Route{Method: "GET", Path: alertPath, Scope: read}, (*API).getAlert},
	{gate.Route{Method: "PUT", Path: alertPath, Scope: write}, (*API).putAlert},
	{gate.Route{Method: "DELETE", Path: alertPath, Scope: write}, (*API).deleteAlert},
	{gate.Route{Method: "POST", Path: alertPath + "/mute", Scope: write, Body: true}, (*API).muteAlert},
	{gate.Route{Method: "POST", Path: alertPath + "/unmute", Scope: write}, (*API).unmuteAlert},
	{gate.Route{Method: "POST", Path: alertPath + "/acknowledge", Scope: operate, Body: true}, (*API).acknowledgeAlert},
	{gate.Route{Method: "POST", Path: alertPath + "/unacknowledge", Scope: operate, Body: true}, (*API).withdrawAcknowledgement},
	{gate.Route{Method: "POST", Path: alertPath + "/test", Scope: operate}, (*API).testAlert},
	{gate.Route{Method: "GET", Path: appPath + "/alert-states", Scope: read, Query: alertStatesQuery}, (*API).listAlertStates},
	{gate.Route{Method: "GET", Path: appPath + "/alert-events", Scope: read, Query: alertEventsQuery}, (*API).listAlertEvents},

	{gate.Route{Method: "POST", Path: executorPath + "/registry", Executors: true, Body: true}, (*API).registerExecutor},
	{gate.Route{Method: "POST", Path: executorPath + "/registryRemove", Executors: true, Body: true}, (*API).deregisterExecutor},
	{gate.Route{Method: "POST", Path: executorPath + "/callback", Executors: true, Body: true}, (*API).callBackOfExecutor},

	{gate.Route{Method: "GET", Path: appPath + "/runs", Scope: read, Query: runsQuery}, (*API).listRuns},
	{gate.Route{Method: "GET", Path: appPath + "/misfires", Scope: read, Query: misfiresQuery}, (*API).listMisfires},
	{gate.Route{Method: "GET", Path: appPath + "/dead-letters", Scope: read, Query: deadLettersQuery}, (*API).listDeadLetters},
	{gate.Route{Method: "POST", Path: appPath + "/dead-letters/replay", Scope: operate, Body: true}, (*API).replayDeadLetters},
	{gate.Route{Method: "GET", Path: appPath + "/timeline", Scope: read, Query: timelineQuery}, (*API).timeline},
	{gate.Route{Method: "GET", Path: appPath + "/verify", Scope: read, Query: verifyQuery}, (*API).verify},
	{gate.Route{Method: "GET", Path: runPath, Scope: read, Memory: gate.PageMemory}, (*API).getRun},
	{gate.Route{Method: "GET", Path: runPath + "/request", Scope: read}, (*API).requestOfRun},
	{gate.Route{Method: "GET", Path: runPath + "/log", Scope: read, Query: logQuery, Memory: logMemory}, (*API).runLog},
	{gate.Route{Method: "POST", Path: runPath + "/cancel", Scope: operate}, (*API).cancelRun},
	{gate.Route{Method: "POST", Path: runPath + "/release", Scope: operate}, (*API).releaseRun},
	{gate.Route{Method: "POST", Path: runPath + "/retry", Scope: operate}, (*API).retryRun},
	{gate.Route{Method: "POST", Path: runPath + "/complete", Scope: operate, Callback: true, Body: true}, (*API).completeRun},
	{gate.Route{Method: "POST", Path: runPath + "/fail", Scope: operate, Callback: true, Body: true}, (*API).failRun},
	{gate.Route{Method: "POST", Path: runPath + "/heartbeat", Scope: operate, Callback: true, Body: true}, (*API).extendRun},

	{gate.Route{Method: "GET", Path: "/v1/jobs", Scope: read, Query: summariesQuery, Repeated: "label"}, (*API).listSummaries},
	{gate.Route{Method: "GET", Path: "/v1/attention", Scope: read, Query: []string{"app"}}, (*API).attention},
	{gate.Route{Method: "GET", Path: "/v1/upcoming", Scope: read, Query: []string{"app", "hours"}}, (*API).upcomingFires},
	{gate.Route{Method: "GET", Path: "/v1/statistics", Scope: read, Query: statisticsQuery}, (*API).statistics},

	{gate.Route{Method: "GET", Path: "/v1/audit", Scope: read, Query: auditQuery}, (*API).listAudit},

	{gate.Route{Method: "GET", Path: "/v1/nodes", Scope: read, AllApps: true}, (*API).listNodes},
	{gate.Route{Method: "POST", Path: nodePath + "/pause", Scope: admin, AllApps: true}, setNode(dispatcher.NodePaused)},
	{gate.Route{Method: "POST", Path: nodePath + "/resume", Scope: admin, AllApps: true}, setNode(dispatcher.NodeActive)},
	{gate.Route{Method: "POST", Path: nodePath + "/drain", Scope: admin, AllApps: true}, setNode(dispatcher.NodeDraining)},

	{gate.Route{Method: "GET", Path: "/v1/token", Scope: read, AnyScope: true}, (*API).ownToken},
	{gate.Route{Method: "GET", Path: "/v1/tokens", Scope: admin, AllApps: true, Query: pageQuery}, (*API).listTokens},
	{gate.Route{Method: "GET", Path: tokenPath, Scope: admin, AllApps: true}, (*API).getToken},
	{gate.Route{Method: "PUT", Path: tokenPath, Scope: admin, AllApps: true}, (*API).putToken},
	{gate.Route{Method: "DELETE", Path: tokenPath, Scope: admin, AllApps: true}, (*API).deleteToken},
	{gate.Route{Method: "POST", Path: tokenPath + "/rotate", Scope: admin, AllApps: true, Body: true}, (*API).rotateToken},

	{gate.Route{Method: "GET", Path: "/v1/rollback", Scope: read, AllApps: true}, (*API).getRollback},
	{gate.Route{Method: "POST", Path: "/v1/rollback/skip", Scope: admin, AllApps: true}, resolveRollback(dispatcher.RollbackSkip)},
	{gate.Route{Method: "POST", Path: "/v1/rollback/replay", Scope: admin, AllApps: true}, resolveRollback(dispatcher.RollbackReplay)},

	{gate.Route{Method: "GET", Path: "/v1/zones", Scope: read, AllApps: true}, (*API).getZones},
	{gate.Route{Method: "POST", Path: "/v1/zones/use", Scope: admin, AllApps: true, Body: true, Large: true}, (*API).useZones},
	{gate.Route{Method: "POST", Path: "/v1/zones/reset", Scope: admin, AllApps: true}, (*API).resetZones},

	{gate.Route{Method: "POST", Path: "/v1/schedules/preview", Scope: read, Body: true}, (*API).preview},
}

// newMux serves routes, and a problem for every other method and path.
func (a *API) newMux() *http.ServeMux {
	mux := http.NewServeMux()
	allowed := map[string][]string{}
	for _, rt := range routes {
		mux.Handle(rt.Method+" "+rt.Path, a.handle(rt))
		allowed[rt.Path] = append(allowed[rt.Path], rt.Method)
		if rt.Method == http.MethodGet {
			allowed[rt.Path] = append(allowed[rt.Path], http.MethodHead)
		}
	}
	for path, methods := range allowed {
		slices.Sort(methods)
		mux.Handle(path, a.handle(route{gate.Route{Path: path}, wrongMethod(strings.Join(methods, ", "))}))
	}
	mux.Handle("/", a.handle(route{gate.Route{Path: "/"}, (*API).unknownRoute}))
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
