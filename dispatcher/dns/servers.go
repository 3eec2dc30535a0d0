package dns

import (
	"bufio"
	"net/netip"
	"os"
	"strings"
)

// configFile names the servers of the machine. It is read for each question: questions are rare, and containers change
// it without notice.
const configFile = "/etc/resolv.conf"

// mostServers is how many servers of the file are asked, as by other resolvers.
const mostServers = 3

// port is that of name servers.
const port = 53

// servers returns the servers that the file lists. Without any, it is the machine itself, as for other resolvers.
func servers(file string) []netip.AddrPort {
	local := []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)}
	opened, err := os.Open(file)
	if err != nil {
		return local
	}
	defer opened.Close()
	var all []netip.AddrPort
	for lines := bufio.NewScanner(opened); lines.Scan() && len(all) < mostServers; {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if addr, err := netip.ParseAddr(fields[1]); err == nil {
			all = append(all, netip.AddrPortFrom(addr, port))
		}
	}
	if len(all) == 0 {
		return local
	}
	return all
}
