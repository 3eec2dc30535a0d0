package provider

import (
	"context"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/carillon-dev/carillon/provider/protocol"
)

// server is the framework's server, but its resources have blocks in place of nested attributes.
// Terraform silently drops a misspelled name in an object; in a block it reports the line and the
// nearest name. The framework itself does not support blocks with a label, such as trigger
// "nightly" {}, though the protocol does. Both forms have the same type, so the values that
// Terraform and the framework exchange stay as they are.
type server struct {
	tfprotov6.ProviderServer
	provider *carillonProvider
	jobs     jobServer
}

// NewServer returns the server of the provider. version becomes part of the user agent.
func NewServer(ctx context.Context, version string) tfprotov6.ProviderServer {
	p := &carillonProvider{version: version}
	return server{providerserver.NewProtocol6(p)(), p, newJobServer(ctx)}
}

// The methods up to ReadResource pass requests that jobServer does not serve to the framework.

// UpgradeResourceState converts a state to the current schema.
func (s server) UpgradeResourceState(
	ctx context.Context, req *tfprotov6.UpgradeResourceStateRequest,
) (*tfprotov6.UpgradeResourceStateResponse, error) {
	if resp := s.jobs.upgrade(req); resp != nil {
		return resp, nil
	}
	return s.ProviderServer.UpgradeResourceState(ctx, req)
}

// PlanResourceChange returns the planned change of a resource.
func (s server) PlanResourceChange(
	ctx context.Context, req *tfprotov6.PlanResourceChangeRequest,
) (*tfprotov6.PlanResourceChangeResponse, error) {
	if resp, err := s.jobs.plan(ctx, s.provider.conn, req); resp != nil || err != nil {
		return resp, err
	}
	return s.ProviderServer.PlanResourceChange(ctx, req)
}

// ApplyResourceChange applies a planned change.
func (s server) ApplyResourceChange(
	ctx context.Context, req *tfprotov6.ApplyResourceChangeRequest,
) (*tfprotov6.ApplyResourceChangeResponse, error) {
	if resp, err := s.jobs.apply(ctx, s.provider.conn, req); resp != nil || err != nil {
		return resp, err
	}
	return s.ProviderServer.ApplyResourceChange(ctx, req)
}

// ValidateResourceConfig returns the problems of a configuration.
func (s server) ValidateResourceConfig(
	ctx context.Context, req *tfprotov6.ValidateResourceConfigRequest,
) (*tfprotov6.ValidateResourceConfigResponse, error) {
	if resp := s.jobs.validate(ctx, s.provider.conn, req); resp != nil {
		return resp, nil
	}
	return s.ProviderServer.ValidateResourceConfig(ctx, req)
}

// ReadResource returns a resource as the API has it.
func (s server) ReadResource(ctx context.Context, req *tfprotov6.ReadResourceRequest) (*tfprotov6.ReadResourceResponse, error) {
	resp, err := s.jobs.read(ctx, s.provider.conn, req)
	if resp == nil && err == nil {
		resp, err = s.ProviderServer.ReadResource(ctx, req)
	}
	if err == nil {
		err = protocol.NumbersAsText(resp.NewState)
	}
	return resp, err
}

// CallFunction adds the null arguments that OpenTofu omits. The framework would report a broken
// client.
func (s server) CallFunction(ctx context.Context, req *tfprotov6.CallFunctionRequest) (*tfprotov6.CallFunctionResponse, error) {
	call := *req
	call.Arguments = slices.Clone(req.Arguments)
	for i, argument := range call.Arguments {
		if argument == nil || len(argument.MsgPack) == 0 && len(argument.JSON) == 0 {
			call.Arguments[i] = protocol.Null()
		}
	}
	return s.ProviderServer.CallFunction(ctx, &call)
}

// GetProviderSchema returns the framework's schemas with blocks in the resources.
func (s server) GetProviderSchema(
	ctx context.Context, req *tfprotov6.GetProviderSchemaRequest,
) (*tfprotov6.GetProviderSchemaResponse, error) {
	resp, err := s.ProviderServer.GetProviderSchema(ctx, req)
	if err != nil {
		return resp, err
	}
	for _, schema := range resp.ResourceSchemas {
		blocks := protocol.WithBlocks(schema.Block.Attributes)
		schema.Block.Attributes, schema.Block.BlockTypes = blocks.Attributes, append(schema.Block.BlockTypes, blocks.BlockTypes...)
	}
	return resp, nil
}

// jobServer serves the requests about jobs, of which a configuration may have thousands. It does the
// framework's work with a table of the attributes: the framework looks up the schema for each attribute at
// each of several walks through a request, which is most of the cost of a plan. A method returns nil for
// requests that the framework must serve: rare ones, and mistakes for which the framework has a message.
type jobServer struct {
	protocol.Table
	version int64 // of the schema
}

const jobType = "carillon_job"

func newJobServer(ctx context.Context) jobServer {
	schema := jobs(nil).schema()
	return jobServer{protocol.Of(ctx, schema), schema.Version}
}

// upgrade returns the stored state. Terraform has removed attributes that the schema no longer has,
// and takes missing ones for null.
func (s jobServer) upgrade(req *tfprotov6.UpgradeResourceStateRequest) *tfprotov6.UpgradeResourceStateResponse {
	if req.TypeName != jobType || req.Version != s.version || req.RawState == nil || len(req.RawState.JSON) == 0 {
		return nil
	}
	return &tfprotov6.UpgradeResourceStateResponse{UpgradedState: &tfprotov6.DynamicValue{JSON: req.RawState.JSON}}
}

// validate lets the framework report missing attributes, and old clients that would store
// write-only values.
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

// read returns the given state if the job has not changed.
func (s jobServer) read(
	ctx context.Context, conn *connection, req *tfprotov6.ReadResourceRequest,
) (*tfprotov6.ReadResourceResponse, error) {
	if conn == nil || req.TypeName != jobType || len(req.Private) > 0 { // the framework marks new imports there
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

// plan plans jobs that are created, changed or unchanged.
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

// change decodes the values of a plan or an apply.
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
