package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/carillon-dev/carillon/provider/protocol"
)

// jobServer serves the requests about jobs, of which a configuration may have thousands. It does what the framework would
// do, but with a table of the attributes: the framework looks up the schema again for each attribute at each of several
// walks through a request, which is most of what a plan costs. A method returns nil if the request is one for
// the framework: it is rare, or there is a mistake that the framework has a message for.
type jobServer struct {
	protocol.Table
	version int64 // of the schema
}

const jobType = "carillon_job"

func newJobServer(ctx context.Context) jobServer {
	schema := jobSchema()
	return jobServer{protocol.Of(ctx, schema), schema.Version}
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
	given, ok := s.Decode(ctx, req.Config)
	if !ok || !s.Complete(given[0]) {
		return nil
	}
	var diags diag.Diagnostics
	jobs(conn).validate(ctx, &diags, given[0])
	return &tfprotov6.ValidateResourceConfigResponse{Diagnostics: protocol.Diagnostics(diags)}
}

// read returns the state that it got if the job is as it was.
func (s jobServer) read(
	ctx context.Context, conn *connection, req *tfprotov6.ReadResourceRequest,
) (*tfprotov6.ReadResourceResponse, error) {
	if conn == nil || req.TypeName != jobType || len(req.Private) > 0 { // the framework marks there what was just imported
		return nil, nil
	}
	given, ok := s.Decode(ctx, req.CurrentState)
	if !ok {
		return nil, nil
	}
	resp := &tfprotov6.ReadResourceResponse{NewState: req.CurrentState}
	var diags diag.Diagnostics
	model, found := jobs(conn).read(ctx, &diags, given[0])
	resp.Diagnostics = protocol.Diagnostics(diags)
	switch {
	case diags.HasError():
		return resp, nil
	case !found:
		resp.NewState = protocol.Null()
		return resp, nil
	}
	var err error
	resp.NewState, err = s.Settled(ctx, req.CurrentState, given[0], model)
	return resp, err
}

// plan plans jobs that are created or changed, or stay as they are.
func (s jobServer) plan(
	ctx context.Context, conn *connection, req *tfprotov6.PlanResourceChangeRequest,
) (*tfprotov6.PlanResourceChangeResponse, error) {
	if conn == nil || req.TypeName != jobType || len(req.PriorPrivate) > 0 {
		return nil, nil
	}
	change, ok := s.change(ctx, req.Config, req.ProposedNewState, req.PriorState)
	if !ok {
		return nil, nil
	}
	replace, diags := s.Resolve(ctx, change.config, change.plan, change.state)
	if diags.HasError() {
		return nil, nil
	}
	planned := jobs(conn).planned(ctx, &diags, change)
	resp := &tfprotov6.PlanResourceChangeResponse{
		PlannedState: req.PriorState, Diagnostics: protocol.Diagnostics(diags), RequiresReplace: protocol.Paths(replace),
	}
	if change.isNew || !planned.Equal(change.state) {
		var err error
		if resp.PlannedState, err = s.Encode(ctx, planned); err != nil {
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
	change, ok := s.change(ctx, req.Config, req.PlannedState, req.PriorState)
	if !ok {
		return nil, nil
	}
	var diags diag.Diagnostics
	model, done := jobs(conn).written(ctx, &diags, change)
	resp := &tfprotov6.ApplyResourceChangeResponse{NewState: req.PriorState}
	if done {
		var err error
		if resp.NewState, err = s.Settled(ctx, req.PlannedState, change.plan, model); err != nil {
			return nil, err
		}
	}
	resp.Diagnostics = protocol.Diagnostics(diags)
	return resp, nil
}

// change decodes what a plan or an apply is about.
func (s jobServer) change(ctx context.Context, config, planned, prior *tfprotov6.DynamicValue) (c change, ok bool) {
	sources := []*tfprotov6.DynamicValue{config, planned}
	if c.isNew = protocol.IsNull(prior); !c.isNew {
		sources = append(sources, prior)
	}
	given, ok := s.Decode(ctx, sources...)
	if !ok {
		return c, false
	}
	if c.config, c.plan = given[0], given[1]; !c.isNew {
		c.state = given[2]
	}
	return c, true
}
