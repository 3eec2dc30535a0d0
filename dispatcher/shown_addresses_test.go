package dispatcher_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/target"
)

func TestAddressesInErrorsAreHidden(t *testing.T) {
	t.Parallel()
	for text, tt := range map[string]struct {
		own, want string
		hidden    []string
	}{
		"dial tcp 10.9.9.9:80: connect: connection refused": {"", "dial tcp (address): connect: connection refused", []string{"10.9.9.9:80"}},
		"read tcp 10.0.0.2:51234->10.9.9.9:80: read: connection reset by peer": {
			"", "read tcp (address)->(address): read: connection reset by peer", []string{"10.0.0.2:51234", "10.9.9.9:80"}},
		"lookup a.b.c on [fd00::2]:53: no such host":   {"", "lookup a.b.c on (address): no such host", []string{"[fd00::2]:53"}},
		"dial tcp [fe80::1%eth0]:80: i/o timeout":      {"", "dial tcp (address): i/o timeout", []string{"[fe80::1%eth0]:80"}},
		"valid for 10.9.9.9, ::1, not api.internal":    {"", "valid for (address), (address), not api.internal", []string{"10.9.9.9", "::1"}},
		"at ::ffff:10.9.9.9.":                          {"", "at (address).", []string{"::ffff:10.9.9.9"}},
		"http://10.9.9.9/1/jobs":                       {"", "http://(address)/1/jobs", []string{"10.9.9.9"}},
		"its bounds allow 10.0.0.0/8, fd00::/8":        {"", "its bounds allow 10.0.0.0/8, fd00::/8", nil},
		"egress to 10.9.9.9 by 10.8.8.8":               {"10.9.9.9", "egress to 10.9.9.9 by (address)", []string{"10.8.8.8"}},
		"at 12:30:45.678 in 1.5s, version 1.2.3: a::z": {"", "at 12:30:45.678 in 1.5s, version 1.2.3: a::z", nil},
	} {
		own, _ := netip.ParseAddr(tt.own)
		got, hidden := target.HideAddresses(text, own)
		if got != tt.want || !cmp.Equal(hidden, tt.hidden) {
			t.Errorf("%s: %q %q, want %q %q", text, got, hidden, tt.want, tt.hidden)
		}
	}
}
