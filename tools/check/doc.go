// Check runs the checks of the repository and keeps account of them.
//
// A step is one named part of "make check", a row of the table in steps.go: its command, or the tests that name it
// by need.Step, and the paths whose changes it has to do with. "make check" runs all of them, the rota of .ci/run
// some (rota.go), and each writes one JSON line to a file, which "make check-report" prints as a table.
//
// Every step runs in a temporary directory of its own and in the care of this process: what it leaves behind, be it a
// process, a file there or a file in the checkout, makes it fail (leftovers.go).
package main
