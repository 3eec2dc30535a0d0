package provider

import (
	"context"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
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
		err = numbersAsText(resp.NewState)
	}
	return resp, err
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
		blocks := withBlocks(schema.Block.Attributes)
		schema.Block.Attributes, schema.Block.BlockTypes = blocks.Attributes, append(schema.Block.BlockTypes, blocks.BlockTypes...)
	}
	return resp, nil
}

// withBlocks returns a block in which the nested attributes that a user may write are blocks.
func withBlocks(attributes []*tfprotov6.SchemaAttribute) *tfprotov6.SchemaBlock {
	block := &tfprotov6.SchemaBlock{}
	for _, a := range attributes {
		if a.NestedType == nil || !a.Required && !a.Optional {
			block.Attributes = append(block.Attributes, a)
			continue
		}
		inner := withBlocks(a.NestedType.Attributes)
		inner.Description, inner.DescriptionKind = a.Description, a.DescriptionKind
		inner.Deprecated, inner.DeprecationMessage = a.Deprecated, a.DeprecationMessage
		nested := &tfprotov6.SchemaNestedBlock{TypeName: a.Name, Block: inner, Nesting: blockNesting(a.NestedType.Nesting)}
		if a.Required && nested.Nesting == tfprotov6.SchemaNestedBlockNestingModeSingle {
			nested.MinItems, nested.MaxItems = 1, 1
		}
		block.BlockTypes = append(block.BlockTypes, nested)
	}
	slices.SortFunc(block.BlockTypes, func(x, y *tfprotov6.SchemaNestedBlock) int { return strings.Compare(x.TypeName, y.TypeName) })
	return block
}

// blockNesting returns the nesting of blocks whose values have the type of the attribute's.
func blockNesting(mode tfprotov6.SchemaObjectNestingMode) tfprotov6.SchemaNestedBlockNestingMode {
	return map[tfprotov6.SchemaObjectNestingMode]tfprotov6.SchemaNestedBlockNestingMode{
		tfprotov6.SchemaObjectNestingModeSingle: tfprotov6.SchemaNestedBlockNestingModeSingle,
		tfprotov6.SchemaObjectNestingModeList:   tfprotov6.SchemaNestedBlockNestingModeList,
		tfprotov6.SchemaObjectNestingModeSet:    tfprotov6.SchemaNestedBlockNestingModeSet,
		tfprotov6.SchemaObjectNestingModeMap:    tfprotov6.SchemaNestedBlockNestingModeMap,
	}[mode]
}
