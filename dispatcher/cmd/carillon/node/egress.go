package node

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
)

// egressFlags restrict the addresses of targets.
type egressFlags struct {
	EgressLoopback bool             `env:"CARILLON_EGRESS_LOOPBACK" help:"Also call targets on this node itself."`
	EgressDeny     []netip.Prefix   `env:"CARILLON_EGRESS_DENY" placeholder:"CIDR,..." help:"Additional networks that are never called."`
	EgressPrivate  []netip.Prefix   `env:"CARILLON_EGRESS_PRIVATE" placeholder:"CIDR,..." help:"Private networks that apps may call, within 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10 and fc00::/7, unless the bounds of an app list other networks. Default: none."`
	NameServers    []netip.AddrPort `env:"CARILLON_NAME_SERVERS" placeholder:"ADDRESS:PORT,..." help:"Name servers that know the members of endpoint groups from DNS. Default: those of /etc/resolv.conf."`
}

func (f egressFlags) egress() web.Egress {
	return web.Egress{Loopback: f.EgressLoopback, Deny: f.EgressDeny, Private: f.EgressPrivate}
}

// denyOwn denies the addresses of the node's API and database. It makes the other nodes deny those of the API, too.
func (o *Options) denyOwn(ctx context.Context, listening net.Addr) {
	apis := apiAddresses(listening)
	for _, address := range apis {
		o.Engine.APIAddresses = append(o.Engine.APIAddresses, address.String())
	}
	o.Target.Egress.Own = slices.Concat(
		apis, databaseAddresses(ctx, o.Database.Database), databaseAddresses(ctx, o.notify))
	if at, err := netip.ParseAddrPort(listening.String()); err == nil && at.Addr().IsUnspecified() {
		o.Target.Egress.OwnPorts = []uint16{at.Port()} // also at addresses that the machine gets later
	}
}

// databaseAddresses returns the addresses of a PostgreSQL database, and none for other databases.
func databaseAddresses(ctx context.Context, database string) (own []netip.AddrPort) {
	if !isPostgres(database) {
		return nil
	}
	config, err := pgconn.ParseConfig(database)
	if err != nil {
		return nil // never: the database is open
	}
	hosts := append([]*pgconn.FallbackConfig{{Host: config.Host, Port: config.Port}}, config.Fallbacks...)
	for _, at := range hosts {
		if strings.HasPrefix(at.Host, "/") {
			continue // a socket
		}
		addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", at.Host)
		if err != nil {
			continue
		}
		for _, addr := range addresses {
			own = append(own, netip.AddrPortFrom(addr.Unmap(), at.Port))
		}
	}
	return own
}

// apiAddresses returns the addresses of a listener. If it listens on all addresses, they are those
// of all interfaces.
func apiAddresses(listening net.Addr) []netip.AddrPort {
	at, err := netip.ParseAddrPort(listening.String())
	if err != nil || !at.Addr().IsUnspecified() {
		return []netip.AddrPort{at}
	}
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var own []netip.AddrPort
	for _, one := range interfaces {
		// Link-local addresses are never called, and the machines of many nodes share them.
		if prefix, err := netip.ParsePrefix(one.String()); err == nil && !prefix.Addr().IsLinkLocalUnicast() {
			own = append(own, netip.AddrPortFrom(prefix.Addr(), at.Port()))
		}
	}
	return own
}
