// Package platform talks to the platform that a node runs on: its service manager, its container,
// its cloud.
//
// It decides nothing about what fires or when. Each part is a small client of one interface of the
// platform, written against its documentation, and a node works the same without it.
package platform
