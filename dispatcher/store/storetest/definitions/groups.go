package definitions

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// groupTests are the tests of endpoint groups.
func groupTests() tests {
	return tests{
		"groups are created, replaced, listed and deleted":          testGroups,
		"a group that a job names cannot be deleted":                testGroupUsers,
		"a group is deleted after its last use":                     testGroupWhenUnused,
		"an app has at most so many groups":                         testMaxGroups,
		"endpoints register, stay by heartbeats and expire":         testRegistrations,
		"registrations that a group does not accept are refused":    testRefusedRegistrations,
		"a group has at most so many endpoints":                     testMaxEndpoints,
		"an endpoint keeps its drain while it exists":               testDrainedEndpoints,
		"a changed group keeps the endpoints that it still accepts": testChangedGroupEndpoints,
		"a heartbeat sends no notification":                         testHeartbeatsAreQuiet,
		"concurrent registrations keep to the bound of a group":     testEndpointRace,
		"an app with groups is not empty":                           testAppWithGroups,
	}
}

// endpoints returns the ids of the endpoints of the group at now, as seen by users and by nodes.
func (f *wing) endpoints(now time.Time) string {
	f.Helper()
	list, err := f.Endpoints(f.Context(), "shop", "workers", now, input.Page{Limit: 1000})
	f.Must(err)
	version, err := f.GroupVersion(f.Context(), "shop", "workers", now)
	f.Must(err)
	if diff := cmp.Diff(list, version.Live); diff != "" {
		f.Error("endpoints as nodes get them (-listed +got):\n" + diff)
	}
	ids := make([]string, len(list))
	for i, e := range list {
		ids[i] = e.ID
	}
	return strings.Join(ids, " ")
}

func testGroups(t *testing.T, f *wing) {
	ctx := t.Context()
	stored, created, err := f.PutGroup(ctx, fixture.Workers(), input.Change{IfAbsent: true, Now: fixture.T0})
	f.Must(err)
	want := fixture.Workers().Resolved()
	want.Revision, want.CreatedAt, want.UpdatedAt = 1, fixture.T0, fixture.T0
	if diff := cmp.Diff(want, stored); diff != "" || !created {
		t.Errorf("a new group: created %v (-want +got):\n%s", created, diff)
	}
	if stored.Endpoints["a"].Weight != 1 || stored.Registration.Heartbeat != target.DefaultEndpointHeartbeat ||
		stored.Probe.AlivePath == "" || stored.DNS["all"].Type != target.DNSTypeA || stored.HealthCheck.UnhealthyThreshold != 3 {
		t.Errorf("a new group is not resolved: %+v", stored)
	}
	_, _, err = f.PutGroup(ctx, fixture.Workers(), input.Change{IfAbsent: true, Now: fixture.T0})
	fixture.WantError(t, "put if absent", err, dispatcher.ErrPrecondition)
	_, _, err = f.PutGroup(ctx, fixture.Workers(), input.Change{IfRevision: 7, Now: fixture.T0})
	fixture.WantError(t, "put of another revision", err, dispatcher.ErrPrecondition)
	_, _, err = f.PutGroup(ctx, target.EndpointGroup{App: "none", Name: "workers"}, fixture.At(fixture.T0))
	fixture.WantError(t, "put into no app", err, dispatcher.ErrNotFound)
	for what, read := range map[string]func() error{
		"read":      func() error { _, err := f.Group(ctx, "shop", "none"); return err },
		"list":      func() error { _, err := f.Groups(ctx, "none", input.Page{Limit: 1}); return err },
		"endpoints": func() error { _, err := f.Endpoints(ctx, "shop", "none", fixture.T0, input.Page{Limit: 1}); return err },
		"version":   func() error { _, err := f.GroupVersion(ctx, "shop", "none", fixture.T0); return err },
		"delete":    func() error { return f.DeleteGroup(ctx, "shop", "none", fixture.At(fixture.T0)) },
	} {
		fixture.WantError(t, what+" of none", read(), dispatcher.ErrNotFound)
	}

	later := fixture.T0.Add(time.Hour)
	f.DeclareGroup(target.EndpointGroup{App: "shop", Name: "apes"}, fixture.T0)
	page, err := f.Groups(ctx, "shop", input.Page{Limit: 10, Cursor: "apes"})
	f.Must(err)
	if diff := cmp.Diff([]target.EndpointGroup{want}, page); diff != "" {
		t.Error("page after apes (-want +got):\n" + diff)
	}
	before := len(f.AuditLog(access.AuditQuery{}))
	for range 2 {
		if again := f.DeclareGroup(fixture.Workers(), later); again.Revision != 1 {
			t.Errorf("put as it is stored: revision %d, want 1", again.Revision)
		}
	}
	if more := len(f.AuditLog(access.AuditQuery{})) - before; more != 0 {
		t.Errorf("put as it is stored: %d entries of the audit log, want none", more)
	}
	edited := fixture.Workers()
	edited.Strategy = "random"
	if got := f.DeclareGroup(edited, later); got.Revision != 2 || !got.CreatedAt.Equal(fixture.T0) || !got.UpdatedAt.Equal(later) {
		t.Errorf("edited = %+v, want revision 2", got)
	}
	fixture.WantError(t, "delete of another revision", f.DeleteGroup(ctx, "shop", "workers", input.Change{IfRevision: 1, Now: later}),
		dispatcher.ErrPrecondition)
	f.Must(f.DeleteGroup(ctx, "shop", "workers", input.Change{IfRevision: 2, Now: later}))
	if again := f.DeclareGroup(fixture.Workers(), later); again.Revision != 3 || !again.CreatedAt.Equal(later) {
		t.Errorf("declared again = %+v, want revision 3", again)
	}
	entries := f.AuditLog(access.AuditQuery{Subject: "group workers"})
	if len(entries) != 4 || entries[1].Action != "delete" || !strings.Contains(string(entries[1].Before), `"random"`) {
		t.Errorf("audit log = %+v", entries)
	}
}

