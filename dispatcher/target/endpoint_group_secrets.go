package target

import (
	"net/netip"
	"slices"
	"strconv"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// CheckKept returns a problem for each secret of g that keeps the stored value of old but could be sent where old could
// not send it: to another declared origin or name of DNS, to a network or port from which old took no registrations, or under another
// server name. Nobody can redirect a stored secret to a host of their own. The pointers are those in g.
func (g EndpointGroup) CheckKept(old EndpointGroup) error {
	elsewhere := g.sendsBeyond(old)
	var problems input.Problems
	given, before := Secrets(g), Secrets(old)
	for _, path := range input.SortedKeys(given) {
		to := elsewhere
		if to == "" && isOAuth2Secret(path) {
			to = g.Auth.oauth2().beyond(old.Auth.oauth2())
		}
		if to != "" && given[path].Stored && before[path].Stored {
			problems.Add(path+"/stored", input.CodeSecretOrigin,
				"the stored value was given before the group could send it to %s; give it again (in Terraform, with another value_version), "+
					"or refer to the secret as %s", to, SecretForms)
		}
	}
	return problems.Err()
}

// sendsBeyond names something that g may send requests to and old may not; empty: there is nothing.
func (g EndpointGroup) sendsBeyond(old EndpointGroup) string {
	var known []string
	for _, e := range old.Endpoints {
		known = append(known, e.origin())
	}
	for _, d := range old.DNS {
		known = append(known, d.origin())
	}
	for _, id := range input.SortedKeys(g.Endpoints) {
		if origin := g.Endpoints[id].origin(); !slices.Contains(known, origin) {
			return input.Echo(origin)
		}
	}
	for _, label := range input.SortedKeys(g.DNS) {
		if origin := g.DNS[label].origin(); !slices.Contains(known, origin) {
			return input.Echo(origin)
		}
	}
	if g.ServerName != old.ServerName {
		return "server name " + input.Echo(g.ServerName)
	}
	return g.Registration.takesBeyond(old.Registration)
}

// beyond names the token endpoint of o if it has another origin than that of old; empty: it has not.
func (o *OAuth2Auth) beyond(old *OAuth2Auth) string {
	if o == nil || old == nil || o.origin() == old.origin() {
		return ""
	}
	return "token endpoint " + input.Echo(o.origin())
}

func (e StaticEndpoint) origin() string { return (&Webhook{URL: e.URL}).origin() }

// takesBeyond names a network or port from which r takes registrations and old does not; empty: there is none.
func (r *Registration) takesBeyond(old *Registration) string {
	if r == nil {
		return ""
	}
	if old == nil {
		old = &Registration{}
	}
	before := old.prefixes()
	for _, network := range r.prefixes() {
		if !slices.ContainsFunc(before, func(wider netip.Prefix) bool {
			return wider.Bits() <= network.Bits() && wider.Contains(network.Addr())
		}) {
			return "network " + network.String()
		}
	}
	for _, port := range r.Ports {
		if !slices.Contains(old.Ports, port) {
			return "port " + strconv.Itoa(port)
		}
	}
	return ""
}
