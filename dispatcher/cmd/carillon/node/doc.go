// Package node is the dispatcher node: the flags that configure it, its start over a database, the
// API and the console, its signals to the machine, and its end; and the commands that examine,
// probe and stop it from outside. It knows no command line: package main calls it.
package node
