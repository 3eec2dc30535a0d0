package console

import "github.com/carillon-dev/carillon/dispatcher/run"

// showCancelRun asks before a run is cancelled: what its target has begun goes on, and the result is not kept.
func showCancelRun(v *visit) (content, error) {
	run, err := v.client.Run(v.Context(), v.PathValue("run"))
	if err != nil {
		return content{}, err
	}
	return content{Title: v.Texts.Text("cancel_run.title", "job", run.App+"/"+run.Job), Data: runPage{Run: run}}, nil
}

// cancelRun ends a run that has not ended.
func cancelRun(v *visit) (done, error) {
	run, err := v.client.CancelRun(v.Context(), v.PathValue("run"))
	return toRun(v, run, "cancel_run.done", err)
}

// releaseRun frees the slots of a run that has ended.
func releaseRun(v *visit) (done, error) {
	run, err := v.client.ReleaseRun(v.Context(), v.PathValue("run"))
	return toRun(v, run, "run.released", err)
}

// retryRun queues a run again.
func retryRun(v *visit) (done, error) {
	run, err := v.client.RetryRun(v.Context(), v.PathValue("run"))
	return toRun(v, run, "run.retried", err)
}

// completeRun and failRun end a run in place of the callback that it waits for.
func completeRun(v *visit) (done, error) {
	reply, err := v.client.CompleteRun(v.Context(), v.PathValue("run"), v.PostForm.Get("message"))
	return toRun(v, run.Run{ID: reply.Run}, "run.completed", err)
}

func failRun(v *visit) (done, error) {
	reply, err := v.client.FailRun(v.Context(), v.PathValue("run"), v.PostForm.Get("message"))
	return toRun(v, run.Run{ID: reply.Run}, "run.ended_failed", err)
}

// toRun leads to a run after a change of it.
func toRun(v *visit, run run.Run, notice string, err error) (done, error) {
	return done{to: v.link("runs", run.ID), notice: notice}, err
}
