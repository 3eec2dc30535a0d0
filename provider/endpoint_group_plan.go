package provider

import (
	"context"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// ValidateConfig checks all known values by the rules of the domain.
func (r *groupResource) ValidateConfig(
	ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse,
) {
	var config groupModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	if resp.Diagnostics.HasError() {
		return
	}
	var e expander
	group := expandGroup(ctx, &e, config)
	group = group.WithSecrets(withOmitted(group.Secrets())) // ModifyPlan knows whether there is a stored value
	var problems input.Problems
	input.CheckName(&problems, "/app", group.App) // Validate leaves it out: the API has it in the URL
	problems.AddError("", group.Validate())
	reportProblems(&resp.Diagnostics, e.problemsWith(problems.Err()))
}

// ModifyPlan refuses what only the state or the app tells: a secret without a value, a stored secret that would go
// elsewhere, and what is outside the bounds of the app. It marks the revision as unknown only if something changes.
func (r *groupResource) ModifyPlan(
	ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse,
) {
	if req.Plan.Raw.IsNull() || r.conn == nil {
		return
	}
	var config, plan, state groupModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	prior := &state
	if req.State.Raw.IsNull() {
		prior = nil
	} else {
		resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	}
	if resp.Diagnostics.HasError() {
		return
	}
	if prior != nil && importID(config.App, config.Name) != importID(state.App, state.Name) {
		prior = nil // it is replaced
	}
	reportProblems(&resp.Diagnostics, missingGroupSecrets(ctx, config, prior))
	r.checkBounds(ctx, &resp.Diagnostics, config)
	if prior != nil {
		reportProblems(&resp.Diagnostics, keptGroupSecrets(ctx, plan, config, state))
	}
	var e expander
	group := expandGroup(ctx, &e, config)
	r.conn.groups.planned.add(group.App, group.Name)
	if resp.Diagnostics.HasError() {
		return
	}
	if !req.State.Raw.IsNull() {
		plan.Revision = state.Revision
		resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
		if resp.Plan.Raw.Equal(req.State.Raw) {
			return // no change, or only another way to write the same
		}
	}
	plan.Revision = types.Int64Unknown()
	resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
}

// checkBounds refuses a group that is outside the bounds of its app, as far as both are known.
func (r *groupResource) checkBounds(ctx context.Context, diags *diag.Diagnostics, config groupModel) {
	var e expander
	group := expandGroup(ctx, &e, config)
	bounds := r.conn.boundsOf(ctx, group.App)
	if e.isUnknown("/app") || bounds == nil || diags.HasError() {
		return
	}
	reportProblems(diags, (&expander{unknown: e.unknown, incomplete: e.incomplete}).problemsWith(bounds.CheckGroup(group)))
}

// groupSecretsToWrite is secretsToWrite for a group.
func groupSecretsToWrite(
	ctx context.Context, e *expander, group target.EndpointGroup, config groupModel, state *groupModel,
) map[string]target.Secret {
	var before expander
	var stored map[string]target.Secret
	if state != nil {
		stored = expandGroup(ctx, &before, *state).Secrets()
	}
	configured := expandGroup(ctx, &expander{}, config).Secrets()
	return chosenSecrets(group.Secrets(), configured, stored, e.versions, before.versions)
}

// missingGroupSecrets is missingSecretProblems for a group.
func missingGroupSecrets(ctx context.Context, config groupModel, state *groupModel) input.Problems {
	var e expander
	group := expandGroup(ctx, &e, config)
	secrets := groupSecretsToWrite(ctx, &e, group, config, state)
	return missingOf(e.aboutKnown(problemsOf(group.WithSecrets(secrets).Validate())), secrets)
}

// keptGroupSecrets returns a problem for each secret that would keep its stored value although the group now leads to
// another server, network or port. Each points to the value_version, as those of keptSecretProblems do.
func keptGroupSecrets(ctx context.Context, plan, config, state groupModel) input.Problems {
	var e expander
	group, old := expandGroup(ctx, &e, plan), expandGroup(ctx, &expander{}, state)
	if !e.allKnown("/endpoints") || !e.allKnown("/registration") || !e.allKnown("/auth/oauth2/token_url") {
		return nil
	}
	stored := old.Secrets()
	for pointer, secret := range stored {
		if secret.Reference == "" {
			stored[pointer] = target.Secret{Stored: true}
		}
	}
	written := group.WithSecrets(groupSecretsToWrite(ctx, &e, group, config, &state))
	problems := problemsOf(written.CheckKept(old.WithSecrets(stored)))
	for i, p := range problems {
		problems[i].Path = strings.TrimSuffix(p.Path, "/stored") + "/value_version"
	}
	return problems
}
