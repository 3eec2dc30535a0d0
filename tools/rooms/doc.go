// Command rooms measures the house: how much there is, how it is divided, and whether imports point one way. It prints
// what it measured, and fails if something is outside its bounds or if the graph in CONTRIBUTING is not the one there is.
//
// The bounds of what is still too large are what it is now, so that it only gets smaller: lower them with each change.
package main
