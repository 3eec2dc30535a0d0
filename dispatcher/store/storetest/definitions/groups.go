package storetest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// groupTests are the tests of endpoint groups.
func groupTests() tests {
	return tests{
		"groups are created, replaced, listed and deleted":        testGroups,
		"a group that a job names cannot be deleted":              testGroupUsers,
		"an app has at most so many groups":                       testMaxGroups,
		"endpoints register, stay by heartbeats and expire":       testRegistrations,
		"registrations are refused that a group does not take":    testRefusedRegistrations,
		"a group has at most so many endpoints":                   testMaxEndpoints,
		"a drain of an endpoint stays while it is there":          testDrainedEndpoints,
		"a changed group keeps the endpoints that it still takes": testChangedGroupEndpoints,
		"a heartbeat notifies nobody":                             testHeartbeatsAreQuiet,
		"concurrent registrations keep to the bound of a group":   testEndpointRace,
		"an app with groups is not empty":                         testAppWithGroups,
	}
}

// workers is a group that takes registrations and declares an endpoint.
func workers() target.EndpointGroup {
	return target.EndpointGroup{
		App: "shop", Name: "workers", EndpointGroupSpec: target.EndpointGroupSpec{Description: "night shift", Path: "/jobs", Strategy: "first",
			Endpoints: map[string]target.StaticEndpoint{"a": {URL: "https://a.example.com", Labels: input.Labels{"zone": "x"}}},
			Registration: &target.Registration{
				Networks: []string{"10.0.0.0/8"}, Ports: []int{8080}, ExpireAfter: input.Duration(time.Minute + 30*time.Second)},
			DNS:         map[string]target.DNSMembers{"all": {Name: "workers.internal", Port: 8080}, "more": {Name: "_a._tcp.b", Type: "SRV"}},
			HealthCheck: &target.HealthCheck{Path: "/health"}, EjectAfter: 7},
	}
}

func (f *fixture) putGroup(g target.EndpointGroup, now time.Time) target.EndpointGroup {
	f.Helper()
	stored, _, err := f.PutGroup(f.Context(), g, at(now))
	f.must(err)
	read, err := f.Group(f.Context(), g.App, g.Name)
	f.must(err)
	if diff := cmp.Diff(read, stored); diff != "" {
		f.Error("the group as PutGroup returned it (-read back +got):\n" + diff)
	}
	return stored
}

// endpoint returns one that registers itself.
func endpoint(id, url string) target.Endpoint {
	return target.Endpoint{ID: id, StaticEndpoint: target.StaticEndpoint{URL: url}}
}

func (f *fixture) registerEndpoint(e target.Endpoint, now time.Time) (stored target.Endpoint, created bool) {
	f.Helper()
	stored, created, err := f.RegisterEndpoint(f.Context(), "shop", "workers", e, now, at(now))
	f.must(err)
	return stored, created
}

// endpoints returns the ids of the endpoints of the group at now, as people and as nodes see them.
func (f *fixture) endpoints(now time.Time) string {
	f.Helper()
	list, err := f.Endpoints(f.Context(), "shop", "workers", now, input.Page{Limit: 1000})
	f.must(err)
	version, err := f.GroupVersion(f.Context(), "shop", "workers", now)
	f.must(err)
	if diff := cmp.Diff(list, version.Live); diff != "" {
		f.Error("endpoints as nodes get them (-listed +got):\n" + diff)
	}
	ids := make([]string, len(list))
	for i, e := range list {
		ids[i] = e.ID
	}
	return strings.Join(ids, " ")
}

