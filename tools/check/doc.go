// Check runs the checks of the repository and records their results.
//
// A step is one named part of "make check", a row of the table in steps.go: its command, or the tests that name it
// by need.Step, and the paths of the files that concern it. "make check" runs all steps and .ci/run the steps that
// the rota chooses (rota.go). Each writes one JSON line to a file, which "make check-report" prints as a table.
//
// Every step runs in its own temporary directory. A step that leaves a process or a file behind fails
// (leftovers.go).
package main
