package dispatcher

import (
	"slices"

	"github.com/carillon-dev/carillon/dispatcher/routing"
)

// Strategy is how an endpoint of a group is chosen.
type Strategy = routing.Strategy

// RoundRobin is the strategy of a group that names none.
const RoundRobin = routing.RoundRobin

// Strategies are those that a group may have: all that choose one endpoint.
var Strategies = slices.DeleteFunc(routing.Strategies(), func(s Strategy) bool { return s == routing.Broadcast })
