package dispatcher_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func executorTarget() *target.GroupTarget {
	return &target.GroupTarget{
		Name: "robots", Timeout: target.DefaultTimeout, XXLJob: &target.XXLJobRun{Handler: "demoJobHandler"},
	}
}

func TestExecutorsHaveNoOtherSettingsOfGroups(t *testing.T) {
	t.Parallel()
	to := executorTarget()
	to.EndpointConcurrency = run.ConcurrencyForbid
	if err := to.Validate(); err == nil || !strings.Contains(err.Error(), "leaves no choice of endpoint_concurrency") {
		t.Errorf("endpoint_concurrency: err = %v", err)
	}
	group := target.EndpointGroup{Name: "robots",
		EndpointGroupSpec: target.EndpointGroupSpec{Kind: target.GroupXXLJob, HealthCheck: &target.HealthCheck{}}}
	group.AccessToken = &target.Secret{Reference: "file:token"}
	if err := group.Validate(); err == nil || !strings.Contains(err.Error(), "leave health_check out") {
		t.Errorf("health_check: err = %v", err)
	}
}

func TestExecutorsGetNoDefaultHeaders(t *testing.T) {
	t.Parallel()
	job := dispatcher.Job{JobSpec: dispatcher.JobSpec{Target: target.Target{Group: executorTarget()}}}
	defaults := &dispatcher.JobDefaults{Headers: map[string]string{"X-Team": "crm"}}
	defaults.Fill(&job)
	if err := job.Target.Group.Validate(); len(job.Target.Group.Headers) != 0 || err != nil {
		t.Errorf("headers = %v, err = %v; want none", job.Target.Group.Headers, err)
	}
}

func TestExecutorGetsItsShard(t *testing.T) {
	t.Parallel()
	for _, shard := range []*run.Shard{nil, {Index: 2, Total: 5}} {
		call := target.Call{
			App: "demo", Job: "j", Attempt: 1, Shard: shard, Group: &target.GroupVersion{},
			Target: target.Target{Group: executorTarget()},
		}
		_, path, _, body, err := call.GroupRequest()
		var got struct{ BroadcastIndex, BroadcastTotal int }
		if err != nil || path != "/run" || json.Unmarshal(body, &got) != nil {
			t.Fatalf("path = %s, body = %s, err = %v", path, body, err)
		}
		want := run.Shard{Total: 1}
		if shard != nil {
			want = *shard
		}
		if got.BroadcastIndex != want.Index || got.BroadcastTotal != want.Total {
			t.Errorf("executor is told shard %d of %d, want %d of %d", got.BroadcastIndex, got.BroadcastTotal, want.Index, want.Total)
		}
	}
}

func TestWarningIfExecutorInterruptsRunsTooLate(t *testing.T) {
	t.Parallel()
	for timeout, warned := range map[time.Duration]bool{0: false, 59 * time.Second: false, time.Minute: true, time.Hour: true} {
		job := dispatcher.Job{App: "shop", Name: "sync"}
		job.Target.Group = &target.GroupTarget{Name: "robots", Timeout: target.DefaultTimeout,
			Callback: &target.CallbackPolicy{Timeout: input.Duration(time.Minute)},
			XXLJob:   &target.XXLJobRun{Handler: "demoJobHandler", ExecutorTimeout: input.Duration(timeout)}}
		warnings := job.Warn(dispatcher.Calendars{})
		if got := len(warnings) == 1 && warnings[0].Code == input.CodeExecutorTimeout &&
			warnings[0].Path == "/target/group/xxl_job/executor_timeout"; got != warned || !warned && len(warnings) > 0 {
			t.Errorf("executor_timeout %s: warnings %+v, want one: %v", timeout, warnings, warned)
		}
	}
}