func testGroups(t *testing.T, f *fixture) {
	ctx := t.Context()
	stored, created, err := f.PutGroup(ctx, workers(), input.Change{IfAbsent: true, Now: t0})
	f.must(err)
	want := workers().Resolved()
	want.Revision, want.CreatedAt, want.UpdatedAt = 1, t0, t0
	if diff := cmp.Diff(want, stored); diff != "" || !created {
		t.Errorf("a new group: created %v (-want +got):\n%s", created, diff)
	}
	if stored.Endpoints["a"].Weight != 1 || stored.Registration.Heartbeat != target.DefaultEndpointHeartbeat ||
		stored.Probe.AlivePath == "" || stored.DNS["all"].Type != target.DNSTypeA || stored.HealthCheck.UnhealthyThreshold != 3 {
		t.Errorf("a new group is not resolved: %+v", stored)
	}
	_, _, err = f.PutGroup(ctx, workers(), input.Change{IfAbsent: true, Now: t0})
	wantError(t, "put if absent", err, dispatcher.ErrPrecondition)
	_, _, err = f.PutGroup(ctx, workers(), input.Change{IfRevision: 7, Now: t0})
	wantError(t, "put of another revision", err, dispatcher.ErrPrecondition)
	_, _, err = f.PutGroup(ctx, target.EndpointGroup{App: "none", Name: "workers"}, at(t0))
	wantError(t, "put into no app", err, dispatcher.ErrNotFound)
	for what, read := range map[string]func() error{
		"read":      func() error { _, err := f.Group(ctx, "shop", "none"); return err },
		"list":      func() error { _, err := f.Groups(ctx, "none", input.Page{Limit: 1}); return err },
		"endpoints": func() error { _, err := f.Endpoints(ctx, "shop", "none", t0, input.Page{Limit: 1}); return err },
		"version":   func() error { _, err := f.GroupVersion(ctx, "shop", "none", t0); return err },
		"delete":    func() error { return f.DeleteGroup(ctx, "shop", "none", at(t0)) },
	} {
		wantError(t, what+" of none", read(), dispatcher.ErrNotFound)
	}

	later := t0.Add(time.Hour)
	f.putGroup(target.EndpointGroup{App: "shop", Name: "apes"}, t0)
	page, err := f.Groups(ctx, "shop", input.Page{Limit: 10, Cursor: "apes"})
	f.must(err)
	if diff := cmp.Diff([]target.EndpointGroup{want}, page); diff != "" {
		t.Error("page after apes (-want +got):\n" + diff)
	}
	before := len(f.auditLog(access.AuditQuery{}))
	for range 2 {
		if again := f.putGroup(workers(), later); again.Revision != 1 {
			t.Errorf("put as it is stored: revision %d, want 1", again.Revision)
		}
	}
	if more := len(f.auditLog(access.AuditQuery{})) - before; more != 0 {
		t.Errorf("put as it is stored: %d entries of the audit log, want none", more)
	}
	edited := workers()
	edited.Strategy = "random"
	if got := f.putGroup(edited, later); got.Revision != 2 || !got.CreatedAt.Equal(t0) || !got.UpdatedAt.Equal(later) {
		t.Errorf("edited = %+v, want revision 2", got)
	}
	wantError(t, "delete of another revision", f.DeleteGroup(ctx, "shop", "workers", input.Change{IfRevision: 1, Now: later}),
		dispatcher.ErrPrecondition)
	f.must(f.DeleteGroup(ctx, "shop", "workers", input.Change{IfRevision: 2, Now: later}))
	if again := f.putGroup(workers(), later); again.Revision != 3 || !again.CreatedAt.Equal(later) {
		t.Errorf("declared again = %+v, want revision 3", again)
	}
	entries := f.auditLog(access.AuditQuery{Subject: "group workers"})
	if len(entries) != 4 || entries[1].Action != "delete" || !strings.Contains(string(entries[1].Before), `"random"`) {
		t.Errorf("audit log = %+v", entries)
	}
}

// jobOf returns a job whose target is the group.
func jobOf(name, group string) dispatcher.Job {
	j := job(name, nil)
	j.Target = target.Target{Group: &target.GroupTarget{
		Name: group, Path: "/nightly", Method: "POST", Timeout: target.DefaultTimeout}}
	return j
}

func testGroupUsers(t *testing.T, f *fixture) {
	ctx := t.Context()
	_, _, err := f.PutJob(ctx, jobOf("sync", "workers"), at(t0))
	f.wantProblem("job of a group that is not there", err, "group_unknown /target/group/name")
	f.putGroup(workers(), t0)
	f.put(jobOf("sync", "workers"), t0)
	f.put(jobOf("mail", "workers"), t0)
	err = f.DeleteGroup(ctx, "shop", "workers", at(t0))
	wantError(t, "delete while jobs name it", err, dispatcher.ErrInUse)
	if want := `group "workers" is used by job "mail" and 1 more: in use`; err == nil || err.Error() != want {
		t.Errorf("delete while jobs name it = %v, want %s", err, want)
	}
	f.put(job("sync", nil), t0)
	f.must(f.DeleteJob(ctx, "shop", "mail", at(t0)))
	f.must(f.DeleteGroup(ctx, "shop", "workers", at(t0)))
}

func testMaxGroups(t *testing.T, f *fixture) {
	f.inCheck()
	put := func(i int) error {
		_, _, err := f.PutGroup(t.Context(), target.EndpointGroup{App: "shop", Name: fmt.Sprintf("g%d", i)}, at(t0))
		return err
	}
	for i := range target.MaxGroups {
		f.must(put(i))
	}
	f.wantProblem("one group too many", put(target.MaxGroups), "too_many")
	f.must(put(0))
}

