package dispatcher

import (
	"slices"

	"github.com/carillon-dev/carillon/dispatcher/routing"
)

// Strategy is how an endpoint of a group is chosen.
type Strategy = routing.Strategy

// RoundRobin is the strategy of a group that names none.
const RoundRobin = routing.RoundRobin

<<<<<<< HEAD
// Strategies are all strategies that a group may have: those that choose one endpoint.
=======
// Strategies are those that a group may have: all that choose one endpoint.
>>>>>>> v-groups
var Strategies = slices.DeleteFunc(routing.Strategies(), func(s Strategy) bool { return s == routing.Broadcast })
