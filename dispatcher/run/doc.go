// Package run is the identity and the outcome of a run: its key and id, its kind, state and class of failure, its attempts,
// the part of a broadcast that it is, the state that it carries, and how its target calls back.
package run
