package target

import (
	"context"
	"fmt"
	"net/netip"
	"syscall"
)

// cloudMetadata is where a cloud serves over IPv6 what is link-local over IPv4.
const cloudMetadata = "fd00:ec2::/32"

// deniedError says that an address is never called.
type deniedError struct{ addr netip.Addr }

func (e *deniedError) Error() string {
	return fmt.Sprintf("%s is an address where clouds keep their metadata and credentials; it is never called", e.addr)
}

// checkDial refuses addresses that are never called. It sees what is dialled, after every
// notation of a host and every answer of a name server has become an address.
func checkDial(_ context.Context, _, address string, _ syscall.RawConn) error {
	dialled, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	addr := dialled.Addr().Unmap().WithZone("")
	if addr.IsLinkLocalUnicast() || netip.MustParsePrefix(cloudMetadata).Contains(addr) {
		return &deniedError{addr: addr}
	}
	return nil
}
