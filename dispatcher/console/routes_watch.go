package console

import (
	"github.com/carillon-dev/carillon/dispatcher/access"
)

// Paths of what the screens and the actions are about.
const (
	jobPath     = "apps/{app}/jobs/{job}"
	triggerPath = jobPath + "/triggers/{trigger}"
	runPath     = "runs/{run}"
)

// watchScreens are those that tell what happens: attention, jobs and runs, explanations, the timeline and the preview.
func watchScreens() []screen {
	return []screen{
		{name: "attention", path: "", needs: access.ScopeRead, menu: 10, show: showAttention},
		{name: "jobs", path: "jobs", needs: access.ScopeRead, menu: 20, show: showJobs},
		{name: "timeline", path: "timeline", needs: access.ScopeRead, menu: 40, show: showTimeline},
		{name: "preview", path: "preview", needs: access.ScopeRead, menu: 50, show: showPreview},
		{name: "runs", path: "apps/{app}/runs", needs: access.ScopeRead, menu: 10, show: showRuns},
		{name: "job", path: jobPath, needs: access.ScopeRead, show: showJob},
		{name: "explain", path: triggerPath + "/explain", needs: access.ScopeRead, show: showExplain},
		{name: "run", path: runPath, needs: access.ScopeRead, show: showRun},
		{name: "run_job", path: jobPath + "/run", needs: access.ScopeRun, show: showRunJob},
		{name: "cancel_run", path: runPath + "/cancel", needs: access.ScopeRun, show: showCancelRun},
	}
}

// watchActions are those of jobs, triggers and runs.
func watchActions() []action {
	return []action{
		{name: "run_job", path: jobPath + "/run", needs: access.ScopeRun, page: "run_job", do: runJob},
		{name: "job", path: jobPath + "/pause", needs: access.ScopeWrite, page: "job", do: pauseJob},
		{name: "job", path: jobPath + "/resume", needs: access.ScopeWrite, page: "job", do: resumeJob},
		{name: "job", path: triggerPath + "/pause", needs: access.ScopeWrite, page: "job", do: pauseJob},
		{name: "job", path: triggerPath + "/resume", needs: access.ScopeWrite, page: "job", do: resumeJob},
		{name: "run", path: runPath + "/release", needs: access.ScopeRun, page: "run", do: releaseRun},
		{name: "run", path: runPath + "/retry", needs: access.ScopeRun, page: "run", do: retryRun},
		{name: "cancel_run", path: runPath + "/cancel", needs: access.ScopeRun, page: "cancel_run", do: cancelRun},
		{name: "run", path: runPath + "/complete", needs: access.ScopeRun, page: "run", do: completeRun},
		{name: "run", path: runPath + "/fail", needs: access.ScopeRun, page: "run", do: failRun},
	}
}
