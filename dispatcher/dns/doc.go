// Package dns queries name servers for the addresses and services of a name, and returns the TTL of the answers.
//
// The resolver of Go's standard library does not return TTLs, and it hides the priorities of services whose targets it
// cannot resolve. Members of endpoint groups need both. This package queries the servers of /etc/resolv.conf, or given
// ones, as a stub resolver (RFC 1035, RFC 2782, RFC 6891): over UDP, and over TCP if a response was truncated. Names
// are absolute; search domains are not applied. It caches nothing.
package dns
