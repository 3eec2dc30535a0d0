package provider

import (
	"bytes"
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// unchangedJobs plans the jobs whose configuration says what the state says. In most plans that is nearly all of them,
// and the framework spends most of the provider's time on their way through the schema: to set defaults, to mark
// attributes as unknown and to run the plan modifiers. None of these changes anything here. ModifyPlan runs as ever,
// so the plan warns of the same, and resolves again what the configuration leaves out.
type unchangedJobs struct {
	schema   schema.Schema
	kind     tftypes.Type
	defaults map[string]*defaultOf
	required map[string]requiredIn
}

const jobType = "carillon_job"

func newUnchangedJobs(ctx context.Context) unchangedJobs {
	var resp resource.SchemaResponse
	newJobResource().Schema(ctx, resource.SchemaRequest{}, &resp)
	return unchangedJobs{
		schema: resp.Schema, kind: resp.Schema.Type().TerraformType(ctx),
		defaults: defaultsOf(ctx, resp.Schema.Attributes), required: requiredOf(resp.Schema.Attributes),
	}
}

// plan returns nil unless the job is unchanged. Terraform proposes what the configuration says, and elsewhere what the
// state says. If that is the whole state, only a default can still make a difference: the state may hold another value
// since somebody changed the job outside of Terraform.
func (u unchangedJobs) plan(
	ctx context.Context, conn *connection, req *tfprotov6.PlanResourceChangeRequest,
) (*tfprotov6.PlanResourceChangeResponse, error) {
	if conn == nil || req.TypeName != jobType || req.Config == nil || req.PriorState == nil || req.ProposedNewState == nil ||
		len(req.PriorState.MsgPack) == 0 || !bytes.Equal(req.PriorState.MsgPack, req.ProposedNewState.MsgPack) {
		return nil, nil
	}
	prior, err := req.PriorState.Unmarshal(u.kind)
	if err != nil || prior.IsNull() {
		return nil, err
	}
	config, err := req.Config.Unmarshal(u.kind)
	if err != nil || !hold(u.defaults, config, prior) {
		return nil, err
	}
	r := &jobResource{conn: conn, now: clock}
	resp := resource.ModifyPlanResponse{Plan: tfsdk.Plan{Schema: u.schema, Raw: prior}}
	r.ModifyPlan(ctx, resource.ModifyPlanRequest{
		Config: tfsdk.Config{Schema: u.schema, Raw: config},
		Plan:   tfsdk.Plan{Schema: u.schema, Raw: prior},
		State:  tfsdk.State{Schema: u.schema, Raw: prior},
	}, &resp)
	planned := req.PriorState
	if !resp.Plan.Raw.Equal(prior) {
		changed, err := tfprotov6.NewDynamicValue(u.kind, resp.Plan.Raw)
		if err != nil {
			return nil, err
		}
		planned = &changed
	}
	result := &tfprotov6.PlanResourceChangeResponse{PlannedState: planned, PlannedPrivate: req.PriorPrivate}
	for _, p := range resp.RequiresReplace {
		result.RequiresReplace = append(result.RequiresReplace, protocolPath(p))
	}
	result.Diagnostics = protocolDiagnostics(resp.Diagnostics)
	return result, nil
}

// protocolDiagnostics turns diagnostics into what the protocol has, as the framework does.
func protocolDiagnostics(diags diag.Diagnostics) []*tfprotov6.Diagnostic {
	var all []*tfprotov6.Diagnostic
	for _, d := range diags {
		one := &tfprotov6.Diagnostic{Severity: tfprotov6.DiagnosticSeverityWarning, Summary: d.Summary(), Detail: d.Detail()}
		if d.Severity() == diag.SeverityError {
			one.Severity = tfprotov6.DiagnosticSeverityError
		}
		if at, ok := d.(diag.DiagnosticWithPath); ok {
			one.Attribute = protocolPath(at.Path())
		}
		all = append(all, one)
	}
	return all
}

// protocolPath turns a path into what the protocol has. Nothing in a job is a set, whose elements have no keys.
func protocolPath(p path.Path) *tftypes.AttributePath {
	var steps []tftypes.AttributePathStep
	for _, step := range p.Steps() {
		switch step := step.(type) {
		case path.PathStepAttributeName:
			steps = append(steps, tftypes.AttributeName(string(step)))
		case path.PathStepElementKeyString:
			steps = append(steps, tftypes.ElementKeyString(string(step)))
		case path.PathStepElementKeyInt:
			steps = append(steps, tftypes.ElementKeyInt(int64(step)))
		}
	}
	return tftypes.NewAttributePathWithSteps(steps)
}
