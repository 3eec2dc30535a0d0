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

// route is a route with what serves it once the gate has let a request in.
type route struct {
	Route
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
	{Route{Method: "GET", Path: "/livez", Probe: true}, (*API).live},
	{Route{Method: "GET", Path: "/readyz", Probe: true}, (*API).ready},
	{Route{Method: "GET", Path: "/version"}, (*API).version},
	{Route{Method: "GET", Path: "/openapi.json"}, (*API).openAPI},
	{Route{Method: "GET", Path: "/metrics", Scope: scrape, AllApps: true, Outage: true}, (*API).metrics},
	{Route{Method: "GET", Path: "/metrics/jobs", Scope: scrape, Query: []string{"app"}}, (*API).jobMetrics},

	{Route{Method: "GET", Path: "/v1/apps", Scope: read, Query: pageQuery}, (*API).listApps},
	{Route{Method: "GET", Path: appPath, Scope: read}, (*API).getApp},
	{Route{Method: "PUT", Path: appPath, Scope: write}, (*API).putApp},
	{Route{Method: "PATCH", Path: appPath, Scope: write}, (*API).patchApp},
	{Route{Method: "DELETE", Path: appPath, Scope: write}, (*API).deleteApp},
	{Route{Method: "GET", Path: appPath + "/export", Scope: moveOut, Memory: ExportMemory}, (*API).exportApp},
	{Route{Method: "POST", Path: appPath + "/import", Scope: moveIn, Body: true, Large: true}, (*API).importApp},

	{Route{Method: "GET", Path: appPath + "/pauses", Scope: read}, (*API).listPauses},
	{Route{Method: "POST", Path: appPath + "/pauses", Scope: write, Body: true}, (*API).pauseApp},
	{Route{Method: "DELETE", Path: appPath + "/pauses/{pause}", Scope: write}, (*API).endPause},

	{Route{Method: "GET", Path: appPath + "/jobs", Scope: read, Query: jobsQuery, Repeated: "label"}, (*API).listJobs},
	{Route{Method: "GET", Path: jobPath, Scope: read}, (*API).getJob},
	{Route{Method: "PUT", Path: jobPath, Scope: write}, (*API).putJob},
	{Route{Method: "DELETE", Path: jobPath, Scope: write}, (*API).deleteJob},
	{Route{Method: "GET", Path: jobPath + "/slots", Scope: read}, (*API).listSlots},
	{Route{Method: "GET", Path: statePath, Scope: read}, (*API).getState},
	{Route{Method: "PUT", Path: statePath, Scope: write}, (*API).putState},
	{Route{Method: "DELETE", Path: statePath, Scope: write}, (*API).deleteState},
	{Route{Method: "GET", Path: jobPath + "/objective", Scope: read}, (*API).getObjective},
	{Route{Method: "GET", Path: appPath + "/objectives", Scope: read, Query: pageQuery}, (*API).listObjectives},
	{Route{Method: "POST", Path: jobPath + "/run", Scope: operate, Body: true}, (*API).runJob},
	{Route{Method: "POST", Path: jobPath + "/backfill", Scope: operate, Body: true}, (*API).createBackfill},
	{Route{Method: "POST", Path: jobPath + "/pause", Scope: write, Body: true}, pause(true)},
	{Route{Method: "POST", Path: jobPath + "/resume", Scope: write}, pause(false)},
	{Route{Method: "POST", Path: jobPath + "/rename", Scope: write, Body: true}, (*API).renameJob},
	{Route{Method: "POST", Path: triggerPath + "/pause", Scope: write, Body: true}, pause(true)},
	{Route{Method: "POST", Path: triggerPath + "/resume", Scope: write}, pause(false)},
	{Route{Method: "GET", Path: triggerPath + "/explain", Scope: read, Query: explainQuery}, (*API).explain},
	{Route{Method: "GET", Path: triggerPath + "/strip", Scope: read, Query: stripQuery}, (*API).strip},

	{Route{Method: "GET", Path: appPath + "/backfills", Scope: read, Query: backfillsQuery}, (*API).listBackfills},
	{Route{Method: "GET", Path: backfillPath, Scope: read}, (*API).getBackfill},
	{Route{Method: "POST", Path: backfillPath + "/pause", Scope: operate}, changeBackfill(repeat.PauseBackfill)},
	{Route{Method: "POST", Path: backfillPath + "/resume", Scope: operate}, changeBackfill(repeat.ResumeBackfill)},
	{Route{Method: "POST", Path: backfillPath + "/cancel", Scope: operate}, changeBackfill(repeat.CancelBackfill)},

	{Route{Method: "GET", Path: bulkPath, Scope: read, Query: pageQuery}, (*API).listBulkActions},
	{Route{Method: "POST", Path: bulkPath, Scope: operate, OrScope: write, Body: true}, (*API).createBulkAction},
	{Route{Method: "GET", Path: bulkPath + "/{bulk}", Scope: read}, (*API).getBulkAction},
	{Route{Method: "POST", Path: bulkPath + "/{bulk}/cancel", Scope: operate, OrScope: write}, (*API).cancelBulkAction},

	{Route{Method: "GET", Path: appPath + "/calendars", Scope: read, Query: pageQuery}, (*API).listCalendars},
	{Route{Method: "GET", Path: calPath, Scope: read}, (*API).getCalendar},
	{Route{Method: "PUT", Path: calPath, Scope: write}, (*API).putCalendar},
	{Route{Method: "DELETE", Path: calPath, Scope: write, Query: deleteCalendarQuery}, (*API).deleteCalendar},

	{Route{Method: "GET", Path: appPath + "/groups", Scope: read, Query: pageQuery}, (*API).listGroups},
	{Route{Method: "GET", Path: groupPath, Scope: read}, (*API).getGroup},
	{Route{Method: "PUT", Path: groupPath, Scope: write}, (*API).putGroup},
	{Route{Method: "DELETE", Path: groupPath, Scope: write}, (*API).deleteGroup},
	{Route{Method: "GET", Path: groupPath + "/endpoints", Scope: read, Query: pageQuery}, (*API).listEndpoints},
	{Route{Method: "GET", Path: groupPath + "/status", Scope: read}, (*API).groupStatus},
	{Route{Method: "PUT", Path: endpointPath, Scope: enlist, OrScope: write}, (*API).registerEndpoint},
	{Route{Method: "DELETE", Path: endpointPath, Scope: enlist, OrScope: write}, (*API).deregisterEndpoint},
	{Route{Method: "POST", Path: endpointPath + "/drain", Scope: write}, drainEndpoint(true)},
	{Route{Method: "POST", Path: endpointPath + "/resume", Scope: write}, drainEndpoint(false)},

	{Route{Method: "GET", Path: appPath + "/alerts", Scope: read, Query: pageQuery}, (*API).listAlerts},
	{Route{Method: "GET", Path: alertPath, Scope: read}, (*API).getAlert},
	{Route{Method: "PUT", Path: alertPath, Scope: write}, (*API).putAlert},
	{Route{Method: "DELETE", Path: alertPath, Scope: write}, (*API).deleteAlert},
	{Route{Method: "POST", Path: alertPath + "/mute", Scope: write, Body: true}, (*API).muteAlert},
	{Route{Method: "POST", Path: alertPath + "/unmute", Scope: write}, (*API).unmuteAlert},
	{Route{Method: "POST", Path: alertPath + "/acknowledge", Scope: operate, Body: true}, (*API).acknowledgeAlert},
	{Route{Method: "POST", Path: alertPath + "/unacknowledge", Scope: operate, Body: true}, (*API).withdrawAcknowledgement},
	{Route{Method: "POST", Path: alertPath + "/test", Scope: operate}, (*API).testAlert},
	{Route{Method: "GET", Path: appPath + "/alert-states", Scope: read, Query: alertStatesQuery}, (*API).listAlertStates},
	{Route{Method: "GET", Path: appPath + "/alert-events", Scope: read, Query: alertEventsQuery}, (*API).listAlertEvents},

	{Route{Method: "POST", Path: executorPath + "/registry", Executors: true, Body: true}, (*API).registerExecutor},
	{Route{Method: "POST", Path: executorPath + "/registryRemove", Executors: true, Body: true}, (*API).deregisterExecutor},
	{Route{Method: "POST", Path: executorPath + "/callback", Executors: true, Body: true}, (*API).callBackOfExecutor},

	{Route{Method: "GET", Path: appPath + "/runs", Scope: read, Query: runsQuery}, (*API).listRuns},
	{Route{Method: "GET", Path: appPath + "/misfires", Scope: read, Query: misfiresQuery}, (*API).listMisfires},
	{Route{Method: "GET", Path: appPath + "/dead-letters", Scope: read, Query: deadLettersQuery}, (*API).listDeadLetters},
	{Route{Method: "POST", Path: appPath + "/dead-letters/replay", Scope: operate, Body: true}, (*API).replayDeadLetters},
	{Route{Method: "GET", Path: appPath + "/timeline", Scope: read, Query: timelineQuery}, (*API).timeline},
	{Route{Method: "GET", Path: appPath + "/verify", Scope: read, Query: verifyQuery}, (*API).verify},
	{Route{Method: "GET", Path: runPath, Scope: read, Memory: PageMemory}, (*API).getRun},
	{Route{Method: "GET", Path: runPath + "/request", Scope: read}, (*API).requestOfRun},
	{Route{Method: "GET", Path: runPath + "/log", Scope: read, Query: logQuery, Memory: logMemory}, (*API).runLog},
	{Route{Method: "POST", Path: runPath + "/cancel", Scope: operate}, (*API).cancelRun},
	{Route{Method: "POST", Path: runPath + "/release", Scope: operate}, (*API).releaseRun},
	{Route{Method: "POST", Path: runPath + "/retry", Scope: operate}, (*API).retryRun},
	{Route{Method: "POST", Path: runPath + "/complete", Scope: operate, Callback: true, Body: true}, (*API).completeRun},
	{Route{Method: "POST", Path: runPath + "/fail", Scope: operate, Callback: true, Body: true}, (*API).failRun},
	{Route{Method: "POST", Path: runPath + "/heartbeat", Scope: operate, Callback: true, Body: true}, (*API).extendRun},

	{Route{Method: "GET", Path: "/v1/jobs", Scope: read, Query: summariesQuery, Repeated: "label"}, (*API).listSummaries},
	{Route{Method: "GET", Path: "/v1/attention", Scope: read, Query: []string{"app"}}, (*API).attention},
	{Route{Method: "GET", Path: "/v1/upcoming", Scope: read, Query: []string{"app", "hours"}}, (*API).upcomingFires},
	{Route{Method: "GET", Path: "/v1/statistics", Scope: read, Query: statisticsQuery}, (*API).statistics},

	{Route{Method: "GET", Path: "/v1/audit", Scope: read, Query: auditQuery}, (*API).listAudit},

	{Route{Method: "GET", Path: "/v1/nodes", Scope: read, AllApps: true}, (*API).listNodes},
	{Route{Method: "POST", Path: nodePath + "/pause", Scope: admin, AllApps: true}, setNode(dispatcher.NodePaused)},
	{Route{Method: "POST", Path: nodePath + "/resume", Scope: admin, AllApps: true}, setNode(dispatcher.NodeActive)},
	{Route{Method: "POST", Path: nodePath + "/drain", Scope: admin, AllApps: true}, setNode(dispatcher.NodeDraining)},

	{Route{Method: "GET", Path: "/v1/token", Scope: read, AnyScope: true}, (*API).ownToken},
	{Route{Method: "GET", Path: "/v1/tokens", Scope: admin, AllApps: true, Query: pageQuery}, (*API).listTokens},
	{Route{Method: "GET", Path: tokenPath, Scope: admin, AllApps: true}, (*API).getToken},
	{Route{Method: "PUT", Path: tokenPath, Scope: admin, AllApps: true}, (*API).putToken},
	{Route{Method: "DELETE", Path: tokenPath, Scope: admin, AllApps: true}, (*API).deleteToken},
	{Route{Method: "POST", Path: tokenPath + "/rotate", Scope: admin, AllApps: true, Body: true}, (*API).rotateToken},

	{Route{Method: "GET", Path: "/v1/rollback", Scope: read, AllApps: true}, (*API).getRollback},
	{Route{Method: "POST", Path: "/v1/rollback/skip", Scope: admin, AllApps: true}, resolveRollback(dispatcher.RollbackSkip)},
	{Route{Method: "POST", Path: "/v1/rollback/replay", Scope: admin, AllApps: true}, resolveRollback(dispatcher.RollbackReplay)},

	{Route{Method: "GET", Path: "/v1/zones", Scope: read, AllApps: true}, (*API).getZones},
	{Route{Method: "POST", Path: "/v1/zones/use", Scope: admin, AllApps: true, Body: true, Large: true}, (*API).useZones},
	{Route{Method: "POST", Path: "/v1/zones/reset", Scope: admin, AllApps: true}, (*API).resetZones},

	{Route{Method: "POST", Path: "/v1/schedules/preview", Scope: read, Body: true}, (*API).preview},
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
		mux.Handle(path, a.handle(route{Route{Path: path}, wrongMethod(strings.Join(methods, ", "))}))
	}
	mux.Handle("/", a.handle(route{Route{Path: "/"}, (*API).unknownRoute}))
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
