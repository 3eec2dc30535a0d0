// Command rooms measures the code: its size, its division into packages, and whether imports point one way. It prints
// the measures, and fails if a measure is out of bounds or if the graph in CONTRIBUTING does not match the code.
//
// The bounds of things that are still too large are their current values. Lower them with each change.
package main
