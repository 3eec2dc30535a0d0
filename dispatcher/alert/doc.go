// Package alert decides when an alert begins and ends to hold, and what is told of it: what people declare, the states of
// its conditions, and the machine that leads from one to the next. How a notification is written and where it goes is
// the target's.
package alert
