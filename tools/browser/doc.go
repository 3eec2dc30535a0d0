// Package browser tests the console in Chromium, as people with and without rights use it: it follows every link, submits
// every form, and lets axe judge every page.
package browser
