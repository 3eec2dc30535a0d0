package provider

import (
	"context"
	"errors"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// read returns nil if the job was just imported, or if its private state says anything else that is for the framework.
// It reads the job as the framework would, but does not walk through the schema for a job that is as it was.
func (u unchangedJobs) read(
	ctx context.Context, conn *connection, req *tfprotov6.ReadResourceRequest,
) (*tfprotov6.ReadResourceResponse, error) {
	if conn == nil || req.TypeName != jobType || req.CurrentState == nil || len(req.CurrentState.MsgPack) == 0 || len(req.Private) > 0 {
		return nil, nil
	}
	prior, err := req.CurrentState.Unmarshal(u.kind)
	if err != nil || prior.IsNull() {
		return nil, err
	}
	r := &jobResource{conn: conn, now: clock}
	resp := resource.ReadResponse{State: tfsdk.State{Schema: u.schema, Raw: prior}}
	r.Read(ctx, resource.ReadRequest{State: tfsdk.State{Schema: u.schema, Raw: prior}}, &resp)
	result := &tfprotov6.ReadResourceResponse{NewState: req.CurrentState, Diagnostics: protocolDiagnostics(resp.Diagnostics)}
	if resp.Diagnostics.HasError() || resp.State.Raw.Equal(prior) {
		return result, nil
	}
	settled, err := settle(ctx, u.schema.Type(), prior, resp.State.Raw)
	if err != nil {
		return nil, err
	}
	changed, err := tfprotov6.NewDynamicValue(u.kind, settled)
	result.NewState = &changed
	return result, err
}

// settle returns what was read, but keeps each text of the state that means the same, such as 60s for 1m.
func settle(ctx context.Context, kind attr.Type, prior, read tftypes.Value) (tftypes.Value, error) {
	if prior.IsNull() || read.IsNull() || read.Equal(prior) {
		return read, nil
	}
	switch kind := kind.(type) {
	case attr.TypeWithAttributeTypes:
		of := kind.AttributeTypes()
		return settleEach(read, prior, func(name string, before, now tftypes.Value) (tftypes.Value, error) {
			return settle(ctx, of[name], before, now)
		})
	case types.MapType:
		return settleEach(read, prior, func(_ string, before, now tftypes.Value) (tftypes.Value, error) {
			return settle(ctx, kind.ElemType, before, now)
		})
	case types.ListType:
		var before, now []tftypes.Value
		if err := errors.Join(prior.As(&before), read.As(&now)); err != nil {
			return read, err
		}
		for i := range min(len(before), len(now)) {
			element, err := settle(ctx, kind.ElemType, before[i], now[i])
			if err != nil {
				return read, err
			}
			now[i] = element
		}
		return tftypes.NewValue(read.Type(), now), nil
	}
	before, errBefore := kind.ValueFromTerraform(ctx, prior)
	now, errNow := kind.ValueFromTerraform(ctx, read)
	if err := errors.Join(errBefore, errNow); err != nil {
		return read, err
	}
	if now, ok := now.(basetypes.StringValuableWithSemanticEquals); ok {
		if same, diags := now.StringSemanticEquals(ctx, before.(basetypes.StringValuable)); same && !diags.HasError() {
			return prior, nil
		}
	}
	return read, nil
}

// settleEach settles the attributes of an object or the elements of a map.
func settleEach(
	read, prior tftypes.Value, settle func(name string, before, now tftypes.Value) (tftypes.Value, error),
) (tftypes.Value, error) {
	var before, now map[string]tftypes.Value
	if err := errors.Join(prior.As(&before), read.As(&now)); err != nil {
		return read, err
	}
	for name, value := range now {
		old, ok := before[name]
		if !ok {
			continue
		}
		settled, err := settle(name, old, value)
		if err != nil {
			return read, err
		}
		now[name] = settled
	}
	return tftypes.NewValue(read.Type(), now), nil
}
