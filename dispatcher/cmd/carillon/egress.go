package main

import (
	"context"
	"net"
	"net/netip"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/carillon-dev/carillon/dispatcher/invoke"
)

// egressFlags say which addresses targets may have.
type egressFlags struct {
	EgressLoopback bool           `env:"CARILLON_EGRESS_LOOPBACK" help:"Call targets on this node itself, too."`
	EgressDeny     []netip.Prefix `env:"CARILLON_EGRESS_DENY" placeholder:"CIDR,..." help:"Networks that are not called, besides those that never are."`
	EgressPrivate  []netip.Prefix `env:"CARILLON_EGRESS_PRIVATE" placeholder:"CIDR,..." help:"The only private networks that are called, parts of 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10 and fc00::/7; default all."`
}

func (f egressFlags) egress() invoke.Egress {
	return invoke.Egress{Loopback: f.EgressLoopback, Deny: f.EgressDeny, Private: f.EgressPrivate}
}

// ownAddresses returns the addresses of the node's API and of its databases, as far as they are
// known at the start.
func ownAddresses(ctx context.Context, listening net.Addr, databases ...string) []netip.AddrPort {
	own := apiAddresses(listening)
	for _, database := range databases {
		own = append(own, databaseAddresses(ctx, database)...)
	}
	return own
}

// databaseAddresses returns none for what is not PostgreSQL.
func databaseAddresses(ctx context.Context, database string) (own []netip.AddrPort) {
	if !isPostgres(database) {
		return nil
	}
	config, err := pgconn.ParseConfig(database)
	if err != nil {
		return nil // it was opened, so this does not happen
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

// apiAddresses returns those that a listener answers on: if on all, those of all interfaces.
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
		if prefix, err := netip.ParsePrefix(one.String()); err == nil {
			own = append(own, netip.AddrPortFrom(prefix.Addr(), at.Port()))
		}
	}
	return own
}
