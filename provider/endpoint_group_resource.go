package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// groupKind is what messages call an endpoint group.
const groupKind = "endpoint group"

// groups is carillon_endpoint_group. Its model is in endpoint_group_model.go.
func groups(c *connection) kind[groupModel] {
	return &definition[target.EndpointGroup, groupModel]{
		heading: heading{groupKind, groupSchema, importNested("group", "billing/workers")}, conn: c,
		expand: expandGroup, flatten: flattenGroup, check: target.EndpointGroup.Validate,
		api: requests[target.EndpointGroup]{
			(*client.Client).PutGroup, (*client.Client).Group, (*client.Client).DeleteGroup,
			func(g target.EndpointGroup) int64 { return g.Revision },
		},
		secrets: secretsOf[target.EndpointGroup]{
			target.Secrets[target.EndpointGroup], target.WithSecrets[target.EndpointGroup], target.EndpointGroup.CheckKept,
			func(e *expander, _ string) bool {
				return e.allKnown("/endpoints") && e.allKnown("/registration") && e.allKnown("/auth/oauth2/token_url")
			},
		},
		bounds: func(bounds *target.Bounds, g target.EndpointGroup) error { return bounds.CheckGroup(g) },
		planning: func(_ context.Context, c *connection, _ *diag.Diagnostics, p planned[target.EndpointGroup]) {
			c.groups.planned.set(p.declared.App+"/"+p.declared.Name, true)
		},
		inUse: input.Problem{Code: input.CodeGroupInUse, Message: "Terraform destroys a group before it updates the jobs that used it. " +
			"Give these jobs another target in one apply and remove the group in the next one, or set create_before_destroy in the " +
			"lifecycle block of the group."},
	}
}
