// Package chores is what a node does every 15 s besides its fires: for the fleet, for apps and for itself. New has the chores
// as rows. Each is a step, how often it is made, and the lock that keeps the other nodes from it.
//
// It also adopts runs that no node works on, for the loops of package engine that look for them.
package chores
