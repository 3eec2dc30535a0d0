package provider

import (
	"context"
	"slices"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
)

// msgpackNil is null as the protocol writes it.
const msgpackNil = 0xc0

// CallFunction writes null where OpenTofu leaves an argument out that is null. The framework takes that for a broken
// client.
func (s server) CallFunction(ctx context.Context, req *tfprotov6.CallFunctionRequest) (*tfprotov6.CallFunctionResponse, error) {
	call := *req
	call.Arguments = slices.Clone(req.Arguments)
	for i, argument := range call.Arguments {
		if argument == nil || len(argument.MsgPack) == 0 && len(argument.JSON) == 0 {
			call.Arguments[i] = &tfprotov6.DynamicValue{MsgPack: []byte{msgpackNil}}
		}
	}
	return s.ProviderServer.CallFunction(ctx, &call)
}
