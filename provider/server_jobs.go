package provider

import (
	"bytes"
	"context"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/vmihailenco/msgpack/v5/msgpcode"

	"github.com/carillon-dev/carillon/provider/binding"
)

// jobServer serves the requests about jobs, of which a configuration may have thousands. It does what the framework would
// do, but with a table of the attributes: the framework looks up the schema again for each attribute at each of several
// walks through a request, which is most of what a plan costs. A method returns nil if the request is one for
// the framework: it is rare, or there is a mistake that the framework has a message for.
type jobServer struct {
	kind       types.ObjectType
	version    int64 // of the schema
	attributes map[string]*attribute
}

const jobType = "carillon_job"

func newJobServer(ctx context.Context) jobServer {
	schema := jobSchema()
	return jobServer{schema.Type().(types.ObjectType), schema.Version, attributesIn(ctx, schema.Attributes)}
}

// upgrade returns the state as it is stored. Terraform has removed what the schema no longer has, and takes what is not
// there yet for null.
func (s jobServer) upgrade(req *tfprotov6.UpgradeResourceStateRequest) *tfprotov6.UpgradeResourceStateResponse {
	if req.TypeName != jobType || req.Version != s.version || req.RawState == nil || len(req.RawState.JSON) == 0 {
		return nil
	}
	return &tfprotov6.UpgradeResourceStateResponse{UpgradedState: &tfprotov6.DynamicValue{JSON: req.RawState.JSON}}
}

// validate leaves it to the framework to say that something is missing, and that an old client would store values that
// are write-only.
func (s jobServer) validate(
	ctx context.Context, conn *connection, req *tfprotov6.ValidateResourceConfigRequest,
) *tfprotov6.ValidateResourceConfigResponse {
	if req.TypeName != jobType || req.ClientCapabilities == nil || !req.ClientCapabilities.WriteOnlyAttributesAllowed {
		return nil
	}
	given, ok := s.decode(ctx, req.Config)
	if !ok || !complete(s.attributes, given[0].Attributes()) {
		return nil
	}
	var diags diag.Diagnostics
	jobs(conn).validate(ctx, &diags, given[0].Attributes())
	return &tfprotov6.ValidateResourceConfigResponse{Diagnostics: protocolDiagnostics(diags)}
}

// read returns the state that it got if the job is as it was.
func (s jobServer) read(
	ctx context.Context, conn *connection, req *tfprotov6.ReadResourceRequest,
) (*tfprotov6.ReadResourceResponse, error) {
	if conn == nil || req.TypeName != jobType || len(req.Private) > 0 { // the framework marks there what was just imported
		return nil, nil
	}
	given, ok := s.decode(ctx, req.CurrentState)
	if !ok {
		return nil, nil
	}
	resp := &tfprotov6.ReadResourceResponse{NewState: req.CurrentState}
	var diags diag.Diagnostics
	model, found := jobs(conn).read(ctx, &diags, given[0].Attributes())
	resp.Diagnostics = protocolDiagnostics(diags)
	switch {
	case diags.HasError():
		return resp, nil
	case !found:
		resp.NewState = &tfprotov6.DynamicValue{MsgPack: []byte{msgpcode.Nil}}
		return resp, nil
	}
	var err error
	resp.NewState, err = s.settled(ctx, req.CurrentState, given[0], model)
	return resp, err
}

