package console

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/client"
)

const (
	// sessionPatience is how long a page waits for the session: without the database, people are to hear of it soon.
	sessionPatience = 3 * time.Second
	// outageRetry is after how many seconds a browser may ask again.
	outageRetry = "5"
)

// outagePage says that the database cannot be reached, to anybody: without the database nobody can be signed in, so it holds
// nothing that is secret.
type outagePage struct {
	// Since is when the node last reached its database; zero: it is not known.
	Since time.Time
	// Retry lets the browser load the page again by itself.
	Retry bool
}

// databaseAway tells whether an error is there because the database cannot be reached. A refusal of the API's or the console's own
// is none.
func (v *visit) databaseAway(err error) bool {
	if _, own := errors.AsType[*pageError](err); own || v.console.opts.API == nil {
		return false
	}
	if of, is := errors.AsType[*client.Error](err); is && of.Status != http.StatusServiceUnavailable {
		return false
	}
	if v.Context().Err() != nil {
		return false // the browser is gone
	}
	return v.console.opts.API.DatabaseAway(v.Context())
}

// showOutage says that the database cannot be reached.
func (v *visit) showOutage(err error) {
	v.console.log.WarnContext(v.Context(), "page of the console not shown: database unavailable", "request_id", v.id, "path", v.URL.Path,
		"err", err)
	page := outagePage{Retry: v.Method == http.MethodGet}
	if v.console.opts.Reached != nil {
		page.Since, _ = v.console.opts.Reached()
	}
	v.w.Header().Set("Retry-After", outageRetry)
	v.render("outage", content{Data: page, Status: http.StatusServiceUnavailable})
}

// errHeartbeat is why a page that needs no database is not shown: who sees it would have to sign in.
var errHeartbeat = errors.New("the heartbeats of this node do not reach the database")

// cannotSignIn shows that the database cannot be reached to somebody without a session, in place of the login. It asks the database
// only if heartbeats have not reached it.
func (v *visit) cannotSignIn() bool {
	if v.console.opts.Reached == nil {
		return false
	}
	if _, well := v.console.opts.Reached(); well || !v.databaseAway(errHeartbeat) {
		return false
	}
	v.showOutage(errHeartbeat)
	return true
}

// soon bounds what a page waits for the database.
func (v *visit) soon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(v.Context(), sessionPatience)
}
