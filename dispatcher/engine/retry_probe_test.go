package engine

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
)

// A node has reminders of the probes that follow its own. It leaves those of other nodes to them for a window, and
// retries that wake it meanwhile do not extend that.
func TestNodeThatPlannedAProbeLooksForItFirst(t *testing.T) {
	t.Parallel()
	const window = 5 * time.Second
	r, now := newRetries(), time.Now()
	never := func(time.Time) time.Duration { return time.Hour }
	r.remind(reminder{now.Add(time.Second), 0}, never)
	r.remind(reminder{now.Add(2 * time.Second), 7}, never)
	r.remind(reminder{now.Add(2 * time.Second), 0}, never)
	r.remind(reminder{now.Add(2 * time.Second), 8}, never)
	for _, step := range []struct {
		after time.Duration
		want  dispatcher.HostQuery
	}{
		{0, dispatcher.HostQuery{Overdue: now.Add(-window)}}, // waits that were noted before the node began
		{time.Second, dispatcher.HostQuery{}},
		{2 * time.Second, dispatcher.HostQuery{IDs: []int64{7, 8}}},
		{3 * time.Second, dispatcher.HostQuery{}},
		{4 * time.Second, dispatcher.HostQuery{Overdue: now.Add(4*time.Second - window)}}, // a tick is not exact
		{7 * time.Second, dispatcher.HostQuery{}},
	} {
		at := now.Add(step.after)
		step.want.Now = at
		r.pass(at)
		got, wanted := r.dueProbes(at, window)
		if diff := cmp.Diff(step.want, got); diff != "" || wanted != (got.IDs != nil || !got.Overdue.IsZero()) {
			t.Errorf("after %s, looks for waits: %v, these (-want +got):\n%s", step.after, wanted, diff)
		}
	}
}
