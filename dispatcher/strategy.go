package dispatcher

import "github.com/carillon-dev/carillon/dispatcher/routing"

// Strategy is how an endpoint of a group is chosen.
type Strategy = routing.Strategy

// RoundRobin is the strategy of a group that names none.
const RoundRobin = routing.RoundRobin

// Broadcast is the strategy of jobs whose runs are spread over all endpoints of their group.
const Broadcast = routing.Broadcast

// Strategies are those that a group may have.
var Strategies = []Strategy{
	routing.First, routing.Last, routing.Random, routing.RoundRobin, routing.Weighted, routing.ConsistentHash, routing.LeastFrequentlyUsed,
	routing.LeastRecentlyUsed, routing.LeastConnections, routing.Failover, routing.BusyOver, routing.GlobalBusyOver,
	routing.Broadcast,
}