// jobOf returns a job with the group as its target.
func jobOf(name, group string) dispatcher.Job {
	j := fixture.Job(name, nil)
	j.Target = target.Target{Group: &target.GroupTarget{
		Name: group, Path: "/nightly", Method: "POST", Timeout: target.DefaultTimeout}}
	return j
}

func testGroupUsers(t *testing.T, f *wing) {
	ctx := t.Context()
	_, _, err := f.PutJob(ctx, jobOf("sync", "workers"), fixture.At(fixture.T0))
	f.WantProblem("job of a group that is not there", err, "group_unknown /target/group/name")
	f.DeclareGroup(fixture.Workers(), fixture.T0)
	f.Put(jobOf("sync", "workers"), fixture.T0)
	f.Put(jobOf("mail", "workers"), fixture.T0)
	err = f.DeleteGroup(ctx, "shop", "workers", fixture.At(fixture.T0))
	fixture.WantError(t, "delete while jobs name it", err, dispatcher.ErrInUse)
	if want := `group "workers" is used by job "mail" and 1 more: in use`; err == nil || err.Error() != want {
		t.Errorf("delete while jobs name it = %v, want %s", err, want)
	}
	f.Put(fixture.Job("sync", nil), fixture.T0)
	f.Must(f.DeleteJob(ctx, "shop", "mail", fixture.At(fixture.T0)))
	f.Must(f.DeleteGroup(ctx, "shop", "workers", fixture.At(fixture.T0)))
}

// groupIs expects a group to be "there", "leaving" or "gone".
func (f *wing) groupIs(name, want string) {
	f.Helper()
	group, err := f.Group(f.Context(), "shop", name)
	got := "there"
	switch {
	case errors.Is(err, dispatcher.ErrNotFound):
		got = "gone"
	case err != nil:
		f.Fatal(err)
	case group.RemovalRequestedAt != nil:
		got = "leaving"
	}
	f.Expect("group "+name, got, want)
}

