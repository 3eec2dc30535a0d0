// Package routing chooses which endpoint of a group receives a fire.
//
// # Model
//
// A [Group] exists once for each endpoint group on each node. [Group.NewMembers] takes the group's current endpoints,
// and returns an immutable list; the caller makes a new one whenever an endpoint is added, removed or changes its
// state. A [Router] chooses for one job and has the counters of its [Strategy]. A [Route] is one fire's way to an
// endpoint: each [Route.Next] is the best endpoint that this fire has not tried.
//
//	endpoints --NewMembers--> Members --Router.Route--> Route --Next, Next ...--> endpoints to try
//
// Each try is a turn, whether the endpoint took the request or refused it. So an endpoint that refuses every
// connection is tried as often as any other until its state changes, rather than first by every fire, and its refused
// fires spread over all others instead of loading its neighbor.
//
// # Which endpoints are chosen
//
// Endpoints that are down or draining are never chosen. Suspect ones come after all that are up. Backups are chosen
// only while no primary endpoint is up; then the order is: backups that are up, suspect primaries, suspect backups. A
// strategy orders the endpoints of one such class.
//
// # Several nodes
//
// Nodes share no counters, so a fire does not write to the database. Strategies without counters choose alike on all
// nodes that see the same members. With counters, each node distributes its own fires, and the deviations of N nodes
// add up. With n endpoints that stay up and never refuse:
//
//   - round_robin, least_recently_used: the counts of two endpoints differ by N at most, in any period,
//     even if other endpoints come and go.
//   - least_frequently_used: the same, but counted from the start of the nodes; by 2N in any period.
//   - weighted: from the start of the nodes, an endpoint gets less than N more than its share, and at
//     most N·(1 + 1/2 + ... + 1/n) less; in any period without a change of members, it is off its share
//     by the sum of the two at most. Over a change, an endpoint keeps what it is ahead or behind, so that
//     changes hardly add up unless there are more changes than fires.
//   - random: counts have a binomial distribution, for any N.
//   - least_connections: on its own node, the chosen endpoint has the fewest requests in flight for its
//     weight. If requests only begin, counts of endpoints with equal weights differ by N at most.
//
// This package does no I/O and knows no clock. It is deterministic for a seed and a sequence of calls.
package routing
