// Package loop is what the loops of a node have in common: how they pause, wake each other, ask the database until it answers,
// and show that they turn.
package loop