// plan plans jobs that are created or changed, or stay as they are.
func (s jobServer) plan(
	ctx context.Context, conn *connection, req *tfprotov6.PlanResourceChangeRequest,
) (*tfprotov6.PlanResourceChangeResponse, error) {
	if conn == nil || req.TypeName != jobType || len(req.PriorPrivate) > 0 {
		return nil, nil
	}
	isNew := isNull(req.PriorState)
	sources := []*tfprotov6.DynamicValue{req.Config, req.ProposedNewState}
	if !isNew {
		sources = append(sources, req.PriorState)
	}
	given, ok := s.decode(ctx, sources...)
	if !ok {
		return nil, nil
	}
	prior := types.ObjectNull(s.kind.AttrTypes)
	if !isNew {
		prior = given[2]
	}
	var replace path.Paths
	var diags diag.Diagnostics
	config, plan, before := binding.Values(given[0].Attributes()), binding.Values(given[1].Attributes()), prior.Attributes()
	diags.Append(each(s.attributes, path.Empty(), config, plan, before, filledIn)...)
	changes := isNew || !plan.Equal(before)
	diags.Append(each(s.attributes, path.Empty(), config, plan, before, resolved(ctx, changes, !isNew, &replace))...)
	if diags.HasError() {
		return nil, nil
	}
	planned := jobs(conn).planned(ctx, &diags, change{config, plan, before, isNew})
	resp := &tfprotov6.PlanResourceChangeResponse{
		PlannedState: req.PriorState, Diagnostics: protocolDiagnostics(diags), RequiresReplace: protocolPaths(replace),
	}
	if isNew || !planned.Equal(before) {
		object, found := types.ObjectValue(s.kind.AttrTypes, planned)
		if _, err := checked(object, found); err != nil {
			return nil, err
		}
		var err error
		if resp.PlannedState, err = encodeObject(ctx, object); err != nil {
			return nil, err
		}
	}
	return resp, nil
}

// apply creates and updates jobs.
func (s jobServer) apply(
	ctx context.Context, conn *connection, req *tfprotov6.ApplyResourceChangeRequest,
) (*tfprotov6.ApplyResourceChangeResponse, error) {
	if conn == nil || req.TypeName != jobType || len(req.PlannedPrivate) > 0 {
		return nil, nil
	}
	isNew := isNull(req.PriorState)
	sources := []*tfprotov6.DynamicValue{req.Config, req.PlannedState}
	if !isNew {
		sources = append(sources, req.PriorState)
	}
	given, ok := s.decode(ctx, sources...)
	if !ok {
		return nil, nil
	}
	change := change{config: given[0].Attributes(), plan: given[1].Attributes(), isNew: isNew}
	if !isNew {
		change.state = given[2].Attributes()
	}
	var diags diag.Diagnostics
	model, done := jobs(conn).written(ctx, &diags, change)
	resp := &tfprotov6.ApplyResourceChangeResponse{NewState: req.PriorState}
	if done {
		var err error
		if resp.NewState, err = s.settled(ctx, req.PlannedState, given[1], model); err != nil {
			return nil, err
		}
	}
	resp.Diagnostics = protocolDiagnostics(diags)
	return resp, nil
}

// decode returns jobs that are neither null nor unknown.
func (s jobServer) decode(ctx context.Context, sources ...*tfprotov6.DynamicValue) (all []types.Object, ok bool) {
	for i, value := range sources {
		if value == nil || len(value.MsgPack) == 0 {
			return nil, false
		}
		if i > 0 && bytes.Equal(value.MsgPack, sources[i-1].MsgPack) {
			all = append(all, all[i-1])
			continue
		}
		object, err := decodeObject(ctx, s.kind, value.MsgPack)
		if err != nil || object.IsNull() || object.IsUnknown() {
			return nil, false
		}
		all = append(all, object)
	}
	return all, true
}

// settled returns what the API made of a job, but keeps each text of prior that means the same, such as 60s for 1m. If
// nothing differs, it returns source, from which prior was decoded.
func (s jobServer) settled(
	ctx context.Context, source *tfprotov6.DynamicValue, prior types.Object, model binding.Values,
) (*tfprotov6.DynamicValue, error) {
	object, diags := types.ObjectValue(s.kind.AttrTypes, model)
	if _, err := checked(object, diags); err != nil {
		return nil, err
	}
	value, err := settle(ctx, prior, object)
	if err != nil {
		return nil, err
	}
	if value.Equal(prior) {
		return source, nil
	}
	return encodeObject(ctx, value.(types.Object))
}

func isNull(value *tfprotov6.DynamicValue) bool {
	return value == nil || len(value.MsgPack) == 1 && value.MsgPack[0] == msgpcode.Nil
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

// protocolPaths are in the order of the framework's.
func protocolPaths(paths path.Paths) []*tftypes.AttributePath {
	slices.SortFunc(paths, func(a, b path.Path) int { return strings.Compare(a.String(), b.String()) })
	var all []*tftypes.AttributePath
	for _, p := range paths {
		all = append(all, protocolPath(p))
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
