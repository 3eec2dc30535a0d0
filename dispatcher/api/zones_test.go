package api_test

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/schedule/zonestest"
)

// zonesBody returns a body with the data of the program itself.
func zonesBody() string {
	return `{"archive":"` + base64.StdEncoding.EncodeToString(schedule.BuiltInArchive()) + `"}`
}

func TestZonesOfAllNodesAreSetAndReset(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.register(t.Context(), 7)
	status := func(method, path, body string) dispatcher.ZoneStatus {
		t.Helper()
		return into[dispatcher.ZoneStatus](w.must(http.StatusOK, method, path, body))
	}
	if got := status("GET", "/v1/zones", ""); got.Release != "" || len(got.Nodes) != 1 || got.Nodes[0].Zones != schedule.ZonesVersion() {
		t.Errorf("at first, the status is %+v", got)
	}
	set := status("POST", "/v1/zones/use", zonesBody())
	if set.Release != schedule.ZonesVersion() || set.SetBy != "admin" || set.SetAt == nil {
		t.Errorf("set %+v", set)
	}
	if diff := cmp.Diff(set, status("GET", "/v1/zones", "")); diff != "" {
		t.Errorf("the status differs from what was set (-set +got):\n%s", diff)
	}
	if got := status("POST", "/v1/zones/reset", ""); got.Release != "" || got.Sum != "" {
		t.Errorf("after the reset, the status is %+v", got)
	}
	want := []string{"admin use zones", "admin reset zones"}
	if diff := cmp.Diff(want, w.log(w.token, "&subject=zones")); diff != "" {
		t.Errorf("audit log (-want +got):\n%s", diff)
	}
}

// Data without a zone that triggers use would put them into error on all nodes at once.
func TestZonesThatCannotBeUsedAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	encode := base64.StdEncoding.EncodeToString
	for archive, says := range map[string]string{
		"":                       "is not an archive",
		"%%%":                    "is not an archive",
		encode([]byte("no zip")): "not a valid zip",
		encode(zonestest.Archive(t, "2098b", time.Now(), "Cuba")):         "lacks 1 zones that this program knows, such as Cuba",
		encode(append(schedule.BuiltInArchive(), make([]byte, 1<<20)...)): "",
	} {
		got := w.do("POST", "/v1/zones/use", `{"archive":"`+archive+`"}`)
		got.refused(http.StatusUnprocessableEntity, "/archive zone_data")
		if !strings.Contains(got.Body.String(), says) {
			t.Errorf("refused with %s, want %q", got.Body, says)
		}
	}
	w.do("POST", "/v1/zones/use", `{"archive":"","release":"2026f"}`).refused(http.StatusBadRequest, "/release json_unknown_field")
}
