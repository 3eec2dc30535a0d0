package provider

import (
	"context"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/carillon-dev/carillon/provider/protocol"
)

// server is the framework's server, but its resources have blocks where the framework has nested
// attributes. Terraform drops a misspelled name in an object without a word; in a block it reports
// the line and the nearest name. The framework itself knows no blocks with a label, such as
// trigger "nightly" {}, though the protocol does. Both forms have the same type, so the values that
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

// The methods up to ReadResource leave to the framework what jobServer does not serve.

// UpgradeResourceState returns a state in the form of the current schema.
func (s server) UpgradeResourceState(
	ctx context.Context, req *tfprotov6.UpgradeResourceStateRequest,
) (*tfprotov6.UpgradeResourceStateResponse, error) {
	if resp := s.jobs.upgrade(req); resp != nil {
		return resp, nil
	}
	return s.ProviderServer.UpgradeResourceState(ctx, req)
}

// PlanResourceChange returns what an apply will do with a resource.
func (s server) PlanResourceChange(
	ctx context.Context, req *tfprotov6.PlanResourceChangeRequest,
) (*tfprotov6.PlanResourceChangeResponse, error) {
	if resp, err := s.jobs.plan(ctx, s.provider.conn, req); resp != nil || err != nil {
		return resp, err
	}
	return s.ProviderServer.PlanResourceChange(ctx, req)
}

// ApplyResourceChange does what was planned.
func (s server) ApplyResourceChange(
	ctx context.Context, req *tfprotov6.ApplyResourceChangeRequest,
) (*tfprotov6.ApplyResourceChangeResponse, error) {
	if resp, err := s.jobs.apply(ctx, s.provider.conn, req); resp != nil || err != nil {
		return resp, err
	}
	return s.ProviderServer.ApplyResourceChange(ctx, req)
}

// ValidateResourceConfig returns what is wrong in a configuration.
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

// CallFunction writes null where OpenTofu leaves an argument out that is null. The framework takes that for a broken
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
