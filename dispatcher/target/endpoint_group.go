package target

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/routing"
)

// EndpointGroup is a fleet of workers: several HTTP endpoints that do the same work. Each fire of a job with the
// group as target goes to one of them, by a strategy.
type EndpointGroup struct {
	// App and Name identify the group; the client chooses them, and they cannot change. In a body they are optional,
	// and equal to those in the path.
	App  string `json:"app" schema:"Name"`
	Name string `json:"name" schema:"Name"`
	EndpointGroupSpec
	EndpointGroupStatus `body:"-"`
}

// EndpointGroupSpec is the definition of an endpoint group, as people declare it.
type EndpointGroupSpec struct {
	// Description is free text of at most 1024 characters.
	Description string `json:"description" schema:"max=1024"`
	// Kind is the protocol of the endpoints; empty means http. It cannot change.
	Kind GroupKind `json:"kind,omitempty"`
	XXLJobSettings
	// Path is inserted between the URL of an endpoint and the path of a job; it is empty or begins with /.
	Path string `json:"path,omitempty" schema:"max=2048"`
	// Strategy is how an endpoint is chosen; empty means round_robin.
	Strategy Strategy `json:"strategy,omitempty"`
	// Signing, Auth and TLS are as in Webhook, for all endpoints. A group of kind xxl_job has only TLS.
	Signing *Signing `json:"signing,omitempty"`
	Auth    *Auth    `json:"auth,omitempty"`
	TLS     *TLS     `json:"tls,omitempty"`
	// ServerName is sent to all endpoints as Host and checked in their certificates; empty means the host of each URL.
	ServerName string `json:"server_name,omitempty"`
	// Probe is how strategies ask endpoints whether they are alive, and whether they are busy.
	Probe Probe `json:"probe,omitzero"`
	// Endpoints are the declared endpoints, by their ids; at most MaxEndpoints.
	Endpoints map[string]StaticEndpoint `json:"endpoints,omitempty" schema:"key=Name,max=500"`
	// Registration lets endpoints register themselves; nil if none may.
	Registration *Registration `json:"registration,omitempty"`
	// DNS are names, by names of their own, whose addresses or services are endpoints, too; at most MaxDNSMembers.
	// Together they stand for at most MaxEndpoints endpoints.
	DNS map[string]DNSMembers `json:"dns,omitempty" schema:"key=Name,max=10"`
	// HealthCheck asks endpoints at intervals whether they are healthy; nil if there are no checks.
	HealthCheck *HealthCheck `json:"health_check,omitempty"`
	// EjectAfter is how many failures in a row eject an endpoint: others are tried first for a while; 0 means never.
	EjectAfter int `json:"eject_after" schema:"max=1000,min=0"`
}

