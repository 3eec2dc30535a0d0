package provider

import (
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/target"
)

func groupSchema() schema.Schema {
	return schema.Schema{
		MarkdownDescription: "An endpoint group: several HTTP endpoints that do the same work. A job whose `target` is the group " +
			"sends each run to one of them. Endpoints are declared here, register themselves by heartbeat, or come from DNS. Import it by " +
			"`app/group`.\n\n" +
			"Endpoints that registered themselves or come from DNS are no part of the state: the data source `carillon_endpoints` shows them.\n\n" +
			"A group that is the target of a job is not deleted. Terraform destroys a group before it updates the jobs that used it, so " +
			"remove the uses in one apply and the group in the next one, or set `create_before_destroy` in its `lifecycle` block.",
		Attributes: rememberTypes(map[string]schema.Attribute{
			"id":           idAttribute("group", planImportID{}),
			"app":          appAttribute("group"),
			"name":         nameAttribute("group", ""),
			"description":  descriptionAttribute(),
			"kind":         groupKindAttribute(),
			"app_name":     optionalString("For `xxl_job`, the AppName that executors register under. Default: the name of the group."),
			"access_token": accessTokenAttribute(),
			"path": optionalString("What follows the URL of each endpoint, before the `path` of a job, such as `/jobs`. It begins with `/`. " +
				"Default: nothing follows."),
			"strategy": stringWithDefault(target.RoundRobin, "How the endpoint of a run is chosen, unless the job says otherwise: "+
				either(target.Strategies)+"."),
			"signing": signingAttribute(),
			"auth":    authAttribute(),
			"tls":     tlsAttribute(),
			"server_name": optionalString("Host name that all endpoints get as `Host`, and that their certificates must have, for endpoints " +
				"whose URLs hold addresses. Default: the host of each URL and, for addresses from DNS, their name."),
			"probe":        probeAttribute(),
			"endpoint":     endpointAttribute(),
			"registration": registrationAttribute(),
			"dns":          dnsAttribute(),
			"health_check": healthCheckAttribute(),
			"eject_after":  ejectAfterAttribute(),
			"revision":     revisionAttribute("group", ""),
		}),
	}
}

func groupKindAttribute() schema.StringAttribute {
	kind := stringWithDefault(target.GroupHTTP, "Protocol of the endpoints: `http` for web servers that take the request of a job, or "+
		"`xxl_job` for executors of XXL-JOB, which move over by changing one address. Changing it replaces the group.")
	kind.PlanModifiers = []planmodifier.String{stringplanmodifier.RequiresReplace()}
	return kind
}

func accessTokenAttribute() schema.SingleNestedAttribute {
	return optionalObject("For `xxl_job`, the access token that executors and Carillon send one another. A group of that kind must have "+
		"one, and then no `signing`, `auth` and `health_check`. Set `reference` or `value`. Default: none.", secretAttributes())
}

func probeAttribute() schema.SingleNestedAttribute {
	return optionalObject("How endpoints are asked before they get a run. Only the strategies `failover`, `busyover` and "+
		"`global_busyover` ask. Default: the default of each argument.", map[string]schema.Attribute{
		"alive_path": stringWithDefault(target.DefaultAlivePath, "Path below `path` to which `failover` sends a `GET`. An "+
			"endpoint that responds with 2xx is alive."),
		"idle_path": stringWithDefault(target.DefaultIdlePath, "Path below `path` to which `busyover` and `global_busyover` send a "+
			"`GET`, `busyover` with the query parameter `job`. An endpoint that responds with 2xx is idle."),
		"timeout": durationWithDefault(target.DefaultProbeTimeout, "Time limit of a probe, from `100ms` to `1m`."),
	})
}

func endpointAttribute() schema.MapNestedAttribute {
	return schema.MapNestedAttribute{
		Optional: true,
		MarkdownDescription: fmt.Sprintf("An endpoint; its label is its id (%s). A group has at most %d, together with those that registered "+
			"themselves. Default: none, so endpoints have to register or to come from DNS.", nameRule, target.MaxEndpoints),
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"url": requiredString("Absolute URL, `http` or `https`, without a query and not a template. The `path` of the group and that of " +
				"the job follow it."),
			"weight": numberWithDefault(1, fmt.Sprintf("The endpoint's share with the strategies that know one, `1` to `%d`.",
				target.MaxEndpointWeight)),
			"backup": boolWithDefault(false, "Whether the endpoint is chosen only while no other one is up."),
			"labels": optionalStringMap("Labels by which people and programs tell endpoints apart, such as `{ zone = \"a\" }`. Default: none."),
		}},
	}
}

func endpointType() types.ObjectType {
	return endpointAttribute().GetType().(types.MapType).ElemType.(types.ObjectType)
}

func registrationAttribute() schema.SingleNestedAttribute {
	return optionalObject("Lets endpoints register themselves, with a token of the scope `register`. Default: none may register.",
		map[string]schema.Attribute{
			"networks": schema.ListAttribute{
				Required: true, ElementType: types.StringType,
				MarkdownDescription: "Networks, such as `10.0.0.0/16`, in which registered endpoints must be. Nodes check the address that they " +
					"dial, too. A registered endpoint gets no request and no secret outside of them.",
			},
			"ports": schema.ListAttribute{
				Required: true, ElementType: types.NumberType,
				MarkdownDescription: "Ports on which registered endpoints may listen, `1` to `65535`.",
			},
			"heartbeat": durationWithDefault(target.DefaultEndpointHeartbeat, "How often an endpoint registers again, from `1s` to `1h`."),
			"expire_after": durationWithDefault(target.DefaultEndpointExpireAfter, "How long an endpoint stays after its last heartbeat; "+
				"at least twice `heartbeat`."),
		})
}
