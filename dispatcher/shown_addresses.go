package dispatcher

import (
	"net/netip"
	"regexp"
	"strings"
)

// HiddenAddress stands for an address in the text of an error.
const HiddenAddress = "(address)"

// addressLike matches what may be an address, with a port or without, and the length of a prefix after it.
var addressLike = regexp.MustCompile(`(\[?[0-9A-Fa-f:.]*[:.][0-9A-Fa-f:.]*(?:%[0-9A-Za-z._-]+)?\]?(?::[0-9]+)?)(/[0-9]+)?`)

// HideAddresses returns a text with HiddenAddress for each IP address in it, with its port, and the addresses. Apps see the
// text: what a name leads to, and which name server says so, tells about the network of the operator. own, the address that
// the job itself names, stays; so do networks, which rules name. The zero Addr is none.
func HideAddresses(text string, own netip.Addr) (shown string, hidden []string) {
	shown = addressLike.ReplaceAllStringFunc(text, func(match string) string {
		parts := addressLike.FindStringSubmatch(match)
		found := strings.TrimRight(parts[1], ":.")
		addr, ok := addressIn(found)
		if !ok || own.IsValid() && addr.Unmap() == own.Unmap() || isNetwork(found+parts[2]) {
			return match
		}
		hidden = append(hidden, found)
		return HiddenAddress + match[len(found):]
	})
	return shown, hidden
}

// addressIn returns the address that a text is, with a port or without.
func addressIn(text string) (netip.Addr, bool) {
	if with, err := netip.ParseAddrPort(text); err == nil {
		return with.Addr(), true
	}
	addr, err := netip.ParseAddr(strings.Trim(text, "[]"))
	return addr, err == nil
}

// isNetwork tells whether a text is a network, and no address with more than a network.
func isNetwork(text string) bool {
	network, err := netip.ParsePrefix(text)
	return err == nil && network == network.Masked()
}
