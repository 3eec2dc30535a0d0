package provider

import (
	"context"
	"fmt"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/carillon-dev/carillon/provider/binding"
	"github.com/carillon-dev/carillon/provider/protocol"
)

// server is the framework's server for all but resources. It serves the requests about resources itself, with a table
// of the attributes of each: a configuration may have thousands of jobs, and the framework looks up the schema for each
// attribute at each of several walks through a request. Besides, the framework knows neither required blocks nor blocks
// with names, whose order has no meaning.
type server struct {
	tfprotov6.ProviderServer
	provider  *carillonProvider
	resources map[string]served // by their type
}

// served is a kind of resource.
type served struct {
	protocol.Table
	of func(*connection) kind
}

// NewServer returns the server of the provider. version becomes part of the user agent.
func NewServer(ctx context.Context, version string) tfprotov6.ProviderServer {
	p := &carillonProvider{version: version}
	s := server{providerserver.NewProtocol6(p)(), p, map[string]served{}}
	for _, of := range kinds {
		about := of(nil).about()
		s.resources[binding.ResourceType(about.kind)] = served{protocol.Of(ctx, about.schema()), of}
	}
	return s
}

// kindOf returns the kind of a resource, with the connection of the provider.
func (s server) kindOf(name string) (served, kind, error) {
	r, known := s.resources[name]
	if !known {
		return r, nil, fmt.Errorf("there is no resource type %s", name)
	}
	conn := s.provider.conn
	if conn == nil { // as during validation
		conn = unconfigured()
	}
	return r, r.of(conn), nil
}

// UpgradeResourceState returns the stored state. Terraform has removed attributes that the schema no longer has, and
// takes missing ones for null.
func (s server) UpgradeResourceState(
	ctx context.Context, req *tfprotov6.UpgradeResourceStateRequest,
) (*tfprotov6.UpgradeResourceStateResponse, error) {
	if _, known := s.resources[req.TypeName]; !known || req.Version != 0 || req.RawState == nil || len(req.RawState.JSON) == 0 {
		return s.ProviderServer.UpgradeResourceState(ctx, req) // it says what is wrong
	}
	return &tfprotov6.UpgradeResourceStateResponse{UpgradedState: &tfprotov6.DynamicValue{JSON: req.RawState.JSON}}, nil
}

// ImportResourceState returns the names in an import id as a state. The private data by which the framework knows an
// import would be of no use: ReadResource reads all states alike.
func (s server) ImportResourceState(
	ctx context.Context, req *tfprotov6.ImportResourceStateRequest,
) (*tfprotov6.ImportResourceStateResponse, error) {
	resp, err := s.ProviderServer.ImportResourceState(ctx, req)
	if err == nil {
		for _, one := range resp.ImportedResources {
			one.Private = nil
		}
	}
	return resp, err
}

// ValidateResourceConfig returns the problems of a configuration. It adds no warnings, because Terraform validates each
// resource several times, and before it knows the values of for_each.
func (s server) ValidateResourceConfig(
	ctx context.Context, req *tfprotov6.ValidateResourceConfigRequest,
) (*tfprotov6.ValidateResourceConfigResponse, error) {
	r, kind, err := s.kindOf(req.TypeName)
	if err != nil {
		return nil, err
	}
	given, err := r.Decode(ctx, req.Config)
	if err != nil {
		return nil, err
	}
	config := given[0]
	var diags diag.Diagnostics
	r.Check(&diags, config, req.ClientCapabilities == nil || !req.ClientCapabilities.WriteOnlyAttributesAllowed)
	if !diags.HasError() {
		kind.validate(ctx, &diags, config.Values)
	}
	return &tfprotov6.ValidateResourceConfigResponse{Diagnostics: config.Diagnostics(diags)}, nil
}

// ReadResource returns a resource as the API has it.
func (s server) ReadResource(ctx context.Context, req *tfprotov6.ReadResourceRequest) (*tfprotov6.ReadResourceResponse, error) {
	r, kind, err := s.kindOf(req.TypeName)
	if err != nil {
		return nil, err
	}
	given, err := r.Decode(ctx, req.CurrentState)
	if err != nil {
		return nil, err
	}
	state := given[0]
	var diags diag.Diagnostics
	kept := privateIn(req.Private)
	model, found := kind.read(ctx, &diags, state.Values, &kept)
	resp := &tfprotov6.ReadResourceResponse{NewState: req.CurrentState, Private: kept.data(), Diagnostics: state.Diagnostics(diags)}
	switch {
	case diags.HasError():
		return resp, nil
	case !found:
		resp.NewState = protocol.Null()
		return resp, nil
	}
	resp.NewState, err = r.Settled(ctx, state, model)
	return resp, err
}

// PlanResourceChange returns the planned change of a resource.
func (s server) PlanResourceChange(
	ctx context.Context, req *tfprotov6.PlanResourceChangeRequest,
) (*tfprotov6.PlanResourceChangeResponse, error) {
	r, kind, err := s.kindOf(req.TypeName)
	if err != nil {
		return nil, err
	}
	resp := &tfprotov6.PlanResourceChangeResponse{PlannedState: req.ProposedNewState, PlannedPrivate: req.PriorPrivate}
	if protocol.IsNull(req.ProposedNewState) {
		return resp, nil // a destroy
	}
	given, err := r.Decode(ctx, req.Config, req.PriorState)
	if err != nil {
		return nil, err
	}
	config, prior := given[0], given[1]
	change := change{config: config.Values, state: prior.Values, isNew: prior.Values == nil}
	plan, replace, diags := r.Resolve(ctx, config, prior)
	if change.plan = plan; !diags.HasError() {
		plan = kind.planned(ctx, &diags, change)
	}
	resp.Diagnostics, resp.RequiresReplace = config.Diagnostics(diags), config.Paths(replace)
	if diags.HasError() {
		return resp, nil
	}
	planned, moves, err := r.Planned(ctx, req.PriorState, plan, config, prior)
	resp.PlannedState = planned
	resp.UnsafeToUseLegacyTypeSystem = moves //nolint:staticcheck // else Terraform refuses a plan that leaves blocks at their places
	return resp, err
}

// ApplyResourceChange creates, updates or deletes a resource.
func (s server) ApplyResourceChange(
	ctx context.Context, req *tfprotov6.ApplyResourceChangeRequest,
) (*tfprotov6.ApplyResourceChangeResponse, error) {
	r, kind, err := s.kindOf(req.TypeName)
	if err != nil {
		return nil, err
	}
	given, err := r.Decode(ctx, req.Config, req.PlannedState, req.PriorState)
	if err != nil {
		return nil, err
	}
	config, plan, prior := given[0], given[1], given[2]
	kept := privateIn(req.PlannedPrivate)
	resp := &tfprotov6.ApplyResourceChangeResponse{NewState: req.PriorState, Private: kept.data()}
	var diags diag.Diagnostics
	if plan.Values == nil {
		if kind.deleted(ctx, &diags, prior.Values, kept); !diags.HasError() {
			resp.NewState = req.PlannedState
		}
		resp.Diagnostics = prior.Diagnostics(diags)
		return resp, nil
	}
	// A plan contains no write-only values.
	model, done := kind.written(ctx, &diags, change{config.Values, plan.Values, prior.Values, prior.Values == nil, &kept})
	resp.Private = kept.data()
	if done {
		resp.NewState, err = r.Settled(ctx, plan, model)
	}
	resp.Diagnostics = config.Diagnostics(diags)
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
