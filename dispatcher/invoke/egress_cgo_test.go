//go:build cgo

package invoke_test

import (
	"strings"
	"testing"
)

// The C library reads more texts as addresses than Go does (127.1, 0x7f000001), and it is what
// resolves names where a node is built with it. Only a build with cgo has it: make test-race.
func TestNothingLeavesByTheCLibraryEither(t *testing.T) {
	t.Parallel()
	out := again(t,
		"^(TestNothingLeavesForWhatIsNotCalled|TestNetworksThatAreNeverCalled|TestOperatorsSayWhatElseIsNotCalled)$",
		"GODEBUG=netdns=cgo+2")
	if !strings.Contains(out, "forcing use of the cgo resolver") {
		t.Errorf("the C library was not asked:\n%s", out)
	}
}
