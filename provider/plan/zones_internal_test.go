package plan

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/provider/binding"
)

func TestOtherZonesOfTheDispatcherCauseOneWarning(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		response string
		warnings int
	}{
		"another release":  {`{"version":"1.2.3","zones":"1999a"}`, 1},
		"the same release": {fmt.Sprintf(`{"version":"1.2.3","zones":%q}`, schedule.ZonesVersion()), 0},
		"an unknown one":   {`{"version":"1.2.3"}`, 0},
		"another server":   {`<html>`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, tt.response)
			}))
			t.Cleanup(server.Close)
			api, err := client.New(server.URL, "token", client.Options{RetryFor: -1})
			if err != nil {
				t.Fatal(err)
			}
			p := New(binding.Paths{}, "")
			p.Client, p.Endpoint = api, server.URL
			var diags diag.Diagnostics
			p.warnOfZones(t.Context(), &diags)
			p.warnOfZones(t.Context(), &diags)
			if len(diags) != tt.warnings || diags.HasError() {
				t.Fatalf("diagnostics %v, want %d warnings", diags, tt.warnings)
			}
			for _, d := range diags {
				if !strings.Contains(d.Detail(), "1999a") || !strings.Contains(d.Detail(), schedule.ZonesVersion()) {
					t.Errorf("warning %q, want both releases", d.Detail())
				}
			}
		})
	}
}