// EndpointGroupStatus is what Carillon itself knows about an endpoint group.
type EndpointGroupStatus struct {
	// Revision counts the changes of the group; it is its ETag. Endpoints that come and go do not change it.
	Revision  int64     `json:"revision"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	// RemovalRequestedAt is when somebody asked to delete the group once it is unused; it is removed when no job has it as
	// its target. Nil: it stays. A PUT clears it.
	RemovalRequestedAt *time.Time `json:"removal_requested_at,omitempty"`
}

// StaticEndpoint is an endpoint that the group declares.
type StaticEndpoint struct {
	// URL is absolute, http or https, without a query. The path of the group is appended to it.
	URL string `json:"url" schema:"required,max=2048"`
	// Weight is the endpoint's share with weighted strategies, 1 to MaxEndpointWeight; 0 means 1.
	Weight int `json:"weight,omitempty" schema:"default=1,max=100,min=1"`
	// Backup endpoints are chosen only while no other is up.
	Backup bool `json:"backup,omitempty"`
	// Labels classify endpoints for people and programs.
	Labels input.Labels `json:"labels,omitempty"`
}

// Registration defines which endpoints may register themselves, and how long they stay without a heartbeat.
type Registration struct {
	// Networks must contain the addresses of registered endpoints, in CIDR notation; at least one. They are checked
	// whenever an endpoint is dialled, so that a name cannot resolve to an address elsewhere.
	Networks []string `json:"networks" schema:"required,max=100,min=1"`
	// Ports are the ports that registered endpoints may listen on; at least one.
	Ports []int `json:"ports" schema:"required,each_max=65535,each_min=1,max=100,min=1"`
	// Heartbeat is how often an endpoint registers again; 0 means 30s.
	Heartbeat input.Duration `json:"heartbeat,omitempty"`
	// ExpireAfter is how long an endpoint stays after its last heartbeat; 0 means 90s, and it is at least twice Heartbeat.
	ExpireAfter input.Duration `json:"expire_after,omitempty"`
}

// Probe is a request without a body that an endpoint responds to with 2xx. Executors of a group of kind xxl_job are
// probed by their own protocol, so only Timeout applies to them.
type Probe struct {
	// AlivePath is the path, below that of the group, that strategy failover requests with GET; empty means /healthz.
	AlivePath string `json:"alive_path,omitempty" schema:"default=/healthz"`
	// IdlePath is the path that strategies busyover and global_busyover request with GET; busyover adds the query
	// parameter job. 2xx: the endpoint is idle. Empty means /idle.
	IdlePath string `json:"idle_path,omitempty" schema:"default=/idle"`
	// Timeout bounds a probe; 0 means 3s.
	Timeout input.Duration `json:"timeout,omitempty" schema:"default=3s"`
}

// Bounds of groups and endpoints.
const (
	MaxGroups         = 1000 // of an app
	MaxEndpoints      = 500  // of a group, declared and registered, and as many from DNS
	MaxEndpointWeight = 100
)

// The defaults of registrations and probes.
const (
	DefaultEndpointHeartbeat   = input.Duration(30 * time.Second)
	DefaultEndpointExpireAfter = input.Duration(90 * time.Second)
	DefaultProbeTimeout        = input.Duration(3 * time.Second)
	DefaultAlivePath           = "/healthz"
	DefaultIdlePath            = "/idle"
)

// SetDefaults gives a decoded group the values of fields that its JSON leaves out.
func (g *EndpointGroup) SetDefaults() {
	g.Kind = GroupHTTP
	g.Strategy, g.EjectAfter = RoundRobin, DefaultEjectAfter
	g.Probe = Probe{AlivePath: DefaultAlivePath, IdlePath: DefaultIdlePath, Timeout: DefaultProbeTimeout}
}

// SetDefaults gives a decoded registration the values of fields that its JSON leaves out.
func (r *Registration) SetDefaults() {
	r.Heartbeat, r.ExpireAfter = DefaultEndpointHeartbeat, DefaultEndpointExpireAfter
}

// Endpoint is one of the endpoints that a group has now.
type Endpoint struct {
	// ID is chosen when the endpoint is declared or registered; see CheckName. It is unique within the group.
	ID string `json:"id" schema:"Name"`
	StaticEndpoint
	// Source is where the endpoint came from.
	Source EndpointSource `json:"source" body:"-"`
	// Draining is true if an operator drains the endpoint, so that it gets no new requests.
	Draining bool `json:"draining" body:"-"`
	// RegisteredAt is when the endpoint was first registered or declared, without a break since. For an endpoint from
	// DNS it is since when the responding node knows it.
	RegisteredAt time.Time `json:"registered_at" body:"-"`
	// ExpiresAt is when a registered endpoint is removed unless it registers again; nil for others.
	ExpiresAt *time.Time `json:"expires_at,omitempty" body:"-"`
	// ServerName is, for an address from DNS, the name and port that it gets as Host unless the group sets another;
	// its certificate must have that name.
	ServerName string `json:"server_name,omitempty" body:"-"`
	// Refused is why no request goes to an endpoint from DNS: the node or the bounds of the app refuse its address.
	// Such an endpoint is only shown to operators. Empty if it may be called.
	Refused string `json:"refused,omitempty" body:"-"`
}

// EndpointSource is where an endpoint came from.
type EndpointSource string

// The sources of endpoints.
const (
	EndpointStatic     EndpointSource = "static"     // declared in the group
	EndpointRegistered EndpointSource = "registered" // it registered itself
	EndpointDNS        EndpointSource = "dns"        // from a DNS name of the group
)

// Validate returns everything wrong with g, as Problems with JSON pointers, or nil.
func (g EndpointGroup) Validate() error {
	var problems input.Problems
	input.CheckName(&problems, "/name", g.Name)
	input.CheckText(&problems, "/description", g.Description)
	g.checkKind(&problems)
	if g.Path != "" {
		checkPath(&problems, "/path", g.Path)
	}
	if g.Strategy != "" {
		input.CheckEnum(&problems, "/strategy", "strategy", g.Strategy, Strategies)
	}
	g.Signing.check(&problems, "/signing")
	g.Auth.check(&problems, "/auth", anyEndpoint+"/")
	g.TLS.check(&problems, "/tls")
	if strings.ContainsAny(g.ServerName, "/?#@") {
		problems.Add("/server_name", input.CodeURLHost, "server name %s is not a host name", input.Echo(g.ServerName))
	} else if g.ServerName != "" { // a host name, with or without a port
		checkURL(&problems, "/server_name", "https://"+g.ServerName+"/")
	}
	g.Probe.check(&problems, "/probe")
	g.Registration.check(&problems, "/registration")
	g.checkDNS(&problems)
	g.HealthCheck.check(&problems, "/health_check")
	input.CheckRange(&problems, "/eject_after", g.EjectAfter, 0, MaxEjectAfter)
	if len(g.Endpoints) > MaxEndpoints {
		problems.Add("/endpoints", input.CodeTooMany, "group has %d endpoints; the maximum is %d", len(g.Endpoints), MaxEndpoints)
		return problems.Err()
	}
	for _, id := range input.SortedKeys(g.Endpoints) {
		at := input.Pointer("endpoints", id)
		input.CheckName(&problems, at, id)
		problems.AddError(at, g.Endpoints[id].Validate())
	}
	return problems.Err()
}

// Validate returns everything wrong with e, as Problems with JSON pointers, or nil.
func (e StaticEndpoint) Validate() error {
	var problems input.Problems
	checkURL(&problems, "/url", e.URL)
	if isTemplate(e.URL) {
		problems.Add("/url", input.CodeTemplateHost, "URL of an endpoint cannot be a template; the path of a job can")
	}
	if strings.Contains(e.URL, "?") {
		problems.Add("/url", input.CodeURLSyntax, "URL of an endpoint has a query; give it in the path of the job")
	}
	if e.Weight != 0 {
		input.CheckRange(&problems, "/weight", e.Weight, 1, MaxEndpointWeight)
	}
	e.Labels.Check(&problems, "/labels")
	return problems.Err()
}

func (p Probe) check(problems *input.Problems, at string) {
	if p.AlivePath != "" {
		checkPath(problems, at+"/alive_path", p.AlivePath)
	}
	if p.IdlePath != "" {
		checkPath(problems, at+"/idle_path", p.IdlePath)
	}
	if p.Timeout != 0 {
		p.Timeout.CheckRange(problems, at+"/timeout", input.MinDuration, time.Minute)
	}
}

// checkPath checks a path that is appended to the URL of an endpoint.
func checkPath(problems *input.Problems, at, path string) {
	switch {
	case !strings.HasPrefix(path, "/"):
		problems.Add(at, input.CodeURLSyntax, "path does not begin with /")
	case strings.ContainsAny(path, "?#"):
		problems.Add(at, input.CodeURLSyntax, "path has a query or a fragment; remove the part from ? or # on")
	default:
		var wrong input.Problems
		checkURL(&wrong, at, anyEndpoint+path)
		problems.AddError("", wrong.Err())
	}
}

// Declares reports whether declared, once stored, would equal the stored group g. A given value of a secret always
// counts as different, as in Job.Declares.
func (g EndpointGroup) Declares(declared EndpointGroup) bool {
	return g.RemovalRequestedAt == nil && !GivesSecret(declared) &&
		input.SameJSON(g.Resolved().EndpointGroupSpec, declared.Resolved().EndpointGroupSpec)
}

// GroupBefore holds everything that a PUT of a group depends on.
type GroupBefore struct {
	Old    *EndpointGroup // as it is stored; nil if it is new
	Bounds *Bounds        // of its app
	Groups int            // number in the app; needed for a new group
	Keys   bool           // the node has keys to store secrets with
}

// Unchanged returns the stored group if a PUT of declared would not change it. It refuses a group outside the app's
// bounds.
func (b GroupBefore) Unchanged(declared EndpointGroup) (EndpointGroup, bool) {
	if b.Old == nil || b.Bounds.CheckGroup(declared) != nil || !b.Old.Declares(declared) {
		return EndpointGroup{}, false
	}
	return *b.Old, true
}

// Put returns declared as it is to be stored, with its defaults. The error is Problems: it is outside the bounds of
// its app, would send stored secrets elsewhere than before, or is one group too many.
func (b GroupBefore) Put(declared EndpointGroup) (EndpointGroup, error) {
	group := declared.Resolved()
	var problems input.Problems
	problems.AddError("", b.Bounds.CheckGroup(group))
	var before map[string]Secret
	switch {
	case b.Old != nil:
		problems.AddError("", group.CheckReplaces(*b.Old))
		problems.AddError("", group.CheckKept(*b.Old))
		before = Secrets(*b.Old)
	case b.Groups >= MaxGroups:
		problems.Add("", input.CodeTooMany, "app %s has %d groups already, which is the maximum; delete one that is not used",
			group.App, MaxGroups)
	}
	if err := problems.Err(); err != nil {
		return group, err
	}
	return group, CheckStorable("", Secrets(group), before, b.Keys)
}

// Strategy is how an endpoint of a group is chosen.
type Strategy = routing.Strategy

// RoundRobin is the strategy of a group that names none.
const RoundRobin = routing.RoundRobin

// Broadcast is the strategy that spreads runs over all endpoints of a group.
const Broadcast = routing.Broadcast

// Strategies are the strategies that a group may have.
var Strategies = []Strategy{
	routing.First, routing.Last, routing.Random, routing.RoundRobin, routing.Weighted, routing.ConsistentHash, routing.LeastFrequentlyUsed,
	routing.LeastRecentlyUsed, routing.LeastConnections, routing.Failover, routing.BusyOver, routing.GlobalBusyOver,
	routing.Broadcast,
}

// GroupVersion is a group as nodes route to it. It is immutable; a change gives another version.
type GroupVersion struct {
	EndpointGroup
	// Live are the current endpoints, in the order of their ids.
	Live []Endpoint
}

// With returns g with more endpoints. Of two endpoints with the same id, it keeps that of g.
func (g GroupVersion) With(more []Endpoint) GroupVersion {
	all := slices.Concat(g.Live, more)
	slices.SortStableFunc(all, func(a, b Endpoint) int { return cmp.Compare(a.ID, b.ID) })
	g.Live = slices.CompactFunc(all, func(a, b Endpoint) bool { return a.ID == b.ID })
	return g
}

// A run of a job with the strategy broadcast sends no request of its own. It is the parent of one run for each endpoint that
// takes part, its shards, and ends when all of them have ended. A shard has the key of its parent with another Shard, and
// attempts, retries and a webhook-id of its own.

// BroadcastEndpoints returns the ids of the endpoints that take part in a broadcast that begins now, in order: all
// that do not drain, without backups unless there are only backups. Endpoints that do not respond are included;
// another endpoint then takes the shard.
func (g GroupVersion) BroadcastEndpoints() []string {
	endpoints := make([]routing.Endpoint, len(g.Live))
	for i, e := range g.Live {
		state := routing.Up
		if e.Draining {
			state = routing.Draining
		}
		endpoints[i] = routing.Endpoint{ID: e.ID, Weight: e.Weight, Backup: e.Backup, State: state}
	}
	shards := routing.NewGroup(0).NewMembers(endpoints).Shards()
	ids := make([]string, len(shards))
	for i, shard := range shards {
		ids[i] = shard.Endpoint
	}
	return ids
}

// Strategy returns the strategy of a call to an endpoint group, from the target or else the group; empty for others.
func (c *Call) Strategy() Strategy {
	switch {
	case c.Target.Group == nil:
		return ""
	case c.Target.Group.Strategy != "":
		return c.Target.Group.Strategy
	case c.Group != nil && c.Group.Strategy != "":
		return c.Group.Strategy
	}
	return RoundRobin
}

// CheckKept returns a problem, with a pointer in g, for each secret that keeps the stored value of old but could go
// where old could not send it: to another declared origin or name of DNS, to a network or port that old took no
// registrations from, or under another server name. So a stored secret cannot be redirected to another host.
func (g EndpointGroup) CheckKept(old EndpointGroup) error {
	elsewhere := g.sendsBeyond(old)
	var problems input.Problems
	given, before := Secrets(g), Secrets(old)
	for _, path := range input.SortedKeys(given) {
		to := elsewhere
		is, was := g.Auth.oauth2(), old.Auth.oauth2()
		if to == "" && isOAuth2Secret(path) && is != nil && was != nil && is.origin() != was.origin() {
			to = "token endpoint " + input.Echo(is.origin())
		}
		if to != "" && given[path].Stored && before[path].Stored {
			problems.Add(path+"/stored", input.CodeSecretOrigin,
				"the stored value was given before the group could send it to %s; give it again (in Terraform, with another value_version), "+
					"or refer to the secret as %s", to, SecretForms)
		}
	}
	return problems.Err()
}

// sendsBeyond names a place that g may send requests to and old may not; empty if there is none.
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

func (e StaticEndpoint) origin() string { return (&Webhook{URL: e.URL}).origin() }

// takesBeyond names a network or port that r takes registrations from and old does not; empty if there is none.
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