func testRegistrations(t *testing.T, f *fixture) {
	f.putGroup(workers(), t0)
	stored, created := f.registerEndpoint(endpoint("b", "http://10.0.0.2:8080"), t0)
	expires := t0.Add(90 * time.Second)
	want := target.Endpoint{
		ID: "b", StaticEndpoint: target.StaticEndpoint{URL: "http://10.0.0.2:8080", Weight: 1},
		Source: target.EndpointRegistered, RegisteredAt: t0, ExpiresAt: &expires,
	}
	if diff := cmp.Diff(want, stored); diff != "" || !created {
		t.Errorf("registered: created %v (-want +got):\n%s", created, diff)
	}
	for range 10 { // each long before the end of the one before
		stored, created = f.registerEndpoint(endpoint("b", "http://10.0.0.2:8080"), expires.Add(-time.Millisecond))
		want.ExpiresAt = new(expires.Add(90*time.Second - time.Millisecond))
		if diff := cmp.Diff(want, stored); diff != "" || created {
			t.Fatalf("renewed: created %v (-want +got):\n%s", created, diff)
		}
		expires = *want.ExpiresAt
	}
	moved := endpoint("b", "http://10.0.0.3:8080/x")
	moved.Weight, moved.Backup, moved.Labels = 7, true, input.Labels{"zone": "y"}
	want.StaticEndpoint = moved.StaticEndpoint
	stored, created = f.registerEndpoint(moved, expires.Add(-90*time.Second))
	if diff := cmp.Diff(want, stored); diff != "" || created {
		t.Errorf("changed: created %v (-want +got):\n%s", created, diff)
	}
	if got := f.endpoints(expires.Add(-time.Millisecond)); got != "a b" {
		t.Errorf("endpoints before it expires = %q, want a b", got)
	}
	if got := f.endpoints(expires); got != "a" {
		t.Errorf("endpoints when it has expired = %q, want a", got)
	}
	for i, want := range []int{0, 1, 0} { // early, in time, again
		expired, err := f.ExpireEndpoints(t.Context(), 10, expires.Add(time.Duration(min(i, 1)-1)*time.Millisecond))
		f.must(err)
		if expired != want {
			t.Errorf("expired in step %d = %d, want %d", i, expired, want)
		}
	}
	_, created = f.registerEndpoint(moved, expires)
	if !created {
		t.Error("one that registers after it expired was not created")
	}
	f.must(f.DeregisterEndpoint(t.Context(), "shop", "workers", "b", at(expires)))
	for _, id := range []string{"b", "a"} {
		wantError(t, "deregister "+id, f.DeregisterEndpoint(t.Context(), "shop", "workers", id, at(expires)), dispatcher.ErrNotFound)
	}
}

func testRefusedRegistrations(t *testing.T, f *fixture) {
	ctx := t.Context()
	f.putGroup(workers(), t0)
	f.putGroup(target.EndpointGroup{App: "shop", Name: "closed"}, t0)
	for what, tt := range map[string]struct {
		group string
		e     target.Endpoint
		want  string
		is    error
	}{
		"another network":  {"workers", endpoint("b", "http://11.0.0.1:8080"), "egress_denied /url", nil},
		"another port":     {"workers", endpoint("b", "http://10.0.0.1:8081"), "egress_denied /url", nil},
		"loopback":         {"workers", endpoint("b", "http://127.0.0.1:8080"), "egress_denied /url", nil},
		"a declared id":    {"workers", endpoint("a", "http://10.0.0.1:8080"), "", dispatcher.ErrConflict},
		"no registrations": {"closed", endpoint("b", "http://10.0.0.1:8080"), "", dispatcher.ErrConflict},
		"no group":         {"none", endpoint("b", "http://10.0.0.1:8080"), "", dispatcher.ErrNotFound},
		"no name":          {"workers", endpoint("", "http://10.0.0.1:8080"), "name_format /id", nil},
	} {
		_, _, err := f.RegisterEndpoint(ctx, "shop", tt.group, tt.e, t0, at(t0))
		if tt.is != nil {
			wantError(t, what, err, tt.is)
		} else {
			f.wantProblem(what, err, tt.want)
		}
	}
	if got := f.endpoints(t0); got != "a" {
		t.Errorf("endpoints = %q, want a", got)
	}
}