func testGroupWhenUnused(t *testing.T, f *wing) {
	ctx, later := t.Context(), fixture.T0.Add(time.Minute)
	workers := f.DeclareGroup(fixture.Workers(), fixture.T0)
	f.Put(jobOf("sync", "workers"), fixture.T0)
	f.Put(jobOf("mail", "workers"), fixture.T0)
	_, err := f.DeleteGroupWhenUnused(ctx, "shop", "workers", input.Change{IfRevision: workers.Revision + 1, Now: fixture.T0})
	fixture.WantError(t, "delete of another revision", err, dispatcher.ErrPrecondition)
	marked, err := f.DeleteGroupWhenUnused(ctx, "shop", "workers", fixture.At(fixture.T0))
	if err != nil || marked == nil || marked.Revision != workers.Revision+1 || !marked.RemovalRequestedAt.Equal(fixture.T0) {
		t.Fatalf("delete while jobs name it = %+v, %v, want it marked", marked, err)
	}
	again, err := f.DeleteGroupWhenUnused(ctx, "shop", "workers", fixture.At(later))
	if err != nil || again == nil || again.Revision != marked.Revision {
		t.Errorf("delete it again = %+v, %v, want it as it is", again, err)
	}
	f.Must(f.DeleteJob(ctx, "shop", "mail", fixture.At(later)))
	f.groupIs("workers", "leaving")
	f.DeclareGroup(fixture.Workers(), later)
	f.groupIs("workers", "there")
	_, err = f.DeleteGroupWhenUnused(ctx, "shop", "workers", fixture.At(later))
	f.Must(err)
	f.Put(fixture.Job("sync", nil), later)
	f.groupIs("workers", "gone")
	if log := f.AuditLog(access.AuditQuery{Subject: "group workers", Action: "delete"}); len(log) != 1 {
		t.Errorf("audit log of the deletion = %+v", log)
	}
	f.DeclareGroup(fixture.Workers(), later)
	f.groupIs("workers", "there")
	marked, err = f.DeleteGroupWhenUnused(ctx, "shop", "workers", fixture.At(later))
	if err != nil || marked != nil {
		t.Errorf("delete of an unused group = %+v, %v, want it deleted", marked, err)
	}
	f.groupIs("workers", "gone")
}

func testMaxGroups(t *testing.T, f *wing) {
	f.InCheck()
	put := func(i int) error {
		_, _, err := f.PutGroup(t.Context(), target.EndpointGroup{App: "shop", Name: fmt.Sprintf("g%d", i)}, fixture.At(fixture.T0))
		return err
	}
	for i := range target.MaxGroups {
		f.Must(put(i))
	}
	f.WantProblem("one group too many", put(target.MaxGroups), "too_many")
	f.Must(put(0))
}

func testRegistrations(t *testing.T, f *wing) {
	f.DeclareGroup(fixture.Workers(), fixture.T0)
	stored, created := f.AddEndpoint(fixture.Endpoint("b", "http://10.0.0.2:8080"), fixture.T0)
	expires := fixture.T0.Add(90 * time.Second)
	want := target.Endpoint{
		ID: "b", StaticEndpoint: target.StaticEndpoint{URL: "http://10.0.0.2:8080", Weight: 1},
		Source: target.EndpointRegistered, RegisteredAt: fixture.T0, ExpiresAt: &expires,
	}
	if diff := cmp.Diff(want, stored); diff != "" || !created {
		t.Errorf("registered: created %v (-want +got):\n%s", created, diff)
	}
	for range 10 { // each long before the end of the previous one
		stored, created = f.AddEndpoint(fixture.Endpoint("b", "http://10.0.0.2:8080"), expires.Add(-time.Millisecond))
		want.ExpiresAt = new(expires.Add(90*time.Second - time.Millisecond))
		if diff := cmp.Diff(want, stored); diff != "" || created {
			t.Fatalf("renewed: created %v (-want +got):\n%s", created, diff)
		}
		expires = *want.ExpiresAt
	}
	moved := fixture.Endpoint("b", "http://10.0.0.3:8080/x")
	moved.Weight, moved.Backup, moved.Labels = 7, true, input.Labels{"zone": "y"}
	want.StaticEndpoint = moved.StaticEndpoint
	stored, created = f.AddEndpoint(moved, expires.Add(-90*time.Second))
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
		f.Must(err)
		if expired != want {
			t.Errorf("expired in step %d = %d, want %d", i, expired, want)
		}
	}
	_, created = f.AddEndpoint(moved, expires)
	if !created {
		t.Error("one that registers after it expired was not created")
	}
	f.Must(f.DeregisterEndpoint(t.Context(), "shop", "workers", "b", fixture.At(expires)))
	for _, id := range []string{"b", "a"} {
		fixture.WantError(t, "deregister "+id, f.DeregisterEndpoint(t.Context(), "shop", "workers", id, fixture.At(expires)),
			dispatcher.ErrNotFound)
	}
}

