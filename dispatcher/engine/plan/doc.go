// Package plan is what will fire when on this node: which triggers are its own among the nodes of the fleet, what is due of
// them before the next poll, by the database's clock, and the definitions that a fire needs.
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
