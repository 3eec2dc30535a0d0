//go:build cgo

package invoke_test

import (
	"strings"
	"testing"
)

// The C library reads more texts as addresses than Go does (127.1, 0x7f000001), and it resolves names in a node that is
// built with cgo. This test needs such a build: step race-invoke of make check.
func TestDeniedHostsAreRefusedWithTheCLibrary(t *testing.T) {
	t.Parallel()
	out := again(t, "^TestEgress", "GODEBUG=netdns=cgo+2")
	if !strings.Contains(out, "forcing use of the cgo resolver") {
		t.Errorf("the C library was not used:\n%s", out)
	}
}