func testRefusedRegistrations(t *testing.T, f *wing) {
	ctx := t.Context()
	f.DeclareGroup(fixture.Workers(), fixture.T0)
	f.DeclareGroup(target.EndpointGroup{App: "shop", Name: "closed"}, fixture.T0)
	for what, tt := range map[string]struct {
		group string
		e     target.Endpoint
		want  string
		is    error
	}{
		"another network":  {"workers", fixture.Endpoint("b", "http://11.0.0.1:8080"), "egress_denied /url", nil},
		"another port":     {"workers", fixture.Endpoint("b", "http://10.0.0.1:8081"), "egress_denied /url", nil},
		"loopback":         {"workers", fixture.Endpoint("b", "http://127.0.0.1:8080"), "egress_denied /url", nil},
		"a declared id":    {"workers", fixture.Endpoint("a", "http://10.0.0.1:8080"), "", dispatcher.ErrConflict},
		"no registrations": {"closed", fixture.Endpoint("b", "http://10.0.0.1:8080"), "", dispatcher.ErrConflict},
		"no group":         {"none", fixture.Endpoint("b", "http://10.0.0.1:8080"), "", dispatcher.ErrNotFound},
		"no name":          {"workers", fixture.Endpoint("", "http://10.0.0.1:8080"), "name_format /id", nil},
	} {
		_, _, err := f.RegisterEndpoint(ctx, "shop", tt.group, tt.e, fixture.At(fixture.T0))
		if tt.is != nil {
			fixture.WantError(t, what, err, tt.is)
		} else {
			f.WantProblem(what, err, tt.want)
		}
	}
	if got := f.endpoints(fixture.T0); got != "a" {
		t.Errorf("endpoints = %q, want a", got)
	}
}

func testMaxEndpoints(t *testing.T, f *wing) {
	f.InCheck()
	f.DeclareGroup(fixture.Workers(), fixture.T0)
	for i := range target.MaxEndpoints - 1 {
		f.AddEndpoint(fixture.Endpoint(fmt.Sprintf("e%03d", i), "http://10.0.0.2:8080"), fixture.T0)
	}
	register := func(id string, now time.Time) error {
		_, _, err := f.RegisterEndpoint(t.Context(), "shop", "workers", fixture.Endpoint(id, "http://10.0.0.3:8080"), fixture.At(now))
		return err
	}
	f.WantProblem("one endpoint too many", register("late", fixture.T0), "too_many")
	f.Must(register("e007", fixture.T0)) // it exists
	more := fixture.Workers()
	more.Endpoints["more"] = target.StaticEndpoint{URL: "https://b.example.com"}
	_, _, err := f.PutGroup(t.Context(), more, fixture.At(fixture.T0))
	f.WantProblem("one declared endpoint too many", err, "too_many /endpoints")
	then := fixture.T0.Add(90 * time.Second) // expired ones do not count, although they are still in the table
	f.Must(register("late", then))
	expired, err := f.ExpireEndpoints(t.Context(), 300, then)
	f.Must(err)
	if expired != 300 {
		t.Errorf("expired = %d, want the limit of 300", expired)
	}
}

