package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// nameModel is a block dns of an endpoint group.
type nameModel struct {
	Name   types.String `tfsdk:"name"`
	Type   types.String `tfsdk:"type"`
	Port   types.Number `tfsdk:"port"`
	Scheme types.String `tfsdk:"scheme"`
	Weight types.Number `tfsdk:"weight"`
	Backup types.Bool   `tfsdk:"backup"`
	Labels types.Map    `tfsdk:"labels"`
}

type healthCheckModel struct {
	Path               types.String   `tfsdk:"path"`
	Interval           durationString `tfsdk:"interval"`
	Timeout            durationString `tfsdk:"timeout"`
	HealthyThreshold   types.Number   `tfsdk:"healthy_threshold"`
	UnhealthyThreshold types.Number   `tfsdk:"unhealthy_threshold"`
}

func dnsAttribute() schema.MapNestedAttribute {
	return schema.MapNestedAttribute{
		Optional: true,
		MarkdownDescription: fmt.Sprintf("A name of DNS, each address or service of which is an endpoint; its label is a name of its own (%s). "+
			"Each node asks for it again when its TTL has passed. The endpoints are no part of the state. A group has at most %d names, which "+
			"stand for %d endpoints together. Default: none.", nameRule, target.MaxDNSMembers, target.MaxEndpoints),
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"name": requiredString("Name to ask for, such as `workers.internal`: absolute, in lower case, without a dot at its end."),
			"type": stringWithDefault(target.DNSTypeA, "Type of its records: "+either(target.DNSTypes)+"."),
			"port": schema.NumberAttribute{
				Optional: true,
				MarkdownDescription: "Port of each address, `1` to `65535`. Required unless `type` is `SRV`, whose records have their own. " +
					"Default: none.",
			},
			"scheme": stringWithDefault("http", "`http` or `https`. Certificates must have `name`, or the `server_name` of the group; those of "+
				"services the name of their target."),
			"weight": numberWithDefault(1, fmt.Sprintf("Weight of each address, as that of an `endpoint`, `1` to `%d`. Records of type `SRV` have "+
				"their own.", target.MaxEndpointWeight)),
			"backup": boolWithDefault(false, "Whether each address is chosen only while no other endpoint is up. Of records of type `SRV`, those "+
				"are backups that have not the best priority."),
			"labels": optionalStringMap("Labels of each endpoint. Default: none."),
		}},
	}
}

func nameType() types.ObjectType {
	return dnsAttribute().GetType().(types.MapType).ElemType.(types.ObjectType)
}

func healthCheckAttribute() schema.SingleNestedAttribute {
	return optionalObject("Checks the endpoints of the group. Each node that used the group in the last 5 minutes checks them for itself, "+
		"and sends nothing to those that are down. Default: nobody checks.", map[string]schema.Attribute{
		"path": stringWithDefault(target.DefaultAlivePath, "Path below `path` of the group that is asked with `GET`. An endpoint that "+
			"responds with 2xx is healthy."),
		"interval": durationWithDefault(target.DefaultHealthInterval,
			"Time between the checks of one endpoint by one node, from `1s` to `1h`."),
		"timeout": durationWithDefault(target.DefaultHealthTimeout, "Time limit of a check, from `100ms` to `1m`."),
		"healthy_threshold": numberWithDefault(target.DefaultHealthyThreshold, fmt.Sprintf("How many healthy responses in a row bring an "+
			"endpoint up again, `1` to `%d`.", target.MaxHealthThreshold)),
		"unhealthy_threshold": numberWithDefault(target.DefaultUnhealthyThreshold, fmt.Sprintf("How many failures in a row bring an "+
			"endpoint down, `1` to `%d`.", target.MaxHealthThreshold)),
	})
}

func ejectAfterAttribute() schema.NumberAttribute {
	return numberWithDefault(target.DefaultEjectAfter, fmt.Sprintf("How many failures in a row eject an endpoint, up to `%d`: responses "+
		"of 5xx, connections that break, and timeouts. A node tries an ejected endpoint after all others for some time. `0` means never.",
		target.MaxEjectAfter))
}

func expandNames(ctx context.Context, e *expander, of types.Map) map[string]target.DNSMembers {
	if e.markUnknown("/dns", of) {
		return nil
	}
	all := map[string]target.DNSMembers{}
	for label, element := range of.Elements() {
		object, _ := element.(types.Object)
		at := input.Pointer("dns", label)
		var m nameModel
		if !e.object(ctx, at, object, &m) {
			all[label] = target.DNSMembers{}
			continue
		}
		var d target.DNSMembers
		d.SetDefaults()
		d.Name = e.required(at+"/name", m.Name)
		expandOptional(e, at+"/type", m.Type, &d.Type)
		if d.Port = e.count(at+"/port", m.Port); m.Type.IsUnknown() {
			e.incomplete = append(e.incomplete, at+"/port", at+"/weight", at+"/backup")
		}
		expandOptional(e, at+"/scheme", m.Scheme, &d.Scheme)
		d.Weight = e.count(at+"/weight", m.Weight)
		d.Backup = e.bool(at+"/backup", m.Backup, false)
		d.Labels = e.stringMap(at+"/labels", m.Labels)
		all[label] = d
	}
	return all
}

func expandHealthCheck(ctx context.Context, e *expander, object types.Object) *target.HealthCheck {
	var m healthCheckModel
	if !e.object(ctx, "/health_check", object, &m) {
		return nil
	}
	var h target.HealthCheck
	h.SetDefaults()
	expandOptional(e, "/health_check/path", m.Path, &h.Path)
	h.Interval = e.someTime("/health_check/interval", m.Interval, h.Interval)
	h.Timeout = e.someTime("/health_check/timeout", m.Timeout, h.Timeout)
	h.HealthyThreshold = e.count("/health_check/healthy_threshold", m.HealthyThreshold)
	h.UnhealthyThreshold = e.count("/health_check/unhealthy_threshold", m.UnhealthyThreshold)
	return &h
}

func flattenNames(ctx context.Context, diags *diag.Diagnostics, all map[string]target.DNSMembers, prior types.Map) types.Map {
	names, before := map[string]nameModel{}, prior.Elements()
	for label, d := range all {
		var was nameModel
		object, _ := before[label].(types.Object)
		(&expander{}).object(ctx, "", object, &was)
		d = d.Resolved()
		m := nameModel{
			Name: types.StringValue(d.Name), Type: types.StringValue(string(d.Type)), Port: types.NumberNull(),
			Scheme: types.StringValue(d.Scheme), Weight: flattenNumber(d.Weight), Backup: types.BoolValue(d.Backup),
			Labels: flattenStringMap(ctx, diags, d.Labels, was.Labels),
		}
		if d.Port != 0 {
			m.Port = flattenNumber(d.Port)
		}
		names[label] = m
	}
	return flattenMap(ctx, diags, nameType(), names)
}

func flattenHealthCheck(ctx context.Context, diags *diag.Diagnostics, h *target.HealthCheck) types.Object {
	of := healthCheckAttribute().GetType().(types.ObjectType)
	if h == nil {
		return nullObject(of)
	}
	resolved := h.Resolved()
	return flattenObject(ctx, diags, of, healthCheckModel{
		Path: types.StringValue(resolved.Path), Interval: flattenDuration(resolved.Interval), Timeout: flattenDuration(resolved.Timeout),
		HealthyThreshold: flattenNumber(resolved.HealthyThreshold), UnhealthyThreshold: flattenNumber(resolved.UnhealthyThreshold),
	})
}
