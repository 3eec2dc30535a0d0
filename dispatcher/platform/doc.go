// Package platform is what a node says to and learns from the machine it runs on: its service manager,
// its container, its cloud.
//
// Nothing here decides what fires or when. Each part is a small client of one interface of the
// platform, written against its documentation, and a node works the same without it.
package platform