// Many register at once where there is room for few, while others send heartbeats and expired ones are removed.
func testEndpointRace(t *testing.T, f *wing) {
	f.InCheck()
	f.DeclareGroup(fixture.Workers(), fixture.T0)
	const room = 3
	for i := range target.MaxEndpoints - 1 - room {
		f.AddEndpoint(fixture.Endpoint(fmt.Sprintf("e%03d", i), "http://10.0.0.2:8080"), fixture.T0)
	}
	var all sync.WaitGroup
	taken, now := make(chan bool, 2*room+4), fixture.T0.Add(time.Minute)
	register := func(id string) {
		e := fixture.Endpoint(id, "http://10.0.0.2:8080")
		_, created, err := f.RegisterEndpoint(t.Context(), "shop", "workers", e, fixture.At(now))
		if problems := strings.Join(fixture.ProblemCodes(err), ","); err != nil && problems != "too_many" {
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
	then := fixture.T0.Add(90 * time.Second) // all are gone except those that sent a heartbeat and new ones
	for range 2 {
		all.Go(func() {
			if _, err := f.ExpireEndpoints(t.Context(), 1000, then); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := len(strings.Fields(f.endpoints(fixture.T0))); got != 1+4+room {
		t.Errorf("%d endpoints are left, want the declared one, 4 with a heartbeat and %d", got, room)
	}
}

func testDrainedEndpoints(t *testing.T, f *wing) {
	ctx := t.Context()
	f.DeclareGroup(fixture.Workers(), fixture.T0)
	b := fixture.Endpoint("b", "http://10.0.0.2:8080")
	f.AddEndpoint(b, fixture.T0)
	drain := func(id string, draining bool, now time.Time) {
		t.Helper()
		e, err := f.DrainEndpoint(ctx, "shop", "workers", id, draining, fixture.At(now))
		f.Must(err)
		if e.ID != id || e.Draining != draining {
			t.Errorf("drained = %+v", e)
		}
	}
	for _, id := range []string{"a", "b", "b"} {
		drain(id, true, fixture.T0)
	}
	stored, _ := f.AddEndpoint(b, fixture.T0)
	moved, _ := f.AddEndpoint(fixture.Endpoint("b", "http://10.0.0.3:8080"), fixture.T0)
	edited := fixture.Workers()
	edited.Description = "edited"
	f.DeclareGroup(edited, fixture.T0)
	declared, err := f.Endpoints(ctx, "shop", "workers", fixture.T0, input.Page{Limit: 1})
	f.Must(err)
	if !stored.Draining || !moved.Draining || len(declared) != 1 || !declared[0].Draining {
		t.Errorf("draining after a heartbeat %v, a change %v, and a change of the group %+v", stored.Draining, moved.Draining, declared)
	}
	drain("a", false, fixture.T0)
	entries := f.AuditLog(access.AuditQuery{})
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
	then := fixture.T0.Add(90 * time.Second)
	for _, id := range []string{"b", "none"} {
		_, err = f.DrainEndpoint(ctx, "shop", "workers", id, true, fixture.At(then))
		fixture.WantError(t, "drain of "+id+", which is not there any more", err, dispatcher.ErrNotFound)
	}
	if stored, _ = f.AddEndpoint(b, then); stored.Draining {
		t.Error("an endpoint that comes back drains")
	}
}

func testChangedGroupEndpoints(t *testing.T, f *wing) {
	f.DeclareGroup(fixture.Workers(), fixture.T0)
	for id, url := range map[string]string{"b": "http://10.1.0.1:8080", "c": "http://10.2.0.1:8080", "d": "http://worker:8080"} {
		f.AddEndpoint(fixture.Endpoint(id, url), fixture.T0)
	}
	narrow := fixture.Workers()
	narrow.Endpoints = map[string]target.StaticEndpoint{"b": {URL: "https://b.example.com"}}
	narrow.Registration.Networks, narrow.Registration.ExpireAfter = []string{"10.2.0.0/16"}, input.Duration(time.Hour)
	f.DeclareGroup(narrow, fixture.T0.Add(time.Minute))
	if got := f.endpoints(fixture.T0.Add(time.Minute)); got != "b c d" {
		t.Errorf("endpoints of a narrower group = %q, want b, which it declares, c and d", got)
	}
	if got := f.endpoints(fixture.T0.Add(90 * time.Second)); got != "b" {
		t.Errorf("endpoints when the old time has passed = %q, want b", got)
	}
	stored, _ := f.AddEndpoint(fixture.Endpoint("c", "http://10.2.0.1:8080"), fixture.T0.Add(time.Minute))
	if want := fixture.T0.Add(time.Hour + time.Minute); !stored.ExpiresAt.Equal(want) {
		t.Errorf("a heartbeat after a change lasts until %v, want %v", stored.ExpiresAt, want)
	}
	narrow.Registration.Ports = []int{9090}
	f.DeclareGroup(narrow, fixture.T0.Add(time.Minute))
	if got := f.endpoints(fixture.T0.Add(time.Minute)); got != "b" {
		t.Errorf("endpoints of a group with another port = %q, want b", got)
	}
	narrow.Registration = nil
	f.DeclareGroup(narrow, fixture.T0.Add(time.Minute))
	if got := f.endpoints(fixture.T0.Add(time.Minute)); got != "b" {
		t.Errorf("endpoints of a group without registrations = %q, want b", got)
	}
}

func testHeartbeatsAreQuiet(t *testing.T, f *wing) {
	f.DeclareGroup(fixture.Workers(), fixture.T0)
	b := fixture.Endpoint("b", "http://10.0.0.2:8080")
	f.AddEndpoint(b, fixture.T0)
	entries := len(f.AuditLog(access.AuditQuery{}))
	notifications := f.Hear()
	f.AddEndpoint(b, fixture.T0.Add(time.Second))
	moved := fixture.Endpoint("b", "http://10.0.0.3:8080")
	f.AddEndpoint(moved, fixture.T0.Add(time.Second))
	want := dispatcher.Notification{App: "shop", Group: "workers"}
	// The heartbeat came first, so its notification would come first.
	wantNext := func(what string) {
		t.Helper()
		if got := notifications.Next(t, what); got != want {
			t.Errorf("%s: notification %+v, want %+v", what, got, want)
		}
	}
	wantNext("change")
	f.Must(f.DrainEndpoint(t.Context(), "shop", "workers", "b", true, fixture.At(fixture.T0)))
	wantNext("drain")
	expired, err := f.ExpireEndpoints(t.Context(), 10, fixture.T0.Add(time.Hour))
	f.Must(err)
	if expired != 1 {
		t.Errorf("expired = %d, want 1", expired)
	}
	wantNext("expiry")
	f.AddEndpoint(b, fixture.T0)
	wantNext("registration")
	f.Must(f.DeregisterEndpoint(t.Context(), "shop", "workers", "b", fixture.At(fixture.T0)))
	wantNext("deregistration")
	if more := len(f.AuditLog(access.AuditQuery{})) - entries; more != 1 {
		t.Errorf("%d entries of the audit log, want that of the drain only", more)
	}
	for len(notifications) > 0 {
		if got := <-notifications; !got.Adopt {
			t.Errorf("further notification %+v", got)
		}
	}
}

func testAppWithGroups(t *testing.T, f *wing) {
	f.DeclareGroup(fixture.Workers(), fixture.T0)
	fixture.WantError(t, "delete of an app with a group", f.DeleteApp(t.Context(), "shop", fixture.At(fixture.T0)), dispatcher.ErrNotEmpty)
	f.Must(f.DeleteGroup(t.Context(), "shop", "workers", fixture.At(fixture.T0)))
	f.Must(f.DeleteApp(t.Context(), "shop", fixture.At(fixture.T0)))
}
