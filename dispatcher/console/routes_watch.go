package console

import "github.com/carillon-dev/carillon/dispatcher"

// Paths of what the screens and the actions are about.
const (
	jobPath     = "apps/{app}/jobs/{job}"
	triggerPath = jobPath + "/triggers/{trigger}"
	runPath     = "runs/{run}"
)

// watchScreens are those that tell what happens: attention, jobs and runs, explanations, the timeline and the preview.
func watchScreens() []screen {
	return []screen{
		{name: "attention", path: "", needs: dispatcher.ScopeRead, menu: 10, show: showAttention},
		{name: "jobs", path: "jobs", needs: dispatcher.ScopeRead, menu: 20, show: showJobs},
		{name: "timeline", path: "timeline", needs: dispatcher.ScopeRead, menu: 40, show: showTimeline},
		{name: "preview", path: "preview", needs: dispatcher.ScopeRead, menu: 50, show: showPreview},
		{name: "runs", path: "apps/{app}/runs", needs: dispatcher.ScopeRead, menu: 10, show: showRuns},
		{name: "job", path: jobPath, needs: dispatcher.ScopeRead, show: showJob},
		{name: "explain", path: triggerPath + "/explain", needs: dispatcher.ScopeRead, show: showExplain},
		{name: "run", path: runPath, needs: dispatcher.ScopeRead, show: showRun},
		{name: "run_job", path: jobPath + "/run", needs: dispatcher.ScopeRun, show: showRunJob},
		{name: "cancel_run", path: runPath + "/cancel", needs: dispatcher.ScopeRun, show: showCancelRun},
	}
}

// watchActions are those of jobs, triggers and runs.
func watchActions() []action {
	return []action{
		{name: "run_job", path: jobPath + "/run", needs: dispatcher.ScopeRun, page: "run_job", do: runJob},
		{name: "job", path: jobPath + "/pause", needs: dispatcher.ScopeWrite, page: "job", do: pauseJob},
		{name: "job", path: jobPath + "/resume", needs: dispatcher.ScopeWrite, page: "job", do: resumeJob},
		{name: "job", path: triggerPath + "/pause", needs: dispatcher.ScopeWrite, page: "job", do: pauseJob},
		{name: "job", path: triggerPath + "/resume", needs: dispatcher.ScopeWrite, page: "job", do: resumeJob},
		{name: "run", path: runPath + "/release", needs: dispatcher.ScopeRun, page: "run", do: releaseRun},
		{name: "run", path: runPath + "/retry", needs: dispatcher.ScopeRun, page: "run", do: retryRun},
		{name: "cancel_run", path: runPath + "/cancel", needs: dispatcher.ScopeRun, page: "cancel_run", do: cancelRun},
		{name: "run", path: runPath + "/complete", needs: dispatcher.ScopeRun, page: "run", do: completeRun},
		{name: "run", path: runPath + "/fail", needs: dispatcher.ScopeRun, page: "run", do: failRun},
	}
}
