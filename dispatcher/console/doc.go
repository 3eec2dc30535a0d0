// Package console serves the web console: pages made on the server, which work without JavaScript. It calls the API
// through the typed client, in process, so that scopes, bounds, paging, problems and the audit log exist once.
//
// # A request
//
// Every request passes, in this order: the limits of the API, the client certificate if one is needed, the protection
// against requests of other sites, and the session. Then it is served by a screen, which reads, or by an action, which
// writes and redirects to a screen. Reading records only the use of a session.
//
// # Where things are
//
// routes.go has the table of screens and actions. screen_NAME.go has those of a topic, templates/NAME.html is the page
// of a screen, and texts/LANGUAGE.json holds all its words. Package kit has the building blocks of pages. Links are
// relative, so that the console works below any path.
package console
