package provider

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
)

// If the table lacks something of the schema, jobs would be planned differently than the schema says.
func TestTableOfJobsSupportsTheWholeSchema(t *testing.T) {
	t.Parallel()
	for _, name := range newJobServer(t.Context()).Unclear {
		t.Errorf("%s has a default, validator or plan modifier that the table does not hold", name)
	}
}

// configuredJob returns a configuration as Terraform sends it.
func configuredJob(t *testing.T, s jobServer) *tfprotov6.DynamicValue {
	t.Helper()
	target, hook, job := nullsOf(t, targetRows), nullsOf(t, webhookRows), nullsOf(t, jobRows)
	hook["url"] = types.StringValue("https://example.com/hook")
	target["webhook"] = types.ObjectValueMust(webhookRows.Type.AttrTypes, hook)
	job["app"], job["name"] = types.StringValue("crm"), types.StringValue("nightly")
	job["target"] = types.ObjectValueMust(targetRows.Type.AttrTypes, target)
	job["trigger"] = types.MapValueMust(triggerRows.Type, map[string]attr.Value{})
	config, err := s.Encode(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func TestRareRequestsAboutJobsAreLeftToTheFramework(t *testing.T) {
	t.Parallel()
	s, conn := newJobServer(t.Context()), unconfigured()
	config, none := configuredJob(t, s), &tfprotov6.DynamicValue{MsgPack: []byte{0xc0}}
	for name, tt := range map[string]struct {
		kind                    string
		config, prior, proposed *tfprotov6.DynamicValue
		want                    bool
	}{
		"create":     {jobType, config, none, config, true},
		"update":     {jobType, config, config, config, true},
		"remove":     {jobType, none, config, none, false},
		"an app":     {"carillon_app", config, none, config, false},
		"unreadable": {jobType, &tfprotov6.DynamicValue{MsgPack: []byte{1}}, none, config, false},
	} {
		req := &tfprotov6.PlanResourceChangeRequest{
			TypeName: tt.kind, Config: tt.config, PriorState: tt.prior, ProposedNewState: tt.proposed,
		}
		if resp, err := s.plan(t.Context(), conn, req); (resp != nil) != tt.want || err != nil {
			t.Errorf("%s: planned without the framework: %v, %v, want %v", name, resp != nil, err, tt.want)
		}
	}
	for name, tt := range map[string]struct {
		capabilities *tfprotov6.ValidateResourceConfigClientCapabilities
		want         bool
	}{
		"a client with write-only arguments":    {&tfprotov6.ValidateResourceConfigClientCapabilities{WriteOnlyAttributesAllowed: true}, true},
		"a client without write-only arguments": {&tfprotov6.ValidateResourceConfigClientCapabilities{}, false},
		"an old client":                         {nil, false},
	} {
		req := &tfprotov6.ValidateResourceConfigRequest{TypeName: jobType, Config: config, ClientCapabilities: tt.capabilities}
		if resp := s.validate(t.Context(), nil, req); (resp != nil) != tt.want {
			t.Errorf("%s: validated without the framework: %v, want %v", name, resp != nil, tt.want)
		}
	}
	imported := &tfprotov6.ReadResourceRequest{TypeName: jobType, CurrentState: config, Private: []byte("{}")}
	if resp, err := s.read(t.Context(), conn, imported); resp != nil || err != nil {
		t.Errorf("what was just imported was read without the framework: %v, %v", resp, err)
	}
}
