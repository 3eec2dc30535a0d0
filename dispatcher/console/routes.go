package console

import (
	"net/http"
	"slices"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/access"
)

// screen is a page that reads. Its route is GET base + path.
type screen struct {
	// name is that of its template, and begins the keys of its texts. Its title is the text NAME.title.
	name string
	// path has wildcards as http.ServeMux has; {app} is the app that the page is about.
	path string
	// needs is the scope without which the page is neither shown in the menu nor served.
	needs access.Scope
	// allApps hides it from tokens that are bound to apps.
	allApps bool
	// menu is its place in the menu, or in that of the app if it has {app} and no other wildcard; 0: it is in none.
	menu int
	show func(*visit) (content, error)
}

// action is a form that writes. Its route is POST base + path.
type action struct {
	// name begins the keys of its texts.
	name, path string
	needs      access.Scope
	allApps    bool
	// page is the screen that shows what was wrong with the form; its path has no other wildcards than that of the action.
	// Empty: a page of its own.
	page string
	do   func(*visit) (done, error)
}

// content is what a screen shows.
type content struct {
	// Title is that of the page; empty: the text NAME.title.
	Title string
	// Data is what the template gets.
	Data any
	// Status is 200 if it is 0.
	Status int
	// Zone is that of the trigger that the page is about; empty: it is about none, or about several with different ones.
	Zone string
	// Refresh permits the page to refresh itself.
	Refresh bool
}

// done is where an action leads.
type done struct {
	// to is the next page; see visit.link.
	to string
	// notice is the key of a text that the next page shows once, and values are names and values for it.
	notice string
	values []any
	// page is shown in place of a redirect, for what can be shown only once; empty: the browser is redirected.
	page    string
	content content
}

// screens lists all screens.
func screens() []screen { return slices.Concat(watchScreens(), operateScreens()) }

// actions lists all actions.
func actions() []action { return slices.Concat(watchActions(), operateActions()) }

// newMux serves screens, actions and what needs no session.
func (c *Console) newMux() *http.ServeMux {
	mux := http.NewServeMux()
	allowed := map[string][]string{}
	serve := func(method, at string, handle func(*visit)) {
		if at == "" || strings.HasSuffix(at, "/") {
			at += "{$}"
		}
		mux.HandleFunc(method+" "+base+at, func(_ http.ResponseWriter, r *http.Request) { handle(visitOf(r)) })
		allowed[at] = append(allowed[at], method)
		if method == http.MethodGet {
			allowed[at] = append(allowed[at], http.MethodHead)
		}
	}
	for _, s := range c.screens {
		serve(http.MethodGet, s.path, c.signedIn(func(v *visit) { v.serveScreen(s) }))
	}
	for _, a := range actions() {
		serve(http.MethodPost, a.path, c.signedIn(func(v *visit) { v.serveAction(a) }))
	}
	serve(http.MethodGet, "login", c.showLogin)
	serve(http.MethodPost, "login", c.login)
	serve(http.MethodGet, "login/oidc", c.beginOIDC)
	serve(http.MethodGet, "login/callback", c.finishOIDC)
	serve(http.MethodPost, "logout", c.logout)
	serve(http.MethodPost, "settings", c.settings)
	serve(http.MethodGet, "assets/{asset}", c.assets.serve)
	for at, methods := range allowed {
		slices.Sort(methods)
		mux.HandleFunc(base+at, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", strings.Join(methods, ", "))
			visitOf(r).fail(&pageError{status: http.StatusMethodNotAllowed, key: "problem.method", values: []any{"method", r.Method}})
		})
	}
	mux.HandleFunc("/", func(_ http.ResponseWriter, r *http.Request) { visitOf(r).fail(notFound("page", r.URL.Path)) })
	return mux
}

// inMenu returns the screens of the menu, or of that of an app, in their order.
func (c *Console) inMenu(ofApp bool) []screen {
	found := slices.DeleteFunc(slices.Clone(c.screens), func(s screen) bool {
		return s.menu == 0 || strings.Contains(s.path, "{app}") != ofApp
	})
	slices.SortStableFunc(found, func(a, b screen) int { return a.menu - b.menu })
	return found
}

// screenOf returns the screen of a name.
func (c *Console) screenOf(name string) (screen, bool) {
	at := slices.IndexFunc(c.screens, func(s screen) bool { return s.name == name })
	if at < 0 {
		return screen{}, false
	}
	return c.screens[at], true
}
