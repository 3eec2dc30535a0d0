package api_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/dns/dnstest"
	"github.com/carillon-dev/carillon/dispatcher/invoke"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// newInternalWorld is a world with a name server that knows internal addresses. The app may call 10.1.0.0/16.
func newInternalWorld(t *testing.T) (w *world, bound string) {
	t.Helper()
	server := dnstest.Start(t)
	server.A("internal.test", 60, "10.1.0.7", "10.9.9.8", "10.9.9.9", "127.0.0.1")
	server.Set("six.test", dnsmessage.TypeAAAA, dnstest.Reply{TTL: 60, Records: []dnsmessage.ResourceBody{
		&dnsmessage.AAAAResource{AAAA: netip.MustParseAddr("fd00:1::9").As16()},
	}})
	server.A("well.test", 60, "10.1.0.8")
	server.A("directory.test", 60, "10.9.9.10")
	target := func(name string) dnsmessage.ResourceBody {
		return &dnsmessage.SRVResource{Target: dnsmessage.MustNewName(name), Port: 389}
	}
	server.Set("_ldap._tcp.test", dnsmessage.TypeSRV, dnstest.Reply{TTL: 60, Records: []dnsmessage.ResourceBody{
		target("well.test."), target("directory.test."), target("gone.test."),
	}})
	server.Set("broken.test", dnsmessage.TypeA, dnstest.Reply{Code: dnsmessage.RCodeServerFailure})
	invoker := invoke.New(invoke.Options{NameServers: []netip.AddrPort{server.Address}, Resolver: server.Resolver()})
	t.Cleanup(invoker.Close)
	w = newWorld(t, api.Options{Fleet: invoker})
	w.must(http.StatusCreated, "PUT", oneApp, `{"bounds":{"egress":{"networks":["10.1.0.0/16"]}}}`)
	w.must(http.StatusCreated, "PUT", oneJob, validJob)
	w.must(http.StatusCreated, "PUT", oneGroup, `{"dns":{
		"a":{"hostname":"internal.test","port":24100},"b":{"hostname":"broken.test","port":80},
		"s":{"hostname":"_ldap._tcp.test","type":"SRV"},"six":{"hostname":"six.test","type":"AAAA","port":80}}}`)
	return w, w.newToken("tenant", writes, "crm")
}

// A tenant that could list the addresses of internal names would map the network by DNS.
func TestOnlyOperatorsSeeRefusedMembers(t *testing.T) {
	t.Parallel()
	w, bound := newInternalWorld(t)
	hidden := []string{"10-9-9-", "10.9.9.", "127-0-0-1", "127.0.0.1", "directory", "gone", "fd00"}
	tenant := "Authorization: Bearer " + bound
	for _, path := range []string{oneGroup + "/endpoints", oneGroup + "/endpoints?limit=1", oneGroup + "/status"} {
		got := w.must(http.StatusOK, "GET", path, "", tenant).Body.String()
		for _, text := range hidden {
			if strings.Contains(got, text) {
				t.Errorf("%s shows %s to a token that is bound to the app: %s", path, text, got)
			}
		}
	}
	listed := into[struct{ Items []target.Endpoint }](w.must(http.StatusOK, "GET", oneGroup+"/endpoints", "", tenant)).Items
	if len(listed) != 2 || listed[0].ID != "10-1-0-7-24100" || listed[1].ID != "well_test-389" {
		t.Errorf("a bound token sees %+v, want the endpoints that the app may call", listed)
	}
	status := w.must(http.StatusOK, "GET", oneGroup+"/status", "", tenant).Body.String()
	for _, want := range []string{`"members":1,"refused":3,`, `"members":1,"refused":2,`, `"members":0,"refused":1,`,
		"it is in no network that app crm may call", "the node itself", "has no address", "ServerFailure"} {
		if !strings.Contains(status, want) {
			t.Errorf("the status has no %q: %s", want, status)
		}
	}
	// Operators still see everything.
	all := into[struct{ Items []target.Endpoint }](w.must(http.StatusOK, "GET", oneGroup+"/endpoints", "")).Items
	refused := 0
	for _, e := range all {
		if e.Refused != "" {
			refused++
		}
	}
	if len(all) != 8 || refused != 6 {
		t.Errorf("an operator sees %+v, want all 8, of which 6 are refused", all)
	}
	whole := w.must(http.StatusOK, "GET", oneGroup+"/status", "").Body.String()
	if !strings.Contains(whole, "name server 127.0.0.1:") {
		t.Errorf("an operator does not see which name server failed: %s", whole)
	}
}

// Guesses reveal nothing: a refused endpoint gets the same response as one that does not exist.
func TestDrainDoesNotRevealTheAddressesOfAName(t *testing.T) {
	t.Parallel()
	w, bound := newInternalWorld(t)
	tenant := "Authorization: Bearer " + bound
	for _, id := range []string{"10-9-9-9-24100", "10-9-9-7-24100", "directory_test-389", "other_test-389", "127-0-0-1-24100"} {
		w.do("POST", oneGroup+"/endpoints/"+id+"/drain", "", tenant).refused(http.StatusNotFound, " not_found")
	}
	w.do("POST", oneGroup+"/endpoints/10-1-0-7-24100/drain", "", tenant).refused(http.StatusConflict, " state_conflict")
	w.do("POST", oneGroup+"/endpoints/10-9-9-9-24100/drain", "").refused(http.StatusConflict, " state_conflict")
}

// Only operators see the addresses of an attempt, whichever request returns the run.
func TestOnlyOperatorsSeeTheAddressesOfAnAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	bound := "Authorization: Bearer " + w.newToken("tenant", writes, "crm")
	r := into[run.Run](w.must(http.StatusAccepted, "POST", oneJob+"/run", ""))
	w.register(t.Context(), 7)
	w.recordOutcome(w.adoptRun(), run.Outcome{State: run.Failed, Class: run.ClassEgressDenied,
		Error: "egress to an address of api.test is denied", Response: &run.Response{Addresses: []string{"10.9.9.9"}}}, nil)
	at := "/v1/runs/" + r.ID
	if got := w.must(http.StatusOK, "GET", at, "").Body.String(); !strings.Contains(got, "10.9.9.9") {
		t.Errorf("an operator does not see the address: %s", got)
	}
	got := w.must(http.StatusOK, "GET", at, "", bound).Body.String()
	if strings.Contains(got, "10.9.9.9") || !strings.Contains(got, "api.test") {
		t.Errorf("a bound token sees %s", got)
	}
	if got := w.must(http.StatusOK, "POST", at+"/retry", "", bound).Body.String(); strings.Contains(got, "10.9.9.9") {
		t.Errorf("a bound token that retries the run sees %s", got)
	}
	if got := w.must(http.StatusOK, "POST", at+"/cancel", "", bound).Body.String(); strings.Contains(got, "10.9.9.9") {
		t.Errorf("a bound token that cancels the run sees %s", got)
	}
}
