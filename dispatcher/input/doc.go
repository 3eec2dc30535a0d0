// Package input is what all rooms have in common to read what people and programs write: problems with their codes,
// names, texts, durations, instants, labels, JSON, and who asks for a change or a page of a list.
package input
