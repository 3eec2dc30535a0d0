package target_test

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

func TestMetadataAddressesAreNeverDialled(t *testing.T) {
	t.Parallel()
	for name, host := range map[string]string{
		"a literal":                  "169.254.169.254",
		"the first of the network":   "169.254.0.0",
		"the last of the network":    "169.254.255.255",
		"circled digits":             "①⑥⑨.②⑤④.①⑥⑨.②⑤④",
		"full-width digits and dots": "１６９．２５４．１６９．２５４",
		"mapped into IPv6":           "[::ffff:169.254.169.254]",
		"link-local IPv6":            "[fe80::1]",
		"the end of link-local IPv6": "[febf:ffff::1]",
		"with a zone":                "[fe80::a9fe:a9fe%25lo]",
		"the metadata of EC2":        "[fd00:ec2::254]",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, method := range []string{"POST", "GET"} {
				o := newInvoker(t).Invoke(t.Context(), callTo("http://"+host+":9/?key=hunter2", method, 5*time.Second))
				if o.State != dispatcher.RunFailed || o.Class != dispatcher.ClassEgressDenied || strings.Contains(o.Error, "hunter2") {
					t.Errorf("%s: outcome = %+v, want failed as egress_denied", method, o)
				}
			}
		})
	}
}
