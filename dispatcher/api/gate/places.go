package gate

import (
	"context"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/limit"
)

// placePatience is how long a request waits for a place that others have.
const placePatience = 2 * time.Second

// Places are for requests under way, from before their bodies are read until their responses are written. Tokens that
// are bound to no app are operators'. Their requests count only for their token, not for an address or among those of
// apps, so that no app takes a place of theirs.
//
// A place alone holds no connection; see package limit. Connections are held while the node works on a request: for
// apps at most half of all connections, and for operators a quarter. The last quarter is never held.
func (l *limits) appPlaces() int { return l.Connections / 2 }

func (l *limits) operatorPlaces() int { return max(1, l.Connections/4) }

// callerPlaces is how many places one app has, and one token of apps.
func (l *limits) callerPlaces() int { return max(min(l.appPlaces(), 16), l.Connections/8) }

// addressPlace is one of the places of an address. The other half of its connections is for probes and operators.
func (l *limits) addressPlace(client netip.Addr) limit.Place {
	return limit.Place{Key: "address " + client.String(), Most: max(1, l.AddressConnections/2)}
}

// placesOf returns the places that a request of a caller needs.
func (l *limits) placesOf(r *Request) (wanted []limit.Place) {
	app := r.boundApp()
	if app == "" {
		return []limit.Place{{Key: "token " + r.Token.Name, Most: l.operatorPlaces()}}
	}
	kind := "app "
	switch { // a late callback makes its target repeat work, so other requests of its app do not delay it
	case r.Attempt != 0:
		kind = "callbacks of app "
	case r.Executors != nil:
		kind = "executors of app "
	}
	wanted = append(wanted, limit.Place{Key: kind + app, Most: l.callerPlaces()})
	if r.Token.ID != "" {
		wanted = append(wanted, limit.Place{Key: "token " + r.Token.Name, Most: l.callerPlaces()})
	}
	return append(wanted, l.addressPlace(r.client))
}

// takePlace waits for a place for r. It is free again at the end of the request.
func (g *Gate) takePlace(r *Request) error {
	if r.anonymous() {
		return nil
	}
	release, err := g.take(r, g.limits.placesOf(r)...)
	if err == nil {
		r.releases = append(r.releases, release)
	}
	return err
}

// hold waits until the node may work on r, and keeps its connection until r.unhold is called.
func (g *Gate) hold(r *Request) error {
	if r.anonymous() {
		return nil
	}
	place := limit.Place{Key: "apps", Most: g.limits.appPlaces()}
	if len(r.Token.Apps) == 0 {
		place = limit.Place{Key: "operators", Most: g.limits.operatorPlaces()}
	}
	release, err := g.take(r, place)
	if err != nil {
		return err
	}
	letGo := limit.Hold(r.Context())
	r.unhold = sync.OnceFunc(func() {
		letGo()
		release()
	})
	return nil
}

// take waits for places.
func (g *Gate) take(r *Request, wanted ...limit.Place) (release func(), err error) {
	ctx, cancel := context.WithTimeout(r.Context(), placePatience)
	defer cancel()
	release, full := g.limits.places.Take(ctx, wanted...)
	if release == nil {
		return nil, g.limited(r, limitedPlaces, strconv.Itoa(full.Most)+" requests of "+input.Echo(full.Key)+
			" are under way on this node, which is the most; make fewer at a time, and send bodies at once", placePatience)
	}
	return release, nil
}

// VisitBody waits for a place for the body of a request outside of the API. It returns a function to call when the body
// is read, or how long the caller has to wait. The body counts for the token of the request, or for its address if it
// has none, as at a login.
func (g *Gate) VisitBody(hr *http.Request, token access.APIToken) (leave func(), wait time.Duration) {
	client, hr := g.clientOf(hr)
	r := &Request{Request: hr, ID: requestID(hr), client: client, Now: clock(), Token: token}
	wanted := []limit.Place{g.limits.addressPlace(client)}
	if token.ID != "" {
		wanted = g.limits.placesOf(r)
	}
	leave, err := g.take(r, wanted...)
	if err != nil {
		return nil, placePatience
	}
	return leave, 0
}
