// Package run has the identity and the outcome of a run: its key and id, its kind, state and class of failure, its
// attempts, its shard of a broadcast, the state that it carries, and the callback of its target.
package run
