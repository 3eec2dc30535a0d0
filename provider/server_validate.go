package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// validate returns nil if the framework has something to say. It looks at each attribute for validators, of which a job
// has none, for what is missing, and for write-only values that the client would store. ValidateConfig runs as ever.
func (u unchangedJobs) validate(
	ctx context.Context, conn *connection, req *tfprotov6.ValidateResourceConfigRequest,
) (*tfprotov6.ValidateResourceConfigResponse, error) {
	if req.TypeName != jobType || req.Config == nil || req.ClientCapabilities == nil ||
		!req.ClientCapabilities.WriteOnlyAttributesAllowed {
		return nil, nil
	}
	config, err := req.Config.Unmarshal(u.kind)
	if err != nil || !complete(u.required, config) {
		return nil, err
	}
	r := &jobResource{conn: conn, now: clock}
	var resp resource.ValidateConfigResponse
	r.ValidateConfig(ctx, resource.ValidateConfigRequest{Config: tfsdk.Config{Schema: u.schema, Raw: config}}, &resp)
	return &tfprotov6.ValidateResourceConfigResponse{Diagnostics: protocolDiagnostics(resp.Diagnostics)}, nil
}

// requiredIn says which attributes of an object must be set, themselves or inside.
type requiredIn struct {
	required bool
	inner    map[string]requiredIn
	keyed    bool // inner is of each element of a map
}

func requiredOf(attributes map[string]schema.Attribute) map[string]requiredIn {
	all := map[string]requiredIn{}
	for name, a := range attributes {
		r := requiredIn{required: a.IsRequired()}
		switch a := a.(type) {
		case schema.SingleNestedAttribute:
			r.inner = requiredOf(a.Attributes)
		case schema.MapNestedAttribute:
			r.inner, r.keyed = requiredOf(a.NestedObject.Attributes), true
		}
		if r.required || len(r.inner) > 0 {
			all[name] = r
		}
	}
	return all
}

// complete reports whether everything that is required is set, or not known yet.
func complete(required map[string]requiredIn, config tftypes.Value) bool {
	if config.IsNull() || !config.IsKnown() {
		return true
	}
	var values map[string]tftypes.Value
	if config.As(&values) != nil {
		return false
	}
	for name, r := range required {
		value := values[name]
		switch {
		case r.required && value.IsNull():
			return false
		case len(r.inner) == 0 || value.IsNull() || !value.IsKnown():
		case r.keyed:
			var elements map[string]tftypes.Value
			if value.As(&elements) != nil {
				return false
			}
			for _, element := range elements {
				if !complete(r.inner, element) {
					return false
				}
			}
		case !complete(r.inner, value):
			return false
		}
	}
	return true
}
