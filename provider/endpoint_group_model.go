package provider

import (
	"cmp"
	"context"
	"strconv"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// groupModel is a carillon_endpoint_group in configuration, plan and state. Its objects and maps are Terraform values and
// not structs, because any of them may be unknown in a plan.
type groupModel struct {
	definitionModel
	Kind         types.String `tfsdk:"kind"`
	AppName      types.String `tfsdk:"app_name"`
	AccessToken  types.Object `tfsdk:"access_token"`
	Path         types.String `tfsdk:"path"`
	Strategy     types.String `tfsdk:"strategy"`
	Signing      types.Object `tfsdk:"signing"`
	Auth         types.Object `tfsdk:"auth"`
	TLS          types.Object `tfsdk:"tls"`
	ServerName   types.String `tfsdk:"server_name"`
	Probe        types.Object `tfsdk:"probe"`
	Endpoints    types.Map    `tfsdk:"endpoint"`
	Registration types.Object `tfsdk:"registration"`
	DNS          types.Map    `tfsdk:"dns"`
	HealthCheck  types.Object `tfsdk:"health_check"`
	EjectAfter   types.Number `tfsdk:"eject_after"`
}

type probeModel struct {
	AlivePath types.String   `tfsdk:"alive_path"`
	IdlePath  types.String   `tfsdk:"idle_path"`
	Timeout   durationString `tfsdk:"timeout"`
}

type endpointModel struct {
	URL    types.String `tfsdk:"url"`
	Weight types.Number `tfsdk:"weight"`
	Backup types.Bool   `tfsdk:"backup"`
	Labels types.Map    `tfsdk:"labels"`
}

type registrationModel struct {
	Networks    types.List     `tfsdk:"networks"`
	Ports       types.List     `tfsdk:"ports"`
	Heartbeat   durationString `tfsdk:"heartbeat"`
	ExpireAfter durationString `tfsdk:"expire_after"`
}

// expandGroup returns the group that a model describes.
func expandGroup(ctx context.Context, e *expander, m groupModel) target.EndpointGroup {
	var g target.EndpointGroup
	g.SetDefaults()
	g.App = e.string("/app", m.App)
	g.Name = e.string("/name", m.Name)
	g.Description = e.string("/description", m.Description)
	expandKind(ctx, e, m, &g)
	expandOptional(e, "/path", m.Path, &g.Path)
	expandOptional(e, "/strategy", m.Strategy, &g.Strategy)
	g.Signing = expandSigning(ctx, e, "/signing", m.Signing)
	g.Auth = expandAuth(ctx, e, "/auth", m.Auth)
	g.TLS = expandTLS(ctx, e, "/tls", m.TLS)
	expandOptional(e, "/server_name", m.ServerName, &g.ServerName)
	g.Probe = expandProbe(ctx, e, m.Probe, g.Probe)
	g.Registration = expandRegistration(ctx, e, m.Registration)
	g.DNS = expandNames(ctx, e, m.DNS)
	g.HealthCheck = expandHealthCheck(ctx, e, m.HealthCheck)
	g.EjectAfter = e.whole("/eject_after", m.EjectAfter, g.EjectAfter, input.CodeCountRange, "give a whole number, or 0 for never")
	if e.markUnknown("/endpoints", m.Endpoints) {
		return g
	}
	g.Endpoints = map[string]target.StaticEndpoint{}
	for id, element := range m.Endpoints.Elements() {
		object, _ := element.(types.Object)
		g.Endpoints[id] = expandEndpoint(ctx, e, input.Pointer("endpoints", id), object)
	}
	return g
}

// expandKind expands what says which protocol the endpoints speak.
func expandKind(ctx context.Context, e *expander, m groupModel, g *target.EndpointGroup) {
	expandOptional(e, "/kind", m.Kind, &g.Kind)
	expandOptional(e, "/app_name", m.AppName, &g.AppName)
	if m.Kind.IsUnknown() { // it decides which of these may be there
		e.incomplete = append(e.incomplete, "/app_name", "/access_token", "/signing", "/auth")
	}
	if e.markUnknown("/access_token", m.AccessToken) || m.AccessToken.IsNull() {
		return
	}
	g.AccessToken = new(expandSecret(ctx, e, "/access_token", m.AccessToken))
}

func expandProbe(ctx context.Context, e *expander, object types.Object, probe target.Probe) target.Probe {
	var m probeModel
	if e.object(ctx, "/probe", object, &m) {
		expandOptional(e, "/probe/alive_path", m.AlivePath, &probe.AlivePath)
		expandOptional(e, "/probe/idle_path", m.IdlePath, &probe.IdlePath)
		probe.Timeout = e.someTime("/probe/timeout", m.Timeout, probe.Timeout)
	}
	return probe
}

func expandEndpoint(ctx context.Context, e *expander, pointer string, object types.Object) target.StaticEndpoint {
	var m endpointModel
	if !e.object(ctx, pointer, object, &m) {
		return target.StaticEndpoint{}
	}
	return target.StaticEndpoint{
		URL:    e.required(pointer+"/url", m.URL),
		Weight: e.count(pointer+"/weight", m.Weight),
		Backup: e.bool(pointer+"/backup", m.Backup, false),
		Labels: e.stringMap(pointer+"/labels", m.Labels),
	}
}

func expandRegistration(ctx context.Context, e *expander, object types.Object) *target.Registration {
	var m registrationModel
	if !e.object(ctx, "/registration", object, &m) {
		return nil
	}
	var r target.Registration
	r.SetDefaults()
	r.Networks = e.stringList("/registration/networks", m.Networks)
	r.Ports = e.ports("/registration/ports", m.Ports)
	r.Heartbeat = e.someTime("/registration/heartbeat", m.Heartbeat, r.Heartbeat)
	r.ExpireAfter = e.someTime("/registration/expire_after", m.ExpireAfter, r.ExpireAfter)
	if m.Heartbeat.IsUnknown() { // expire_after must be twice as long
		e.incomplete = append(e.incomplete, "/registration/expire_after")
	}
	return &r
}

// someTime expands a duration of which zero is not a value: the API takes it for the default.
func (e *expander) someTime(pointer string, v durationString, otherwise input.Duration) input.Duration {
	before := len(e.problems)
	d := e.duration(pointer, v, otherwise)
	if d == 0 && len(e.problems) == before {
		e.problems.Add(pointer, input.CodeDurationMin, "duration 0s is too short; leave it out for the default")
	}
	return d
}

// ports expands a list of ports, as stringList does.
func (e *expander) ports(pointer string, v types.List) []int {
	elements := e.list(pointer, v)
	if elements == nil {
		return nil
	}
	all := make([]int, 0, len(elements))
	for i, element := range elements {
		port, _ := element.(types.Number)
		at := pointer + "/" + strconv.Itoa(i)
		e.rejectNull(at, port)
		all = append(all, e.whole(at, port, 0, input.CodeCountRange, "give a port from 1 to 65535"))
	}
	return all
}

func flattenPorts(ctx context.Context, diags *diag.Diagnostics, ports []int) types.List {
	var all []types.Number
	for _, port := range ports {
		all = append(all, flattenNumber(port))
	}
	return flattenList(ctx, diags, types.NumberType, all)
}

// flattenGroup returns the model of a group from the API. prior is the plan or state that it replaces; flatten.go says why
// that matters.
func flattenGroup(ctx context.Context, diags *diag.Diagnostics, g target.EndpointGroup, prior groupModel) groupModel {
	var e expander
	expandGroup(ctx, &e, prior)
	secrets := secretFlattener{diags: diags, versions: e.versions}
	m := groupModel{
		definitionModel: flattenDefinition(g.App, g.Name, g.Description, g.Revision),
		Kind:            types.StringValue(string(cmp.Or(g.Kind, target.GroupHTTP))),
		AppName:         flattenOptional(g.AppName),
		AccessToken:     flattenAccessToken(ctx, secrets, g.AccessToken),
		Path:            flattenOptional(g.Path),
		Strategy:        types.StringValue(string(cmp.Or(g.Strategy, target.RoundRobin))),
		Signing:         flattenSigning(ctx, secrets, signingAttribute().GetType().(types.ObjectType), g.Signing),
		Auth:            flattenAuth(ctx, secrets, authAttribute().GetType().(types.ObjectType), g.Auth),
		TLS:             flattenTLS(ctx, secrets, tlsAttribute().GetType().(types.ObjectType), g.TLS),
		ServerName:      flattenOptional(g.ServerName),
		Probe:           flattenProbe(ctx, diags, g.Probe, prior.Probe),
		Registration:    flattenRegistration(ctx, diags, g.Registration),
		DNS:             flattenNames(ctx, diags, g.DNS, prior.DNS),
		HealthCheck:     flattenHealthCheck(ctx, diags, g.HealthCheck),
		EjectAfter:      flattenNumber(g.EjectAfter),
	}
	endpoints, before := map[string]endpointModel{}, prior.Endpoints.Elements()
	for id, endpoint := range g.Endpoints {
		var was endpointModel
		object, _ := before[id].(types.Object)
		(&expander{}).object(ctx, "", object, &was)
		endpoints[id] = endpointModel{
			URL: types.StringValue(endpoint.URL), Weight: flattenNumber(max(endpoint.Weight, 1)), Backup: types.BoolValue(endpoint.Backup),
			Labels: flattenStringMap(ctx, diags, endpoint.Labels, was.Labels),
		}
	}
	m.Endpoints = flattenMap(ctx, diags, endpointType(), endpoints)
	return m
}

func flattenAccessToken(ctx context.Context, f secretFlattener, token *target.Secret) types.Object {
	of := accessTokenAttribute().GetType().(types.ObjectType)
	if token == nil {
		return nullObject(of)
	}
	return flattenObject(ctx, f.diags, of, f.model("/access_token", *token))
}

// flattenProbe returns null if prior has none and the probe is the default: a plan cannot add a block that the configuration
// leaves out.
func flattenProbe(ctx context.Context, diags *diag.Diagnostics, p target.Probe, prior types.Object) types.Object {
	of := probeAttribute().GetType().(types.ObjectType)
	var standard target.EndpointGroup
	standard.SetDefaults()
	p = target.Probe{
		AlivePath: cmp.Or(p.AlivePath, standard.Probe.AlivePath), IdlePath: cmp.Or(p.IdlePath, standard.Probe.IdlePath),
		Timeout: cmp.Or(p.Timeout, standard.Probe.Timeout),
	}
	if prior.IsNull() && p == standard.Probe {
		return nullObject(of)
	}
	return flattenObject(ctx, diags, of, probeModel{
		AlivePath: types.StringValue(p.AlivePath), IdlePath: types.StringValue(p.IdlePath), Timeout: flattenDuration(p.Timeout),
	})
}

func flattenRegistration(ctx context.Context, diags *diag.Diagnostics, r *target.Registration) types.Object {
	of := registrationAttribute().GetType().(types.ObjectType)
	if r == nil {
		return nullObject(of)
	}
	return flattenObject(ctx, diags, of, registrationModel{
		Networks:    flattenList(ctx, diags, types.StringType, r.Networks),
		Ports:       flattenPorts(ctx, diags, r.Ports),
		Heartbeat:   flattenDuration(cmp.Or(r.Heartbeat, target.DefaultEndpointHeartbeat)),
		ExpireAfter: flattenDuration(cmp.Or(r.ExpireAfter, target.DefaultEndpointExpireAfter)),
	})
}
