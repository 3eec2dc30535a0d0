package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// putMinuteOfDay puts a calendar that allows one minute of the day and excludes the others one by one,
// so that a schedule of every minute takes too many steps from one fire to the next.
func (r *rig) putMinuteOfDay(name string, at time.Time) {
	hours, minutes := fmt.Sprintf("%d-%d", at.Hour()+1, 23), fmt.Sprintf("%d-%d", at.Minute()+1, 59)
	if at.Hour() > 0 {
		hours = fmt.Sprintf("0-%d,", at.Hour()-1) + hours
	}
	if at.Minute() > 0 {
		minutes = fmt.Sprintf("0-%d,", at.Minute()-1) + minutes
	}
	if at.Hour() == 23 {
		hours = "0-22"
	}
	if at.Minute() == 59 {
		minutes = "0-58"
	}
	r.putCalendar(name,
		schedule.CalendarRule{Expression: "0 * " + hours + " * * ?"},
		schedule.CalendarRule{Expression: fmt.Sprintf("0 %s %d * * ?", minutes, at.Hour())})
}

// T5: a trigger without a next fire within bounds shows that, and delays no other.
func TestTriggerWhoseNextFireTakesTooManyStepsIsInError(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("late %v", late), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			r.startAgo(2 * time.Minute) // a fire cannot be claimed before the database's clock has reached it
			fire := r.now.Add(time.Minute).Truncate(time.Minute)
			r.putCalendar("costly")
			r.declare("bad", "* * * * *", func(t *dispatcher.Trigger) {
				t.Calendar, t.MisfireAfter = "costly", input.Duration(time.Second)
			})
			r.declare("good", "* * * * *", func(t *dispatcher.Trigger) { t.MisfireAfter = input.Duration(time.Second) })
			r.putMinuteOfDay("costly", fire) // it allows the fire, and so it is accepted
			if r.now = fire; late {
				r.now = fire.Add(10 * time.Second)
				if err := r.chores.Round(t.Context(), r.now); err != nil {
					t.Fatal(err)
				}
			} else {
				r.poll(time.Second)
				r.claimOnce(t.Context(), r.now)
				for _, one := range r.broken.take() { // as brokenLoop does
					r.plan.Quarantine(t.Context(), one.DueTrigger, one.reason)
				}
			}
			for _, run := range r.settled() {
				if run.Job != "good" {
					t.Errorf("job %s ran", run.Job)
				}
			}
			bad := r.trigger("bad")
			if bad.State != dispatcher.TriggerError || !strings.Contains(bad.Error, "no fire was found in 5000 steps") {
				t.Errorf("the trigger is %s: %q, want an error that names the steps", bad.State, bad.Error)
			}
			if bad.NextFireTime == nil || !bad.NextFireTime.Equal(fire) {
				t.Errorf("its next fire is %v, want %v: it has not run", bad.NextFireTime, fire)
			}
			if good := r.trigger("good"); good.State != dispatcher.TriggerWaiting || !good.NextFireTime.After(fire) {
				t.Errorf("the other trigger is %s until %v, want it past its fire", good.State, good.NextFireTime)
			}
		})
	}
}
