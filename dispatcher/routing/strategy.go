package routing

import "fmt"

// Strategy is how a job chooses among the endpoints of a group.
type Strategy string

// The strategies. Weights count where the comment says so; all others ignore them.
const (
	// First is the endpoint with the lowest ID, Last the one with the highest.
	First Strategy = "first"
	Last  Strategy = "last"
	// Random draws an endpoint. Weights are probabilities.
	Random Strategy = "random"
	// RoundRobin goes through the endpoints by ID.
	RoundRobin Strategy = "round_robin"
	// Weighted gives each endpoint fires in proportion to its weight, evenly mixed rather than in bursts.
	Weighted Strategy = "weighted"
	// ConsistentHash sends equal keys to the same endpoint. Weights are shares of the keys.
	ConsistentHash Strategy = "consistent_hash"
	// LeastFrequentlyUsed is the endpoint with the fewest turns; among equals, the one whose last turn is
	// longest ago. An endpoint that is new or comes up again begins with as few turns as any other has.
	LeastFrequentlyUsed Strategy = "least_frequently_used"
	// LeastRecentlyUsed is the endpoint whose last turn is longest ago. A new one has the next turn.
	LeastRecentlyUsed Strategy = "least_recently_used"
	// LeastConnections is the endpoint with the fewest requests in flight from this node, divided by its
	// weight; among equals, the one that has had none for longest.
	LeastConnections Strategy = "least_connections"
	// Failover is the first endpoint by ID that is alive, BusyOver the first that is not busy with this job, and
	// GlobalBusyOver the first that is not busy at all; see [Strategy.Asks].
	Failover       Strategy = "failover"
	BusyOver       Strategy = "busyover"
	GlobalBusyOver Strategy = "global_busyover"
	// Broadcast is all endpoints, each with a shard; see [Members.Shards].
	Broadcast Strategy = "broadcast"
)

// Strategies returns all strategies, in the order in which the documentation explains them.
func Strategies() []Strategy {
	return []Strategy{
		First, Last, Random, RoundRobin, Weighted, ConsistentHash, LeastFrequentlyUsed, LeastRecentlyUsed, LeastConnections,
		Failover, BusyOver, GlobalBusyOver, Broadcast,
	}
}

// Question is what a caller asks an endpoint before it sends it a fire. If the endpoint says no or
// nothing, the caller goes on to the next one.
type Question string

// The questions.
const (
	AskNothing    Question = ""             // send the fire at once
	AskAlive      Question = "alive"        // does the endpoint respond?
	AskIdleForJob Question = "idle_for_job" // does it neither run this job nor have it queued?
	AskIdle       Question = "idle"         // does it neither run any job nor have one queued?
)

// Asks returns what has to be asked under a strategy.
func (s Strategy) Asks() Question {
	switch s {
	case Failover:
		return AskAlive
	case BusyOver:
		return AskIdleForJob
	case GlobalBusyOver:
		return AskIdle
	default:
		return AskNothing
	}
}

// check returns an error for a strategy that this version does not have.
func (s Strategy) check() error {
	for _, known := range Strategies() {
		if s == known {
			return nil
		}
	}
	return fmt.Errorf("strategy %q is not known; use one of %q", string(s), Strategies())
}
