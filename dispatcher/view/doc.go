// Package view is what people look at: what needs attention, timelines, what is to come and what has been counted.
package view
