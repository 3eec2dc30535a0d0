package dispatcher

import "github.com/carillon-dev/carillon/dispatcher/routing"

// Strategy is how an endpoint of a group is chosen.
type Strategy = routing.Strategy

// RoundRobin is the strategy of a group that names none.
const RoundRobin = routing.RoundRobin

// Strategies are those that a group may have: all that choose one endpoint.
var Strategies = []Strategy{
	routing.First, routing.Last, routing.Random, routing.RoundRobin, routing.Weighted, routing.ConsistentHash, routing.LeastFrequentlyUsed,
	routing.LeastRecentlyUsed, routing.LeastConnections, routing.Failover, routing.BusyOver, routing.GlobalBusyOver,
}
