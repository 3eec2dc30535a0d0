package console

import (
	"slices"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
)

const (
	readScope  = access.ScopeRead
	runScope   = access.ScopeRun
	writeScope = access.ScopeWrite
	adminScope = access.ScopeAdmin

	appPath      = "apps/{app}"
	memberPath   = appPath + "/groups/{group}/endpoints/{endpoint}"
	backfillPath = appPath + "/backfills/{backfill}"
	alertPath    = appPath + "/alerts/{alert}"
)

// operateScreens are those of apps and what they hold besides jobs, of nodes, tokens and the audit log.
func operateScreens() []screen {
	return slices.Concat([]screen{
		{name: "apps", path: "apps", needs: readScope, menu: 30, show: showApps},
		{name: "app", path: appPath, needs: readScope, show: showApp},
		{name: "confirm", path: appPath + "/pause", needs: writeScope, show: showAppPause},
		{name: "confirm", path: appPath + "/disable", needs: writeScope, show: showAppSwitch},
		{name: "groups", path: appPath + "/groups", needs: readScope, menu: 20, show: showGroups},
		{name: "group", path: appPath + "/groups/{group}", needs: readScope, show: showGroup},
		{name: "calendars", path: appPath + "/calendars", needs: readScope, menu: 30, show: showCalendars},
		{name: "calendar", path: appPath + "/calendars/{calendar}", needs: readScope, show: showCalendar},
		{name: "misfires", path: appPath + "/misfires", needs: readScope, menu: 40, show: showMisfires},
		{name: "backfills", path: appPath + "/backfills", needs: readScope, menu: 50, show: showBackfills},
		{name: "backfill_new", path: appPath + "/new-backfill", needs: runScope, show: showNewBackfill},
		{name: "backfill", path: backfillPath, needs: readScope, show: showBackfill},
		{name: "confirm", path: backfillPath + "/cancel", needs: runScope, show: showBackfillCancel},
		{name: "alerts", path: appPath + "/alerts", needs: readScope, menu: 60, show: showAlerts},
		{name: "alert", path: alertPath, needs: readScope, show: showAlert},
		{name: "dead_letters", path: appPath + "/dead-letters", needs: readScope, menu: 70, show: showDeadLetters},
		{name: "bulk", path: appPath + "/bulk", needs: readScope, menu: 80, show: showBulkActions},
		{name: "bulk_action", path: appPath + "/bulk/{bulk}", needs: readScope, show: showBulkAction},
		{name: "bulk_new", path: appPath + "/new-bulk", needs: readScope, show: showNewBulkAction},
	}, fleetScreens())
}

// fleetScreens are those that belong to no app.
func fleetScreens() []screen {
	return []screen{
		{name: "statistics", path: "statistics", needs: readScope, menu: 70, show: showStatistics},
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
		{name: "confirm", path: "rollback/skip", needs: adminScope, allApps: true, show: showRollbackChoice("rollback_skip")},
		{name: "confirm", path: "rollback/replay", needs: adminScope, allApps: true, show: showRollbackChoice("rollback_replay")},
	}
}

// operateActions are those of apps and what they hold besides jobs, of nodes and tokens.
func operateActions() []action {
	return []action{
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
		{name: "dead_letter_retry", path: appPath + "/dead-letters/{run}/retry", needs: runScope, do: retryDeadLetter},
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
