// Package loop is the common part of a node's loops: they pause, wake each other, ask the database until it responds,
// and show that they make progress.
package loop
