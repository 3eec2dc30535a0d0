package dispatcher_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func TestConcurrencyIsChecked(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change     func(*dispatcher.Job)
		path, code string // none: it is valid
		slots      int
	}{
		"left out":          {func(*dispatcher.Job) {}, "", "", 0},
		"allow":             {func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyAllow }, "", "", 0},
		"allow with a most": {func(j *dispatcher.Job) { j.MaxConcurrency = 3 }, "", "", 3},
		"forbid":            {func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyForbid }, "", "", 1},
		"queue of several":  {func(j *dispatcher.Job) { j.ConcurrencyPolicy, j.MaxConcurrency = run.ConcurrencyQueue, 2 }, "", "", 2},
		"unknown":           {func(j *dispatcher.Job) { j.ConcurrencyPolicy = "Forbid" }, "/concurrency_policy", input.CodeEnum, 0},
		"negative":          {func(j *dispatcher.Job) { j.MaxConcurrency = -1 }, "/max_concurrency", input.CodeCountRange, 0},
		"too many":          {func(j *dispatcher.Job) { j.MaxConcurrency = 1001 }, "/max_concurrency", input.CodeCountRange, 0},
		"at each endpoint":  {func(j *dispatcher.Job) { callGroup(j, run.ConcurrencyReplace) }, "", "", 0},
		"unknown at endpoints": {
			func(j *dispatcher.Job) { callGroup(j, "serial") }, "/target/group/endpoint_concurrency", input.CodeEnum, 0,
		},
		"too long a queue": {func(j *dispatcher.Job) { j.QueueLimit = 1001 }, "/queue_limit", input.CodeCountRange, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := job(minutely)
			tt.change(&j)
			err := j.Validate()
			var problems input.Problems
			switch errors.As(err, &problems); {
			case tt.code == "" && (err != nil || j.Slots() != tt.slots):
				t.Errorf("faults %v and %d slots, want none and %d", err, j.Slots(), tt.slots)
			case tt.code != "" && (len(problems) != 1 || problems[0].Path != tt.path || problems[0].Code != tt.code):
				t.Errorf("faults %v, want %s at %s", err, tt.code, tt.path)
			}
		})
	}
}

// callGroup makes a job call an endpoint group.
func callGroup(j *dispatcher.Job, policy run.ConcurrencyPolicy) {
	group := &target.GroupTarget{Name: "workers", EndpointConcurrency: policy}
	group.SetDefaults()
	j.Target = target.Target{Group: group}
}

func TestOnlyGroupsHaveSlotsOfEndpoints(t *testing.T) {
	t.Parallel()
	j := job(minutely)
	for policy, want := range map[run.ConcurrencyPolicy]run.ConcurrencyPolicy{
		"": run.ConcurrencyAllow, run.ConcurrencyQueue: run.ConcurrencyQueue,
	} {
		if got := j.EndpointPolicy(); got != run.ConcurrencyAllow {
			t.Errorf("policy of a webhook = %s", got)
		}
		grouped := j
		if callGroup(&grouped, policy); grouped.EndpointPolicy() != want {
			t.Errorf("policy of %q = %s, want %s", policy, grouped.EndpointPolicy(), want)
		}
	}
}

// race is a job with runs that ask for slots in any order, as on real nodes: a run that has to wait asks again when
// it is woken, and the request of a cancelled run ends some time later.
type race struct {
	dispatcher.Job
	all   []dispatcher.Contender
	begun []time.Time // by instant, in the order in which they began
}

// step makes decisions and applies them.
func (r *race) step(t *rapid.T) {
	verdicts := r.Contend(r.all)
	if !slices.IsSortedFunc(r.all, func(a, b dispatcher.Contender) int { return a.ScheduledAt.Compare(b.ScheduledAt) }) {
		t.Fatal("contenders are not in order")
	}
	for i, verdict := range verdicts {
		c := &r.all[i]
		asked := c.Asks
		c.Asks = false
		switch verdict {
		case dispatcher.SlotStay:
			if asked {
				t.Fatalf("run %v asked and got no response", c)
			}
		case dispatcher.SlotBegin:
			c.Slot, c.Busy = true, true
			r.begun = append(r.begun, c.ScheduledAt)
		case dispatcher.SlotWait:
			c.Waits = true
		case dispatcher.SlotWake:
			c.Waits = false
		case dispatcher.SlotSkip, dispatcher.SlotCancel:
			c.Live, c.Waits = false, false
		}
	}
	r.all = slices.DeleteFunc(r.all, func(c dispatcher.Contender) bool { return !c.Live && !c.Busy })
	held, waiting := 0, 0
	for _, c := range r.all {
		if c.Slot {
			held++
		}
		if c.Waits {
			waiting++
		}
	}
	most := r.QueueLimit
	if r.ConcurrencyPolicy == run.ConcurrencyReplace {
		most = r.Slots() // the latest wait for the requests that they replace, regardless of the limit
	}
	if held > r.Slots() || waiting > most {
		t.Fatalf("%d runs have a slot and %d wait, want %d and %d at most", held, waiting, r.Slots(), most)
	}
}

func TestSlotsAreNeverExceededNorLeftUnused(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := race{Job: dispatcher.Job{
			JobSpec: dispatcher.JobSpec{
				JobPolicies: dispatcher.JobPolicies{
					ConcurrencyPolicy: rapid.SampledFrom([]run.ConcurrencyPolicy{
						run.ConcurrencyAllow, run.ConcurrencyForbid, run.ConcurrencyQueue, run.ConcurrencyReplace,
					}).Draw(t, "policy"),
					MaxConcurrency: rapid.IntRange(1, 3).Draw(t, "most"), QueueLimit: rapid.IntRange(1, 4).Draw(t, "limit"),
				},
			},
		}}
		latest := 0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			i := rapid.IntRange(0, max(len(r.all)-1, 0)).Draw(t, "run")
			switch action := rapid.IntRange(0, 3).Draw(t, "action"); {
			case action == 0 || len(r.all) == 0:
				latest++
				at := monday.Add(time.Duration(latest) * time.Second)
				r.all = append(r.all, dispatcher.Contender{Key: run.Key{TriggerID: 1, ScheduledAt: at,
					Kind: run.KindSchedule}, Live: true})
			case r.all[i].Slot: // its request ends, cancelled or not
				r.all = slices.Delete(r.all, i, i+1)
			case !r.all[i].Waits:
				r.all[i].Asks = true
			}
			r.step(t)
		}
		// Every remaining run gets its turn: none is stuck.
		for round := 0; len(r.all) > 0; round++ {
			if round > 200 {
				t.Fatalf("stuck with %+v", r.all)
			}
			r.all = slices.DeleteFunc(r.all, func(c dispatcher.Contender) bool { return c.Slot })
			for i := range r.all {
				r.all[i].Asks = !r.all[i].Waits
			}
			r.step(t)
		}
		// With several slots the order of asking decides, and replace does not know later runs that are over.
		ordered := r.MaxConcurrency == 1 && r.ConcurrencyPolicy != run.ConcurrencyReplace
		if ordered && !slices.IsSortedFunc(r.begun, time.Time.Compare) {
			t.Fatalf("%s: runs began in the order %v", r.ConcurrencyPolicy, r.begun)
		}
	})
}
