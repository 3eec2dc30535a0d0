// Package browser tests the console in Chromium, as people with and without rights: it follows
// every link, submits every form, and checks every page with axe.
package browser
