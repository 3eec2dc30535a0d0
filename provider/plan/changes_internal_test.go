package plan

import (
	"maps"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/provider/binding"
)

func TestOnlyChangesMoveNextFireTimes(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 5, 0, 0, 0, time.UTC)
	in := func(d time.Duration) *time.Time { return new(now.Add(d)) }
	trigger := func(next *time.Time) dispatcher.Trigger {
		return dispatcher.Trigger{TriggerStatus: dispatcher.TriggerStatus{NextFireTime: next}}
	}
	excluding := dispatcher.Trigger{TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Calendar: "holidays"}},
		TriggerStatus: dispatcher.TriggerStatus{NextFireTime: in(time.Hour)}}
	for name, tt := range map[string]struct {
		revision int64
		state    dispatcher.JobState
		before   *time.Time
		now      dispatcher.Trigger
		kept     bool
	}{
		"the fire has passed":                   {1, dispatcher.JobExecuting, in(-time.Hour), trigger(in(time.Hour)), true},
		"the fire was claimed a moment early":   {1, dispatcher.JobExecuting, in(time.Second), trigger(in(time.Hour)), true},
		"the last fire has passed":              {1, dispatcher.JobComplete, in(-time.Hour), trigger(nil), true},
		"nothing has happened":                  {1, dispatcher.JobExecuting, in(time.Hour), trigger(in(time.Hour)), true},
		"another revision":                      {2, dispatcher.JobExecuting, in(-time.Hour), trigger(in(time.Hour)), false},
		"a fire to come moved later":            {1, dispatcher.JobExecuting, in(time.Hour), trigger(in(2 * time.Hour)), false},
		"a fire to come moved earlier":          {1, dispatcher.JobExecuting, in(2 * time.Hour), trigger(in(time.Hour)), false},
		"an upcoming fire has vanished":         {1, dispatcher.JobExecuting, in(time.Hour), trigger(nil), false},
		"a calendar moved it":                   {1, dispatcher.JobExecuting, in(2 * time.Hour), excluding, true},
		"the trigger can no longer be computed": {1, dispatcher.JobError, in(-time.Hour), trigger(nil), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model := func(revision int64, state dispatcher.JobState, next *time.Time) binding.Values {
				times := map[string]attr.Value{}
				if next != nil {
					times["t"] = timetypes.NewRFC3339TimeValue(*next)
				}
				return binding.Values{
					"revision": types.Int64Value(revision), "state": types.StringValue(string(state)),
					"next_fire_times": types.MapValueMust(timetypes.RFC3339Type{}, times),
				}
			}
			before, read := model(1, dispatcher.JobExecuting, tt.before), model(tt.revision, tt.state, tt.now.NextFireTime)
			job := dispatcher.Job{JobSpec: dispatcher.JobSpec{Triggers: map[string]dispatcher.Trigger{"t": tt.now}}}
			got := maps.Clone(read)
			KeepMoving(got, before, job, now)
			want := read
			if tt.kept {
				want = before
			}
			if !got.Equal(want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}
