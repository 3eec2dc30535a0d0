package dispatcher

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// before returns the input of a PUT into an empty app.
func before() JobBefore {
	bounds := target.Bounds{}.WithDefaults("app")
	return JobBefore{Bounds: &bounds, Keys: true, Calendars: CompileCalendars(nil)}
}

// found returns the codes and pointers in an error.
func found(err error) (all []string) {
	var problems input.Problems
	problems.AddError("", err)
	for _, p := range problems {
		all = append(all, p.Code+" "+p.Path)
	}
	return all
}

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func TestPutDecidesAboutAJob(t *testing.T) {
	t.Parallel()
	secret := func(s target.Secret) func(*Job) {
		return func(j *Job) { j.Target.Webhook.Signing = &target.Signing{Secrets: map[string]target.Secret{"k": s}} }
	}
	for name, tt := range map[string]struct {
		before func(*JobBefore)
		job    func(*Job)
		want   []string
	}{
		"as it is": {},
		"one job too many": {before: func(b *JobBefore) { b.Used.Jobs = int64(b.Bounds.Quotas.Jobs) },
			want: []string{"bound_quota /name"}},
		"the last job": {before: func(b *JobBefore) { b.Used.Jobs = int64(b.Bounds.Quotas.Jobs) - 1 }},
		"outside its bounds": {before: func(b *JobBefore) { b.Bounds.Egress.Hosts = []string{} },
			want: []string{"bound_egress /target/webhook/url"}},
		"a missing group": {job: func(j *Job) {
			j.Target = target.Target{Group: &target.GroupTarget{Name: "g", Timeout: target.DefaultTimeout}}
		}, want: []string{"group_unknown /target/group/name"}},
		"a missing secret to keep": {job: secret(target.Secret{Stored: true}),
			want: []string{"secret_missing /target/webhook/signing/secrets/k/stored"}},
		"a value without keys": {before: func(b *JobBefore) { b.Keys = false },
			job:  secret(target.Secret{Value: input.NewSensitive("whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32)))}),
			want: []string{"secret_keys /target/webhook/signing/secrets/k/value"}},
		"followers that do not exist yet": {job: func(j *Job) { j.OnSuccess = &Follow{Jobs: []string{"a", "b"}} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, job := before(), validJob()
			if tt.before != nil {
				tt.before(&b)
			}
			if tt.job != nil {
				tt.job(&job)
			}
			_, err := b.Put(job, noon)
			if diff := gocmp.Diff(tt.want, found(err)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// A PUT of the stored job changes nothing, and every other PUT makes the next revision.
func TestPutOfUnchangedJobHasNoEffect(t *testing.T) {
	t.Parallel()
	b, job := before(), validJob()
	first, err := b.Put(job, noon)
	if err != nil || first.Jobs != 1 || first.Job.Revision != 1 {
		t.Fatalf("put a new job: %d more jobs, revision %d, %v", first.Jobs, first.Job.Revision, err)
	}
	b.Old = &first.Job
	if _, same := b.Unchanged(job); !same {
		t.Error("the same job counts as changed")
	}
	closed := before()
	closed.Old, closed.Bounds.Egress.Hosts = b.Old, []string{}
	if _, same := closed.Unchanged(job); same {
		t.Error("a job outside the bounds of its app counts as unchanged, so it is not refused")
	}
	job.Description = "another"
	if _, same := b.Unchanged(job); same {
		t.Error("a job with another description counts as unchanged")
	}
	second, err := b.Put(job, noon.Add(time.Minute))
	if err != nil || second.Jobs != 0 || second.Job.Revision != 2 || !second.Job.CreatedAt.Equal(noon) {
		t.Errorf("put it again: %d more jobs, revision %d of %v, %v", second.Jobs, second.Job.Revision, second.Job.CreatedAt, err)
	}
}

func TestAttachedJobContinuesItsEarlierRow(t *testing.T) {
	t.Parallel()
	declared, old := validJob(), validJob()
	old.CreatedAt = noon.Add(-time.Hour)
	other := declared
	other.Target = target.Target{SQS: &target.SQS{QueueARN: "arn:aws:sqs:eu-west-1:123456789012:q"}}
	for name, tt := range map[string]struct {
		before   AttachedBefore
		declared Job
		revision int64
		same     bool
		created  time.Time
	}{
		"new":               {AttachedBefore{}, declared, 1, false, noon},
		"declared again":    {AttachedBefore{Revision: 3, Old: &old}, declared, 4, true, old.CreatedAt},
		"changed":           {AttachedBefore{Revision: 3, Old: &old}, other, 4, false, old.CreatedAt},
		"deleted meanwhile": {AttachedBefore{Revision: 3}, declared, 4, false, noon},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := tt.before.Put(tt.declared, true, noon)
			if err != nil || c.Job.Revision != tt.revision || c.Same != tt.same || !c.Job.CreatedAt.Equal(tt.created) {
				t.Errorf("got revision %d, same %v, created at %v, %v; want %d, %v, %v", c.Job.Revision, c.Same, c.Job.CreatedAt, err,
					tt.revision, tt.same, tt.created)
			}
		})
	}
}

// graph returns the graph of followers on success, as jobs declare them by name, with the keys of jobs of app.
func graph(follows map[string][]string) FollowGraph {
	g := FollowGraph{IDs: map[string]int64{}, Names: map[int64]string{}, After: map[int64][]Follower{}, Leaders: map[int64][]Leader{}}
	key := func(name string) int64 {
		id := run.JobID("app", name)
		g.IDs[name], g.Names[id] = id, name
		return id
	}
	for _, name := range slices.Sorted(maps.Keys(follows)) {
		for _, follower := range follows[name] {
			g.After[key(name)] = append(g.After[key(name)], Follower{key(name), run.OnSuccess.Mask(), key(follower), run.KindChain, false})
			g.Leaders[key(follower)] = append(g.Leaders[key(follower)], Leader{key(name), key(follower), len(follows[name])})
		}
		slices.SortFunc(g.After[key(name)], func(a, b Follower) int { return cmp.Compare(a.ID, b.ID) })
	}
	return g
}

// chain returns a chain of jobs; each follows the previous one.
func chain(length int) map[string][]string {
	follows := map[string][]string{}
	for i := range length {
		follows[fmt.Sprintf("j%d", i)] = []string{fmt.Sprintf("j%d", i+1)}
	}
	return follows
}

func TestChainsAreBounded(t *testing.T) {
	t.Parallel()
	quotas := target.Bounds{}.WithDefaults("app").Quotas
	quotas.ChainRuns, quotas.ChainDepth = 10, 5
	for name, tt := range map[string]struct {
		graph   map[string][]string
		job     string
		follows []string
		want    string // in the message; empty if there is no problem
	}{
		"one after another": {chain(5), "name", []string{"j0"}, "6 runs would follow one after another"},
		"the deepest chain": {chain(4), "name", []string{"j0"}, ""},
		"two at a time":     {map[string][]string{"a": {"x", "y"}, "b": {"x", "y"}}, "name", []string{"a", "b"}, ""},
		"many at a time": {map[string][]string{"a": {"v", "w", "x", "y", "z"}},
			"name", []string{"a", "v"}, "up to 12 runs would follow one run of job \"name\""},
		"itself, through others": {map[string][]string{"a": {"b"}, "b": {"name"}},
			"name", []string{"a"}, "in a circle: name -> a -> b -> name"},
		"kept above quota": {map[string][]string{"name": {"j0"}, "j0": {"j1"}, "j1": {"j2"}, "j2": {"j3"}, "j3": {"j4"}, "j4": {"j5"}},
			"name", []string{"j0"}, ""},
		"behind a long chain": {map[string][]string{"j0": {"j1"}, "j1": {"j2"}, "j2": {"j3"}, "j3": {"name"}, "end": {"ends"}},
			"name", []string{"end"}, `by way of "j0" -> "j1" -> "j2" -> "j3" -> "name" -> "end" -> "ends"`},
		"a thousand and more": {chain(MostFollowing + 1), "name", []string{"j0"}, "more than 1000 jobs would follow job \"name\""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job := validJob()
			job.Name, job.OnSuccess = tt.job, &Follow{Jobs: tt.follows}
			followers, err := graph(tt.graph).FollowersOf(job, quotas)
			switch {
			case tt.want == "":
				if err != nil || len(followers) != len(tt.follows) {
					t.Errorf("got %d followers, %v", len(followers), err)
				}
			case err == nil || !strings.Contains(err.Error(), tt.want):
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// The jobs before a job are read only if more runs may follow it than before. Circles are refused first.
func TestGrowsReportsALargerFanOut(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		graph   map[string][]string
		follows []string
		want    bool
	}{
		"a first follower": {map[string][]string{"a": {"b"}}, []string{"a"}, true},
		"as before":        {map[string][]string{"name": {"a"}, "a": {"b"}}, []string{"a"}, false},
		"a shorter chain":  {map[string][]string{"name": {"a"}, "a": {"b"}}, []string{"b"}, false},
		"one more":         {map[string][]string{"name": {"a"}, "a": {"b"}, "c": {"d"}}, []string{"a", "c"}, true},
		"a circle":         {map[string][]string{"a": {"b"}, "b": {"name"}}, []string{"a"}, false},
		"a missing job":    {map[string][]string{"a": {"b"}}, []string{"none"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job := validJob()
			job.OnSuccess = &Follow{Jobs: tt.follows}
			if got := graph(tt.graph).Grows(job); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestPauseDecides(t *testing.T) {
	t.Parallel()
	b, job := before(), validJob()
	job.Triggers = map[string]Trigger{}
	tick := Trigger{}
	tick.SetDefaults()
	tick.Expression = "* * * * *"
	job.Triggers["tick"] = tick
	put, err := b.Put(job, noon)
	if err != nil {
		t.Fatal(err)
	}
	b.Old = &put.Job
	by := input.Change{Actor: "ann", Reason: "freeze"}
	if _, same := b.Paused("", false); !same {
		t.Error("a resume of what is not paused changes it")
	}
	paused, err := b.Pause("tick", true, by, noon)
	if one := paused.Job.Triggers["tick"]; err != nil || !one.Paused || one.PausedBy != "ann" || paused.Was || paused.Job.Paused {
		t.Errorf("pause a trigger: %+v, was %v, job paused %v, %v", one.Pause, paused.Was, paused.Job.Paused, err)
	}
	if b.Old.Triggers["tick"].Paused {
		t.Error("the decision changed what it was decided from")
	}
	if _, err := b.Pause("tock", true, by, noon); err == nil || !strings.Contains(err.Error(), "tock") {
		t.Errorf("pause a trigger that there is not: %v", err)
	}
	by.Until = new(noon)
	if _, err := b.Pause("", true, by, noon); len(found(err)) != 1 {
		t.Errorf("pause until now: %v", err)
	}
	wrong := b.Old.Triggers["tick"]
	wrong.State = TriggerError
	b.Old.Triggers["tick"] = wrong
	resumed, err := b.Pause("", false, input.Change{}, noon)
	if one := resumed.Job.Triggers["tick"]; err != nil || !resumed.Restarted || one.State != TriggerWaiting || one.NextFireTime == nil {
		t.Errorf("resume what is in error: restarted %v, %+v, %v", resumed.Restarted, one, err)
	}
}

// An unused calendar is removed, together with calendars that were kept only for it.
func TestDeleteDecidesAboutACalendar(t *testing.T) {
	t.Parallel()
	calendar := func(name string, kept bool, bases ...string) Calendar {
		c := Calendar{App: "crm", Name: name, CalendarSpec: CalendarSpec{Bases: bases}}
		c.Revision = 1
		if kept {
			c.RemovalRequestedAt = &noon
		}
		return c
	}
	trigger := Users{First: `job "j" trigger "t"`, Count: 2}
	for name, tt := range map[string]struct {
		all      []Calendar
		triggers map[string]Users
		wait     bool
		gone     []string
		why      string
	}{
		"a missing calendar": {why: `calendar "crm/a": not found`},
		"unused":             {all: []Calendar{calendar("a", false)}, gone: []string{"a"}},
		"a base of another": {all: []Calendar{calendar("a", false), calendar("b", false, "a")},
			why: `calendar "a" is used by calendar "b": in use`},
		"named by triggers": {all: []Calendar{calendar("a", false)}, triggers: map[string]Users{"a": trigger},
			why: `calendar "a" is used by job "j" trigger "t" and 1 more: in use`},
		"it waits":       {all: []Calendar{calendar("a", false)}, triggers: map[string]Users{"a": trigger}, wait: true},
		"its bases stay": {all: []Calendar{calendar("a", false, "b"), calendar("b", false)}, gone: []string{"a"}},
		"with calendars kept for it": {all: []Calendar{calendar("a", false, "b"), calendar("b", true, "c"), calendar("c", true)},
			gone: []string{"a", "b", "c"}},
		"a used kept calendar": {all: []Calendar{calendar("a", false, "b"), calendar("b", true)}, triggers: map[string]Users{"b": trigger},
			gone: []string{"a"}},
		"a kept calendar with a second user": {all: []Calendar{calendar("a", false, "b"), calendar("b", true), calendar("d", false, "b")},
			gone: []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gone, err := CalendarBefore{All: tt.all, Triggers: tt.triggers}.Delete("crm", "a", tt.wait)
			var names []string
			for _, c := range gone {
				names = append(names, c.Name)
			}
			if !slices.Equal(names, tt.gone) || (tt.why != "") != (err != nil) || err != nil && err.Error() != tt.why {
				t.Errorf("deletes %v, %v; want %v, %s", names, err, tt.gone, tt.why)
			}
		})
	}
}

func TestRegisterDecidesAboutAnEndpoint(t *testing.T) {
	t.Parallel()
	bounds := target.Bounds{}.WithDefaults("app")
	takes := target.EndpointGroup{Name: "g", EndpointGroupSpec: target.EndpointGroupSpec{
		Registration: &target.Registration{Networks: []string{"10.0.0.0/8"}, Ports: []int{80}}}}
	declares := takes
	declares.Endpoints = map[string]target.StaticEndpoint{"e": {URL: "http://10.0.0.2"}}
	for name, tt := range map[string]struct {
		before   EndpointBefore
		url      string
		want     []string
		conflict bool
	}{
		"accepted": {before: EndpointBefore{Group: takes, Others: target.MaxEndpoints - 1}, url: "http://10.0.0.1"},
		"one too many": {before: EndpointBefore{Group: takes, Others: target.MaxEndpoints}, url: "http://10.0.0.1",
			want: []string{"too_many "}},
		"another network":     {before: EndpointBefore{Group: takes}, url: "http://192.168.0.1", want: []string{"egress_denied /url"}},
		"a declared endpoint": {before: EndpointBefore{Group: declares}, url: "http://10.0.0.1", conflict: true},
		"no registrations":    {before: EndpointBefore{}, url: "http://10.0.0.1", conflict: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.before.Bounds = &bounds
			err := tt.before.Register(target.Endpoint{ID: "e", StaticEndpoint: target.StaticEndpoint{URL: tt.url}})
			if errors.Is(err, ErrConflict) != tt.conflict {
				t.Errorf("got %v, want a conflict: %v", err, tt.conflict)
			}
			if diff := gocmp.Diff(tt.want, found(err)); !tt.conflict && diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}
