// Package node is what a dispatcher node is: the flags that configure it, how it starts over a database, serves the API and the
// console, tells its machine how it is, and ends; and what examines, probes and stops it from outside. It knows no command: package
// main shows them and calls it.
package node
