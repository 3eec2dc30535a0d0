// Package view has data for people: problems that need attention, timelines, upcoming fires and statistics.
package view
