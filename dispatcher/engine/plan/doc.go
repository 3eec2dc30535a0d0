// Package plan is the schedule of this node: its own triggers among the nodes of the fleet, their fires that are due
// before the next poll, by the database's clock, and the definitions that a fire needs.
//
//	fleet, shares   which nodes are live, and which fires are this one's
//	clock           a lower bound of the database's clock
//	poll, floor     reads what is due, from what is left on
//	ahead, timeline the fires that were read, and those that are ready to be claimed
//	definitions     jobs, groups, triggers and calendars, as they were read
//	claims          the tokens of claims that are on their way
//
// Its steps are called by loops of package engine.
package plan
