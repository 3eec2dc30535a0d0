// Package limit bounds what callers of a node can take of it: how many requests they make in a minute (Rates), how many
// connections they keep (Listener), how much memory their requests use at once (Memory), and how many lines they cause in
// the log (Lines). What it keeps about callers is bounded, however many there are.
package limit
