package node

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestProbeReachesANodeByLoopback(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string][]string{
		"0.0.0.0:80":     {"127.0.0.1:80"},
		"[::]:80":        {"127.0.0.1:80", "[::1]:80"},
		":80":            {"127.0.0.1:80", "[::1]:80"},
		"10.0.0.1:80":    {"10.0.0.1:80"},
		"example.com:80": {"example.com:80"},
		"[fe80::1]:80":   {"[fe80::1]:80"},
		"127.0.0.1:http": {"127.0.0.1:http"},
	} {
		if diff := cmp.Diff(want, localAddresses(listen)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", listen, diff)
		}
	}
}