func testMaxEndpoints(t *testing.T, f *fixture) {
	f.inCheck()
	f.putGroup(workers(), t0)
	for i := range target.MaxEndpoints - 1 {
		f.registerEndpoint(endpoint(fmt.Sprintf("e%03d", i), "http://10.0.0.2:8080"), t0)
	}
	register := func(id string, now time.Time) error {
		_, _, err := f.RegisterEndpoint(t.Context(), "shop", "workers", endpoint(id, "http://10.0.0.3:8080"), now, at(now))
		return err
	}
	f.wantProblem("one endpoint too many", register("late", t0), "too_many")
	f.must(register("e007", t0)) // it is there
	more := workers()
	more.Endpoints["more"] = target.StaticEndpoint{URL: "https://b.example.com"}
	_, _, err := f.PutGroup(t.Context(), more, at(t0))
	f.wantProblem("one declared endpoint too many", err, "too_many /endpoints")
	then := t0.Add(90 * time.Second) // those that have expired do not count, although they are still in the table
	f.must(register("late", then))
	expired, err := f.ExpireEndpoints(t.Context(), 300, then)
	f.must(err)
	if expired != 300 {
		t.Errorf("expired = %d, want the limit of 300", expired)
	}
}

// Many register at once where there is room for few, while others send heartbeats and what has expired is removed.
func testEndpointRace(t *testing.T, f *fixture) {
	f.inCheck()
	f.putGroup(workers(), t0)
	const room = 3
	for i := range target.MaxEndpoints - 1 - room {
		f.registerEndpoint(endpoint(fmt.Sprintf("e%03d", i), "http://10.0.0.2:8080"), t0)
	}
	var all sync.WaitGroup
	taken, now := make(chan bool, 2*room+4), t0.Add(time.Minute)
	register := func(id string) {
		e := endpoint(id, "http://10.0.0.2:8080")
		_, created, err := f.RegisterEndpoint(t.Context(), "shop", "workers", e, now, at(now))
		if problems := strings.Join(problemCodes(err), ","); err != nil && problems != "too_many" {
			t.Errorf("register %s: %v", id, err)
		}
		taken <- created
	}
	for i := range 2 * room {
		all.Go(func() { register(fmt.Sprintf("late%d", i)) })
	}
	for i := range 4 {
		all.Go(func() { register(fmt.Sprintf("e%03d", i)) })
	}
	all.Go(func() {
		if expired, err := f.ExpireEndpoints(t.Context(), 1000, now); err != nil || expired != 0 {
			t.Errorf("expired %d, %v, want none", expired, err)
		}
	})
	all.Wait()
	close(taken)
	created := 0
	for is := range taken {
		if is {
			created++
		}
	}
	if created != room {
		t.Errorf("%d of %d took the %d places", created, 2*room, room)
	}
	then := t0.Add(90 * time.Second) // all but those that sent a heartbeat and those that came are gone
	for range 2 {
		all.Go(func() {
			if _, err := f.ExpireEndpoints(t.Context(), 1000, then); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := len(strings.Fields(f.endpoints(t0))); got != 1+4+room {
		t.Errorf("%d endpoints are left, want the declared one, 4 with a heartbeat and %d", got, room)
	}
}

func testDrainedEndpoints(t *testing.T, f *fixture) {
	ctx := t.Context()
	f.putGroup(workers(), t0)
	b := endpoint("b", "http://10.0.0.2:8080")
	f.registerEndpoint(b, t0)
	drain := func(id string, draining bool, now time.Time) {
		t.Helper()
		e, err := f.DrainEndpoint(ctx, "shop", "workers", id, draining, at(now))
		f.must(err)
		if e.ID != id || e.Draining != draining {
			t.Errorf("drained = %+v", e)
		}
	}
	for _, id := range []string{"a", "b", "b"} {
		drain(id, true, t0)
	}
	stored, _ := f.registerEndpoint(b, t0)
	moved, _ := f.registerEndpoint(endpoint("b", "http://10.0.0.3:8080"), t0)
	edited := workers()
	edited.Description = "edited"
	f.putGroup(edited, t0)
	declared, err := f.Endpoints(ctx, "shop", "workers", t0, input.Page{Limit: 1})
	f.must(err)
	if !stored.Draining || !moved.Draining || len(declared) != 1 || !declared[0].Draining {
		t.Errorf("draining after a heartbeat %v, a change %v, and a change of the group %+v", stored.Draining, moved.Draining, declared)
	}
	drain("a", false, t0)
	entries := f.auditLog(access.AuditQuery{})
	var actions []string
	for _, e := range entries {
		if strings.HasPrefix(e.Subject, "group workers endpoint ") {
			actions = append(actions, e.Action+" "+e.Subject)
		}
	}
	if diff := cmp.Diff([]string{"resume group workers endpoint a", "drain group workers endpoint b", "drain group workers endpoint a"},
		actions); diff != "" {
		t.Error("audit log (-want +got):\n" + diff)
	}
	then := t0.Add(90 * time.Second)
	for _, id := range []string{"b", "none"} {
		_, err = f.DrainEndpoint(ctx, "shop", "workers", id, true, at(then))
		wantError(t, "drain of "+id+", which is not there any more", err, dispatcher.ErrNotFound)
	}
	if stored, _ = f.registerEndpoint(b, then); stored.Draining {
		t.Error("an endpoint that comes back drains")
	}
}

func testChangedGroupEndpoints(t *testing.T, f *fixture) {
	f.putGroup(workers(), t0)
	for id, url := range map[string]string{"b": "http://10.1.0.1:8080", "c": "http://10.2.0.1:8080", "d": "http://worker:8080"} {
		f.registerEndpoint(endpoint(id, url), t0)
	}
	narrow := workers()
	narrow.Endpoints = map[string]target.StaticEndpoint{"b": {URL: "https://b.example.com"}}
	narrow.Registration.Networks, narrow.Registration.ExpireAfter = []string{"10.2.0.0/16"}, input.Duration(time.Hour)
	f.putGroup(narrow, t0.Add(time.Minute))
	if got := f.endpoints(t0.Add(time.Minute)); got != "b c d" {
		t.Errorf("endpoints of a narrower group = %q, want b, which it declares, c and d", got)
	}
	if got := f.endpoints(t0.Add(90 * time.Second)); got != "b" {
		t.Errorf("endpoints when the old time has passed = %q, want b", got)
	}
	stored, _ := f.registerEndpoint(endpoint("c", "http://10.2.0.1:8080"), t0.Add(time.Minute))
	if want := t0.Add(time.Hour + time.Minute); !stored.ExpiresAt.Equal(want) {
		t.Errorf("a heartbeat after a change lasts until %v, want %v", stored.ExpiresAt, want)
	}
	narrow.Registration.Ports = []int{9090}
	f.putGroup(narrow, t0.Add(time.Minute))
	if got := f.endpoints(t0.Add(time.Minute)); got != "b" {
		t.Errorf("endpoints of a group with another port = %q, want b", got)
	}
	narrow.Registration = nil
	f.putGroup(narrow, t0.Add(time.Minute))
	if got := f.endpoints(t0.Add(time.Minute)); got != "b" {
		t.Errorf("endpoints of a group without registrations = %q, want b", got)
	}
}

func testHeartbeatsAreQuiet(t *testing.T, f *fixture) {
	f.putGroup(workers(), t0)
	b := endpoint("b", "http://10.0.0.2:8080")
	f.registerEndpoint(b, t0)
	entries := len(f.auditLog(access.AuditQuery{}))
	notifications := f.listen()
	f.registerEndpoint(b, t0.Add(time.Second))
	moved := endpoint("b", "http://10.0.0.3:8080")
	f.registerEndpoint(moved, t0.Add(time.Second))
	want := dispatcher.Notification{App: "shop", Group: "workers"}
	// The heartbeat came first, so it would be heard first.
	wantNext := func(what string) {
		t.Helper()
		if got := notifications.next(t, what); got != want {
			t.Errorf("%s: notification %+v, want %+v", what, got, want)
		}
	}
	wantNext("change")
	f.must(f.DrainEndpoint(t.Context(), "shop", "workers", "b", true, at(t0)))
	wantNext("drain")
	expired, err := f.ExpireEndpoints(t.Context(), 10, t0.Add(time.Hour))
	f.must(err)
	if expired != 1 {
		t.Errorf("expired = %d, want 1", expired)
	}
	wantNext("expiry")
	f.registerEndpoint(b, t0)
	wantNext("registration")
	f.must(f.DeregisterEndpoint(t.Context(), "shop", "workers", "b", at(t0)))
	wantNext("deregistration")
	if more := len(f.auditLog(access.AuditQuery{})) - entries; more != 1 {
		t.Errorf("%d entries of the audit log, want that of the drain only", more)
	}
	for len(notifications) > 0 {
		if got := <-notifications; !got.Adopt {
			t.Errorf("further notification %+v", got)
		}
	}
}

func testAppWithGroups(t *testing.T, f *fixture) {
	f.putGroup(workers(), t0)
	wantError(t, "delete of an app with a group", f.DeleteApp(t.Context(), "shop", at(t0)), dispatcher.ErrNotEmpty)
	f.must(f.DeleteGroup(t.Context(), "shop", "workers", at(t0)))
	f.must(f.DeleteApp(t.Context(), "shop", at(t0)))
}
