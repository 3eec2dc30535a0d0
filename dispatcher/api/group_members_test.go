package api_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/dns/dnstest"
	"github.com/carillon-dev/carillon/dispatcher/invoke"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// newNamedWorld is newWorld of a node that uses a name server, with a group whose endpoints are declared, registered
// and from DNS.
func newNamedWorld(t *testing.T) (*world, *dnstest.Server) {
	t.Helper()
	server := dnstest.Start(t)
	server.A("workers.test", 60, "10.0.0.2", "10.0.0.1")
	invoker := invoke.New(invoke.Options{
		NameServers: []netip.AddrPort{server.Address}, Egress: web.Egress{Private: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}},
	})
	t.Cleanup(invoker.Close)
	w := newWorld(t, api.Options{Fleet: invoker})
	w.declare()
	const names = `{"dns":{"all":{"hostname":"workers.test","port":8080},"none":{"hostname":"missing.test","type":"SRV"}},`
	group := strings.Replace(validGroup, `{`, names, 1)
	w.must(http.StatusCreated, "PUT", oneGroup, group)
	w.must(http.StatusCreated, "PUT", oneEndpoint, `{"url":"http://10.0.0.9:8080"}`)
	return w, server
}

func TestEndpointsFromDNSAreListedWithTheOthers(t *testing.T) {
	t.Parallel()
	w, _ := newNamedWorld(t)
	read := func(query string) (all []string, next string) {
		got := into[struct {
			Items []target.Endpoint `json:"items"`
			Next  string            `json:"next"`
		}](w.must(http.StatusOK, "GET", oneGroup+"/endpoints"+query, ""))
		for _, e := range got.Items {
			all = append(all, fmt.Sprint(e.ID, " ", e.Source, " ", e.ServerName))
		}
		return all, got.Next
	}
	whole, _ := read("")
	if len(whole) != 4 || whole[0] != "10-0-0-1-8080 dns workers.test:8080" || whole[1] != "10-0-0-2-8080 dns workers.test:8080" {
		t.Errorf("endpoints = %q", whole)
	}
	for size := 1; size <= len(whole); size++ {
		var pages []string
		for query := fmt.Sprintf("?limit=%d", size); ; {
			page, next := read(query)
			if pages = append(pages, page...); next == "" || len(pages) > len(whole) {
				break
			}
			query = fmt.Sprintf("?limit=%d&cursor=%s", size, next)
		}
		if diff := cmp.Diff(whole, pages); diff != "" {
			t.Errorf("by pages of %d (-want +got)\n%s", size, diff)
		}
	}
	w.must(http.StatusCreated, "PUT", oneGroup+"/endpoints/10-0-0-1-8080", `{"url":"http://10.0.0.8:8080"}`)
	if all, _ := read(""); len(all) != 4 || all[0] != "10-0-0-1-8080 registered " {
		t.Errorf("endpoints = %q, want the registered one of two with the same id", all)
	}
}

func TestStatusOfAGroupHasNamesAndEndpoints(t *testing.T) {
	t.Parallel()
	w, _ := newNamedWorld(t)
	w.must(http.StatusOK, "POST", oneEndpoint+"/drain", "")
	status := into[target.GroupStatus](w.must(http.StatusOK, "GET", oneGroup+"/status", ""))
	all, none := status.DNS["all"], status.DNS["none"]
	if all.Members != 2 || all.ResolvedAt == nil || all.ExpiresAt == nil || all.Error != "" || all.Type != "A" {
		t.Errorf("status of a name = %+v", all)
	}
	if none.Members != 0 || none.ResolvedAt != nil || none.Error != "name missing.test does not exist" || none.Type != "SRV" {
		t.Errorf("status of a name that does not exist = %+v", none)
	}
	var states []string
	for _, e := range status.Endpoints {
		states = append(states, e.ID+" "+string(e.State))
	}
	if len(states) != 4 || states[0] != "10-0-0-1-8080 up" || !slices.Contains(states, "w1 draining") {
		t.Errorf("states = %q", states)
	}
	w.do("GET", "/v1/apps/crm/groups/none/status", "").refused(http.StatusNotFound, " not_found")
}

func TestEndpointFromDNSIsDrainedByItsNameServer(t *testing.T) {
	t.Parallel()
	w, server := newNamedWorld(t)
	w.do("POST", oneGroup+"/endpoints/10-0-0-1-8080/drain", "").refused(http.StatusConflict, " state_conflict")
	w.do("POST", oneGroup+"/endpoints/none/drain", "").refused(http.StatusNotFound, " not_found")
	w.must(http.StatusOK, "POST", oneEndpoint+"/drain", "")
	if server.OverTCP() != 0 {
		t.Error("a small answer came over TCP")
	}
}
