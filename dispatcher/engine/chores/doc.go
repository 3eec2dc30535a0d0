// Package chores is the periodic work of a node apart from its fires: every 15 s, for the fleet, for apps and for
// itself. New lists the chores as rows: a step, its interval, and the lock that keeps other nodes from it.
//
// The package also adopts runs without a node, for the loops of package engine that look for them.
package chores
