// Package plan is the schedule of this node: its own triggers among the nodes of the fleet, their fires that are due
// before the next poll, by the database's clock, and the definitions that a fire needs.
//
//	fleet, shares   the live nodes, and the fires of this one
//	clock           a lower bound of the database's clock
//	poll, floor     reads due fires, from the earliest one left on
//	ahead, timeline the fires that were read, and those that are ready to be claimed
//	definitions     jobs, groups, triggers and calendars, as they were read
//	claims          the tokens of claims that are on their way
//
// Loops of package engine call its steps.
package plan
