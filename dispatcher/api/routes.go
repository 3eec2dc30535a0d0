package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/api/gate"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/verify"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// section is a part of the API, named as in its description.
type section struct {
	tag    string
	routes []route
}

// route is a route with its handler behind the gate. The comment of the handler is its description in openapi.json,
// which openapi_build_test.go makes of all of this.
type route struct {
	gate.Route
	serve func(*API, *request) (response, error)
	about
}

// about is the part of a route's description that is not in its handler.
type about struct {
	takes, gives any    // values of the types of the bodies of requests and responses; nil: none
	optional     bool   // the body of the request may be left out
	status       int    // of a success; 0: 200, or 204 without a response
	creates      any    // what a PUT that creates something returns, with status 201; nil: it never does
	counts       any    // what is returned, with status 200, if the body has dry_run
	conditional  bool   // it supports conditions on the revision
	id, text     string // name and comment, where several routes share a function
}

var (
	pageQuery      = []string{"limit", "cursor"}
	jobsQuery      = []string{"origin", "label", "limit", "cursor"}
	summariesQuery = []string{"app", "state", "name", "host", "result", "label", "order", "limit", "cursor"}
	runSearchQuery = []string{"app", "job", "trigger", "state", "kind", "node", "class", "error", "id", "label", "from", "to",
		"limit", "cursor"}
	runsQuery        = []string{"job", "trigger", "state", "parent", "from", "to", "limit", "cursor"}
	explainQuery     = []string{"at"}
	stripQuery       = []string{"past", "next"}
	timelineQuery    = []string{"from", "to", "job", "limit", "cursor"}
	statisticsQuery  = []string{"app", "from", "to"}
	verifyQuery      = []string{"from", "to", "limit", "cursor"}
	auditQuery       = []string{"app", "actor", "action", "subject", "refused", "from", "to", "order", "limit", "cursor"}
	deleteQuery      = []string{"when_unused"}
	backfillsQuery   = []string{"job", "limit", "cursor"}
	logQuery         = []string{"attempt", "from_line"}
	misfiresQuery    = []string{"job", "trigger", "from", "to", "limit", "cursor"}
	alertStatesQuery = []string{"alert", "job", "firing", "limit", "cursor"}
	alertEventsQuery = []string{"alert", "job", "from", "to", "limit", "cursor"}
	deadLettersQuery = []string{"job", "class", "state", "from", "to", "limit", "cursor"}
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

// sections are all routes, by their tag in the description of the API.
var sections = []section{
	{"server", []route{
		{gate.Route{Method: "GET", Path: "/livez", Probe: true}, (*API).live, about{gives: readiness{}}},
		{gate.Route{Method: "GET", Path: "/readyz", Probe: true}, (*API).ready, about{gives: readiness{}}},
		{gate.Route{Method: "GET", Path: "/version"}, (*API).version, about{gives: dispatcher.ServerVersion{}}},
		{gate.Route{Method: "GET", Path: "/openapi.json"}, (*API).openAPI, about{gives: map[string]any{}}},
		{gate.Route{Method: "GET", Path: "/metrics", Scope: scrape, AllApps: true, Outage: true}, (*API).metrics, about{gives: ""}},
		{gate.Route{Method: "GET", Path: "/metrics/jobs", Scope: scrape, Query: []string{"app"}}, (*API).jobMetrics, about{gives: ""}},
	}},
	{"apps", []route{
		{gate.Route{Method: "GET", Path: "/v1/apps", Scope: read, Query: pageQuery}, (*API).listApps, about{gives: list[access.App]{}}},
		{gate.Route{Method: "GET", Path: appPath, Scope: read}, (*API).getApp, about{gives: access.App{}, conditional: true}},
		{gate.Route{Method: "PUT", Path: appPath, Scope: write}, (*API).putApp, about{
			takes: access.App{}, gives: access.App{}, creates: access.App{}, conditional: true,
		}},
		{gate.Route{Method: "PATCH", Path: appPath, Scope: write}, (*API).patchApp, about{
			takes: appPatch{}, gives: access.App{}, conditional: true,
		}},
		{gate.Route{Method: "DELETE", Path: appPath, Scope: write}, (*API).deleteApp, about{conditional: true}},
		{gate.Route{Method: "GET", Path: appPath + "/export", Scope: moveOut, Memory: gate.ExportMemory}, (*API).exportApp, about{
			gives: access.Export{},
		}},
		{gate.Route{Method: "POST", Path: appPath + "/import", Scope: moveIn, Body: true, Large: true}, (*API).importApp, about{
			takes: access.Export{}, gives: access.App{},
		}},
		{gate.Route{Method: "GET", Path: appPath + "/pauses", Scope: read}, (*API).listAppPauses, about{gives: list[dispatcher.AppPause]{}}},
		{gate.Route{Method: "POST", Path: appPath + "/pauses", Scope: write, Body: true}, (*API).pauseApp, about{
			takes: dispatcher.AppPauseRequest{}, optional: true, gives: dispatcher.AppPause{}, status: http.StatusCreated,
		}},
		{gate.Route{Method: "DELETE", Path: appPath + "/pauses/{pause}", Scope: write}, (*API).endAppPause, about{}},
	}},
	{"jobs", []route{
		{gate.Route{Method: "GET", Path: appPath + "/jobs", Scope: read, Query: jobsQuery, Repeated: "label"}, (*API).listJobs, about{
			gives: list[dispatcher.Job]{},
		}},
		{gate.Route{Method: "GET", Path: jobPath, Scope: read}, (*API).getJob, about{gives: dispatcher.Job{}, conditional: true}},
		{gate.Route{Method: "PUT", Path: jobPath, Scope: write}, (*API).putJob, about{
			takes: dispatcher.Job{}, gives: dispatcher.Job{}, creates: dispatcher.Job{}, conditional: true,
		}},
		{gate.Route{Method: "DELETE", Path: jobPath, Scope: write}, (*API).deleteJob, about{conditional: true}},
		{gate.Route{Method: "GET", Path: jobPath + "/slots", Scope: read}, (*API).listSlots, about{gives: list[dispatcher.Slot]{}}},
		{gate.Route{Method: "POST", Path: jobPath + "/slots/release", Scope: operate, Body: true}, (*API).releaseSlot, about{
			takes: run.SlotRelease{}, gives: run.Run{},
		}},
		{gate.Route{Method: "GET", Path: statePath, Scope: read}, (*API).getCarriedState, about{
			gives: run.CarriedState{}, conditional: true,
		}},
		{gate.Route{Method: "PUT", Path: statePath, Scope: write}, (*API).putCarriedState, about{
			takes: run.CarriedState{}, gives: run.CarriedState{}, conditional: true,
		}},
		{gate.Route{Method: "DELETE", Path: statePath, Scope: write}, (*API).deleteCarriedState, about{conditional: true}},
		{gate.Route{Method: "GET", Path: jobPath + "/statistics", Scope: read, Query: []string{"from", "to"}}, (*API).getJobStatistics, about{
			gives: view.JobStatistics{},
		}},
		{gate.Route{Method: "GET", Path: jobPath + "/objective", Scope: read}, (*API).getObjective, about{
			gives: dispatcher.ObjectiveStatus{},
		}},
		{gate.Route{Method: "GET", Path: "/v1/objectives", Scope: read, Query: []string{"app", "limit", "cursor"}}, (*API).listObjectives, about{
			gives: list[dispatcher.ObjectiveStatus]{},
		}},
		{gate.Route{Method: "POST", Path: jobPath + "/run", Scope: operate, Body: true}, (*API).runJob, about{
			takes: dispatcher.RunRequest{}, optional: true, gives: run.Run{}, status: http.StatusAccepted,
		}},
		{gate.Route{Method: "POST", Path: jobPath + "/pause", Scope: write, Body: true}, pause(true), about{
			takes: dispatcher.PauseRequest{}, optional: true, gives: dispatcher.Job{}, conditional: true, id: "pauseJob",
			text: "pauses all triggers of a job. The schedule goes on during the pause. After resume, the misfire_policy of a " +
				"trigger decides about all fires that came due if one is later than misfire_after; otherwise each runs late. " +
				"Set enabled to false instead if you want no fires for that time.",
		}},
		{gate.Route{Method: "POST", Path: jobPath + "/resume", Scope: write}, pause(false), about{
			gives: dispatcher.Job{}, conditional: true, id: "resumeJob",
			text: "resumes a job.",
		}},
		{gate.Route{Method: "POST", Path: jobPath + "/rename", Scope: write, Body: true}, (*API).renameJob, about{
			takes: dispatcher.JobRename{}, gives: dispatcher.Job{}, conditional: true,
		}},
		{gate.Route{Method: "POST", Path: triggerPath + "/pause", Scope: write, Body: true}, pause(true), about{
			takes: dispatcher.PauseRequest{}, optional: true, gives: dispatcher.Job{}, conditional: true, id: "pauseTrigger",
			text: "pauses one trigger. Fires that come due during the pause are treated as those of a paused job.",
		}},
		{gate.Route{Method: "POST", Path: triggerPath + "/resume", Scope: write}, pause(false), about{
			gives: dispatcher.Job{}, conditional: true, id: "resumeTrigger",
			text: "resumes one trigger.",
		}},
		{gate.Route{Method: "GET", Path: "/v1/jobs", Scope: read, Query: summariesQuery, Repeated: "label"}, (*API).listJobSummaries, about{
			gives: list[dispatcher.JobSummary]{},
		}},
		{gate.Route{Method: "GET", Path: "/v1/attention", Scope: read, Query: []string{"app"}}, (*API).getAttention, about{
			gives: view.Attention{},
		}},
		{gate.Route{Method: "GET", Path: "/v1/upcoming", Scope: read, Query: []string{"app", "hours"}}, (*API).getUpcomingFires, about{
			gives: view.UpcomingFires{},
		}},
	}},
	{"backfills", []route{
		{gate.Route{Method: "POST", Path: jobPath + "/backfill", Scope: operate, Body: true}, (*API).createBackfill, about{
			takes: repeat.BackfillRequest{}, gives: repeat.Backfill{}, status: http.StatusAccepted, counts: repeat.BackfillCount{},
		}},
		{gate.Route{Method: "GET", Path: appPath + "/backfills", Scope: read, Query: backfillsQuery}, (*API).listBackfills, about{
			gives: list[repeat.Backfill]{},
		}},
		{gate.Route{Method: "GET", Path: backfillPath, Scope: read}, (*API).getBackfill, about{gives: repeat.Backfill{}}},
		{gate.Route{Method: "POST", Path: backfillPath + "/pause", Scope: operate}, changeBackfill(repeat.PauseBackfill), about{
			gives: repeat.Backfill{}, id: "pauseBackfill",
			text: "queues no more runs of a backfill. Runs that are queued or in flight go on.",
		}},
		{gate.Route{Method: "POST", Path: backfillPath + "/resume", Scope: operate}, changeBackfill(repeat.ResumeBackfill), about{
			gives: repeat.Backfill{}, id: "resumeBackfill",
			text: "goes on with a backfill that is paused.",
		}},
		{gate.Route{Method: "POST", Path: backfillPath + "/cancel", Scope: operate}, changeBackfill(repeat.CancelBackfill), about{
			gives: repeat.Backfill{}, id: "cancelBackfill",
			text: "ends a backfill. Its runs that wait end as cancelled. Those in flight end by themselves; until then the " +
				"state is cancelling.",
		}},
	}},
	{"bulk actions", []route{
		{gate.Route{Method: "GET", Path: bulkPath, Scope: read, Query: pageQuery}, (*API).listBulkActions, about{
			gives: list[repeat.BulkAction]{},
		}},
		{gate.Route{Method: "POST", Path: bulkPath, Scope: operate, OrScope: write, Body: true}, (*API).createBulkAction, about{
			takes: repeat.BulkRequest{}, gives: repeat.BulkAction{}, status: http.StatusAccepted, counts: repeat.BulkCount{},
		}},
		{gate.Route{Method: "GET", Path: bulkPath + "/{bulk}", Scope: read}, (*API).getBulkAction, about{gives: repeat.BulkAction{}}},
		{gate.Route{Method: "POST", Path: bulkPath + "/{bulk}/cancel", Scope: operate, OrScope: write}, (*API).cancelBulkAction, about{
			gives: repeat.BulkAction{},
		}},
	}},
	{"calendars", []route{
		{gate.Route{Method: "GET", Path: appPath + "/calendars", Scope: read, Query: pageQuery}, (*API).listCalendars, about{
			gives: list[dispatcher.Calendar]{},
		}},
		{gate.Route{Method: "GET", Path: calPath, Scope: read}, (*API).getCalendar, about{gives: dispatcher.Calendar{}, conditional: true}},
		{gate.Route{Method: "PUT", Path: calPath, Scope: write}, (*API).putCalendar, about{
			takes: dispatcher.Calendar{}, gives: dispatcher.Calendar{}, creates: dispatcher.Calendar{}, conditional: true,
		}},
		{gate.Route{Method: "DELETE", Path: calPath, Scope: write, Query: deleteQuery}, (*API).deleteCalendar, about{
			gives: dispatcher.Calendar{}, conditional: true,
		}},
	}},
	{"groups", []route{
		{gate.Route{Method: "GET", Path: appPath + "/groups", Scope: read, Query: pageQuery}, (*API).listGroups, about{
			gives: list[target.EndpointGroup]{},
		}},
		{gate.Route{Method: "GET", Path: groupPath, Scope: read}, (*API).getGroup, about{gives: target.EndpointGroup{}, conditional: true}},
		{gate.Route{Method: "PUT", Path: groupPath, Scope: write}, (*API).putGroup, about{
			takes: target.EndpointGroup{}, gives: target.EndpointGroup{}, creates: target.EndpointGroup{}, conditional: true,
		}},
		{gate.Route{Method: "DELETE", Path: groupPath, Scope: write, Query: deleteQuery}, (*API).deleteGroup, about{
			gives: target.EndpointGroup{}, conditional: true,
		}},
		{gate.Route{Method: "GET", Path: groupPath + "/endpoints", Scope: read, Query: pageQuery}, (*API).listEndpoints, about{
			gives: list[target.Endpoint]{},
		}},
		{gate.Route{Method: "GET", Path: groupPath + "/status", Scope: read}, (*API).getGroupStatus, about{gives: target.GroupStatus{}}},
		{gate.Route{Method: "PUT", Path: endpointPath, Scope: enlist, OrScope: write}, (*API).registerEndpoint, about{
			takes: target.Endpoint{}, gives: target.Endpoint{}, creates: target.Endpoint{},
		}},
		{gate.Route{Method: "DELETE", Path: endpointPath, Scope: enlist, OrScope: write}, (*API).deregisterEndpoint, about{}},
		{gate.Route{Method: "POST", Path: endpointPath + "/drain", Scope: write}, drainEndpoint(true), about{
			gives: target.Endpoint{}, id: "drainEndpoint",
			text: "sends an endpoint no new requests. It stays until it is resumed or the endpoint goes. A registration does " +
				"not lift it.",
		}},
		{gate.Route{Method: "POST", Path: endpointPath + "/resume", Scope: write}, drainEndpoint(false), about{
			gives: target.Endpoint{}, id: "resumeEndpoint",
			text: "sends a drained endpoint requests again.",
		}},
	}},
	{"alerts", []route{
		{gate.Route{Method: "GET", Path: appPath + "/alerts", Scope: read, Query: pageQuery}, (*API).listAlerts, about{
			gives: list[alert.Alert]{},
		}},
		{gate.Route{Method: "GET", Path: alertPath, Scope: read}, (*API).getAlert, about{gives: alert.Alert{}, conditional: true}},
		{gate.Route{Method: "PUT", Path: alertPath, Scope: write}, (*API).putAlert, about{
			takes: alert.Alert{}, gives: alert.Alert{}, creates: alert.Alert{}, conditional: true,
		}},
		{gate.Route{Method: "DELETE", Path: alertPath, Scope: write}, (*API).deleteAlert, about{conditional: true}},
		{gate.Route{Method: "POST", Path: alertPath + "/mute", Scope: write, Body: true}, (*API).muteAlert, about{
			takes: alert.Mute{}, optional: true, gives: alert.Alert{},
		}},
		{gate.Route{Method: "POST", Path: alertPath + "/unmute", Scope: write}, (*API).unmuteAlert, about{gives: alert.Alert{}}},
		{gate.Route{Method: "POST", Path: alertPath + "/acknowledge", Scope: operate, Body: true}, (*API).acknowledgeAlert, about{
			takes: alert.Acknowledgement{}, gives: list[alert.State]{},
		}},
		{gate.Route{Method: "POST", Path: alertPath + "/unacknowledge", Scope: operate, Body: true}, (*API).withdrawAcknowledgement, about{
			takes: alertWithdrawal{}, gives: list[alert.State]{},
		}},
		{gate.Route{Method: "POST", Path: alertPath + "/test", Scope: operate}, (*API).testAlert, about{
			gives: run.Run{}, status: http.StatusAccepted,
		}},
		{gate.Route{Method: "GET", Path: appPath + "/alert-states", Scope: read, Query: alertStatesQuery}, (*API).listAlertStates, about{
			gives: list[alert.State]{},
		}},
		{gate.Route{Method: "GET", Path: appPath + "/alert-events", Scope: read, Query: alertEventsQuery}, (*API).listAlertEvents, about{
			gives: list[alert.Event]{},
		}},
	}},
	{"ledger", []route{
		{gate.Route{Method: "GET", Path: triggerPath + "/explain", Scope: read, Query: explainQuery}, (*API).explainInstant, about{
			gives: verify.Explanation{},
		}},
		{gate.Route{Method: "GET", Path: triggerPath + "/strip", Scope: read, Query: stripQuery}, (*API).getStrip, about{
			gives: view.Strip{},
		}},
		{gate.Route{Method: "GET", Path: appPath + "/runs", Scope: read, Query: runsQuery}, (*API).listRuns, about{gives: list[run.Run]{}}},
		{gate.Route{Method: "GET", Path: "/v1/runs", Scope: read, Query: runSearchQuery, Repeated: "label"}, (*API).searchRuns, about{
			gives: list[run.Run]{},
		}},
		{gate.Route{Method: "GET", Path: appPath + "/misfires", Scope: read, Query: misfiresQuery}, (*API).listMisfires, about{
			gives: list[dispatcher.Misfire]{},
		}},
		{gate.Route{Method: "GET", Path: appPath + "/dead-letters", Scope: read, Query: deadLettersQuery}, (*API).listDeadLetters, about{
			gives: list[run.Run]{},
		}},
		{gate.Route{Method: "POST", Path: appPath + "/dead-letters/replay", Scope: operate, Body: true}, (*API).replayDeadLetters, about{
			takes: repeat.DeadLetterReplay{}, optional: true, gives: repeat.Replayed{}, counts: repeat.DeadLetterCount{},
		}},
		{gate.Route{Method: "GET", Path: appPath + "/timeline", Scope: read, Query: timelineQuery}, (*API).getTimeline, about{
			gives: view.Timeline{},
		}},
		{gate.Route{Method: "GET", Path: appPath + "/verify", Scope: read, Query: verifyQuery}, (*API).verifyApp, about{
			gives: verify.Page{},
		}},
		{gate.Route{Method: "GET", Path: runPath, Scope: read, Memory: gate.PageMemory}, (*API).getRun, about{gives: run.Run{}}},
		{gate.Route{Method: "GET", Path: runPath + "/request", Scope: read}, (*API).getRunRequest, about{gives: target.ShownRequest{}}},
		{gate.Route{Method: "GET", Path: runPath + "/log", Scope: read, Query: logQuery, Memory: logMemory}, (*API).getRunLog, about{
			gives: target.ExecutorLog{},
		}},
		{gate.Route{Method: "POST", Path: runPath + "/cancel", Scope: operate}, (*API).cancelRun, about{gives: run.Run{}}},
		{gate.Route{Method: "POST", Path: runPath + "/retry", Scope: operate}, (*API).retryRun, about{gives: run.Run{}}},
		{gate.Route{Method: "POST", Path: runPath + "/complete", Scope: operate, Callback: true, Body: true}, (*API).completeRun, about{
			takes: callbackCompletion{}, optional: true, gives: run.CallbackReply{},
		}},
		{gate.Route{Method: "POST", Path: runPath + "/fail", Scope: operate, Callback: true, Body: true}, (*API).failRun, about{
			takes: callbackFailure{}, optional: true, gives: run.CallbackReply{},
		}},
		{gate.Route{Method: "POST", Path: runPath + "/heartbeat", Scope: operate, Callback: true, Body: true}, (*API).extendRun, about{
			takes: callbackHeartbeat{}, optional: true, gives: run.CallbackReply{},
		}},
		{gate.Route{Method: "GET", Path: "/v1/statistics", Scope: read, Query: statisticsQuery}, (*API).getStatistics, about{
			gives: view.Statistics{},
		}},
	}},
	{"nodes", []route{
		{gate.Route{Method: "GET", Path: "/v1/nodes", Scope: read, AllApps: true}, (*API).listNodes, about{gives: list[dispatcher.Node]{}}},
		{gate.Route{Method: "POST", Path: nodePath + "/pause", Scope: admin, AllApps: true}, setNode(dispatcher.NodePaused), about{
			gives: dispatcher.Node{}, id: "pauseNode",
			text: "stops a node from claiming fires; runs in flight finish. Other nodes take over its share. If every node " +
				"is paused, fires are treated as those of a paused job.",
		}},
		{gate.Route{Method: "POST", Path: nodePath + "/resume", Scope: admin, AllApps: true}, setNode(dispatcher.NodeActive), about{
			gives: dispatcher.Node{}, id: "resumeNode",
			text: "lets a node claim fires again.",
		}},
		{gate.Route{Method: "POST", Path: nodePath + "/drain", Scope: admin, AllApps: true}, setNode(dispatcher.NodeDraining), about{
			gives: dispatcher.Node{}, id: "drainNode",
			text: "lets a node finish the runs it holds without claiming new ones.",
		}},
		{gate.Route{Method: "GET", Path: "/v1/rollback", Scope: read, AllApps: true}, (*API).getRollback, about{
			gives: dispatcher.Rollback{},
		}},
		{gate.Route{Method: "POST", Path: "/v1/rollback/skip", Scope: admin, AllApps: true}, resolveRollback(dispatcher.RollbackSkip), about{
			gives: dispatcher.Rollback{}, id: "skipRollback",
			text: "skips all fires up to now, ends unfinished runs as lost, and resumes the nodes. Nothing is sent twice, " +
				"but fires that were not sent before the rollback are never sent. A node does the work in its next handler " +
				"round.",
		}},
		{gate.Route{Method: "POST", Path: "/v1/rollback/replay", Scope: admin, AllApps: true}, resolveRollback(dispatcher.RollbackReplay), about{
			gives: dispatcher.Rollback{}, id: "replayRollback",
			text: "resumes the nodes with the state that the database has. No fire is left out, but fires whose commits were " +
				"lost are sent again, under the same event ids.",
		}},
		{gate.Route{Method: "GET", Path: "/v1/zones", Scope: read, AllApps: true}, (*API).getZones, about{gives: dispatcher.ZoneStatus{}}},
		{gate.Route{Method: "POST", Path: "/v1/zones/use", Scope: admin, AllApps: true, Body: true, Large: true}, (*API).useZones, about{
			takes: dispatcher.ZoneData{}, gives: dispatcher.ZoneStatus{},
		}},
		{gate.Route{Method: "POST", Path: "/v1/zones/reset", Scope: admin, AllApps: true}, (*API).resetZones, about{
			gives: dispatcher.ZoneStatus{},
		}},
	}},
	{"tokens", []route{
		{gate.Route{Method: "GET", Path: "/v1/token", Scope: read, AnyScope: true}, (*API).getOwnToken, about{gives: access.APIToken{}}},
		{gate.Route{Method: "GET", Path: "/v1/tokens", Scope: admin, AllApps: true, Query: pageQuery}, (*API).listTokens, about{
			gives: list[access.APIToken]{},
		}},
		{gate.Route{Method: "GET", Path: tokenPath, Scope: admin, AllApps: true}, (*API).getToken, about{
			gives: access.APIToken{}, conditional: true,
		}},
		{gate.Route{Method: "PUT", Path: tokenPath, Scope: admin, AllApps: true}, (*API).putToken, about{
			takes: access.APIToken{}, gives: access.APIToken{}, creates: access.IssuedToken{}, conditional: true,
		}},
		{gate.Route{Method: "DELETE", Path: tokenPath, Scope: admin, AllApps: true}, (*API).deleteToken, about{conditional: true}},
		{gate.Route{Method: "POST", Path: tokenPath + "/rotate", Scope: admin, AllApps: true, Body: true}, (*API).rotateToken, about{
			takes: access.TokenRotation{}, optional: true, gives: access.IssuedToken{}, conditional: true,
		}},
	}},
	{"executors", []route{
		{gate.Route{Method: "POST", Path: executorPath + "/registry", Executors: true, Body: true}, (*API).registerExecutor, about{
			takes: registry{}, gives: executorReply{},
		}},
		{gate.Route{Method: "POST", Path: executorPath + "/registryRemove", Executors: true, Body: true}, (*API).deregisterExecutor, about{
			takes: registry{}, gives: executorReply{},
		}},
		{gate.Route{Method: "POST", Path: executorPath + "/callback", Executors: true, Body: true}, (*API).callBackOfExecutor, about{
			takes: []executorResult{}, gives: executorReply{},
		}},
	}},
	{"audit", []route{
		{gate.Route{Method: "GET", Path: "/v1/audit", Scope: read, Query: auditQuery}, (*API).listAudit, about{
			gives: list[access.AuditEntry]{},
		}},
	}},
	{"schedules", []route{
		{gate.Route{Method: "POST", Path: "/v1/schedules/preview", Scope: read, Body: true}, (*API).preview, about{
			takes: view.PreviewRequest{}, gives: view.Preview{},
		}},
	}},
}

// routes lists every route.
func routes() (all []route) {
	for _, s := range sections {
		all = append(all, s.routes...)
	}
	return all
}

// newMux serves routes, and a problem for every other method and path.
func (a *API) newMux() *http.ServeMux {
	mux := http.NewServeMux()
	allowed := map[string][]string{}
	for _, rt := range routes() {
		mux.Handle(rt.Method+" "+rt.Path, a.handle(rt))
		allowed[rt.Path] = append(allowed[rt.Path], rt.Method)
		if rt.Method == http.MethodGet {
			allowed[rt.Path] = append(allowed[rt.Path], http.MethodHead)
		}
	}
	for path, methods := range allowed {
		slices.Sort(methods)
		allow := strings.Join(methods, ", ")
		mux.Handle(path, a.handle(route{Route: gate.Route{Path: path}, serve: func(_ *API, r *request) (response, error) {
			return response{header: map[string]string{"Allow": allow}}, input.Refuse(input.CodeMethodNotServed,
				"method %s is not supported here; supported methods: %s", input.Echo(r.Method), allow)
		}}))
	}
	mux.Handle("/", a.handle(route{Route: gate.Route{Path: "/"}, serve: (*API).unknownRoute}))
	return mux
}

// unknownRoute has a code of its own, so that a client with a wrong endpoint does not conclude that
// the requested object was deleted.
func (a *API) unknownRoute(r *request) (response, error) {
	return response{}, input.Refuse(input.CodeRouteUnknown, "there is no route %s; /openapi.json lists all routes",
		input.Echo(r.URL.Path))
}
