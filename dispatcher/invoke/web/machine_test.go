package web

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// T8: the addresses of the machine are the node itself, even one that appears later.
func TestAddressesOfTheMachineCountAsLoopback(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		addrs := []net.Addr{&net.IPNet{IP: net.ParseIP("10.9.9.9"), Mask: net.CIDRMask(24, 32)}}
		var broken error
		own := []uint16{8080}
		private := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
		closed := newGuard(Egress{Private: private}, nil)
		open := newGuard(Egress{Private: private, Loopback: true, OwnPorts: own}, nil)
		for _, g := range []*guard{closed, open} {
			g.machine.read = func() ([]net.Addr, error) { return addrs, broken }
		}
		check := func(when, address string, closedSays, openSays string) {
			t.Helper()
			for _, tt := range []struct {
				g    *guard
				says string
			}{{closed, closedSays}, {open, openSays}} {
				err := tt.g.checkDialled(netip.MustParseAddrPort(address), tt.g.checker(Scope{}))
				if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
					t.Errorf("%s: %s with loopback %v: %v, want it to say %q", when, address, tt.g.Loopback, err, tt.says)
				}
			}
		}
		check("at first", "10.9.9.9:9000", "the node itself", "")
		check("at first", "10.9.9.9:8080", "the node itself", "API")
		check("at first", "[::ffff:10.9.9.9]:9000", "the node itself", "")
		check("at first", "127.0.0.2:8080", "the node itself", "API")
		check("at first", "10.9.9.10:9000", "", "")
		addrs = append(addrs, &net.IPNet{IP: net.ParseIP("fd12::9"), Mask: net.CIDRMask(64, 128)})
		time.Sleep(machineAge)
		check("after one appeared", "[fd12::9]:9000", "the node itself", "")
		broken = errors.New("too many open files")
		time.Sleep(machineAge)
		check("while they cannot be read", "10.9.9.9:9000", "the node itself", "")
	})
}
