// Package input has the types and checks that all packages share for input of people and programs: problems with
// their codes, names, texts, durations, instants, labels, JSON, requests for changes, and pages of lists.
package input
