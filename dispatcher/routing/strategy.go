// Package routing chooses endpoints of groups for fires. It does no I/O and knows no clock.
package routing

// Strategy is how a group chooses the endpoint of a fire.
type Strategy string

// The strategies.
const (
	First               Strategy = "first"
	Last                Strategy = "last"
	Random              Strategy = "random"
	RoundRobin          Strategy = "round_robin"
	Weighted            Strategy = "weighted"
	ConsistentHash      Strategy = "consistent_hash"
	LeastFrequentlyUsed Strategy = "least_frequently_used"
	LeastRecentlyUsed   Strategy = "least_recently_used"
	LeastConnections    Strategy = "least_connections"
	Failover            Strategy = "failover"
	BusyOver            Strategy = "busyover"
	GlobalBusyOver      Strategy = "global_busyover"
)

// Strategies are all strategies.
var Strategies = []Strategy{First, Last, Random, RoundRobin, Weighted, ConsistentHash, LeastFrequentlyUsed, LeastRecentlyUsed,
	LeastConnections, Failover, BusyOver, GlobalBusyOver}
