// Package dns asks name servers for the addresses and services of a name, and says for how long their answers hold.
//
// The resolver of Go's standard library does not tell the TTL of what it finds, and it hides the priorities of services
// whose targets it cannot resolve. Members of endpoint groups need both. This package asks the servers of
// /etc/resolv.conf, or those that it is given, as a stub resolver does (RFC 1035, RFC 2782, RFC 6891): over UDP, and over
// TCP if a response was truncated. Names are absolute; search domains are not applied. It caches nothing.
package dns
