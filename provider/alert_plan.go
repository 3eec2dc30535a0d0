package provider

import (
	"context"
	"strconv"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// destinationAt is the pointer of the destination, below which all secrets of an alert are.
const destinationAt = "/destination"

// ValidateConfig checks all known values by the rules of the domain.
func (r *alertResource) ValidateConfig(
	ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse,
) {
	var config alertModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	if resp.Diagnostics.HasError() {
		return
	}
	var e expander
	alert := expandAlert(ctx, &e, config)
	// ModifyPlan knows whether there is a stored value.
	alert.Destination = alert.Destination.WithSecrets(withOmitted(alert.Destination.Secrets()))
	var problems input.Problems
	input.CheckName(&problems, "/app", alert.App) // Validate leaves it out: the API has it in the URL
	problems.AddError("", alert.Validate())
	reportProblems(&resp.Diagnostics, e.problemsWith(problems.Err()))
}

// ModifyPlan refuses what only the state or the app tells: a secret without a value, a stored secret that would go
// elsewhere, and what is outside the bounds of the app. It marks the revision as unknown only if something changes.
func (r *alertResource) ModifyPlan(
	ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse,
) {
	if req.Plan.Raw.IsNull() || r.conn == nil {
		return
	}
	var config, plan, state alertModel
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
	reportProblems(&resp.Diagnostics, missingAlertSecrets(ctx, config, prior))
	r.checkBounds(ctx, &resp.Diagnostics, config)
	r.warnOfUnknownJobs(ctx, &resp.Diagnostics, config)
	if prior != nil {
		reportProblems(&resp.Diagnostics, keptAlertSecrets(ctx, plan, config, state))
	}
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

// checkBounds refuses an alert that is outside the bounds of its app, as far as both are known.
func (r *alertResource) checkBounds(ctx context.Context, diags *diag.Diagnostics, config alertModel) {
	var e expander
	alert := expandAlert(ctx, &e, config)
	bounds := r.conn.boundsOf(ctx, alert.App)
	if e.isUnknown("/app") || bounds == nil || diags.HasError() {
		return
	}
	var problems input.Problems
	problems.AddError(destinationAt, bounds.CheckDestination(alert.App, alert.Destination))
	reportProblems(diags, (&expander{unknown: e.unknown, incomplete: e.incomplete}).problemsWith(problems.Err()))
}

// warnOfUnknownJobs warns of names in an alert that no job has, neither in the plan nor on the server. The API says at apply which
// labels no job has.
func (r *alertResource) warnOfUnknownJobs(ctx context.Context, diags *diag.Diagnostics, config alertModel) {
	var e expander
	alert := expandAlert(ctx, &e, config)
	if len(r.conn.unknown) > 0 || alert.App == "" || alert.Name == "" || diags.HasError() {
		return
	}
	var problems input.Problems
	for i, name := range alert.Jobs {
		at := input.Pointer("jobs", strconv.Itoa(i))
		if e.isUnknown(at) || name == "" {
			continue
		}
		if _, exists, _, known := r.conn.followersOf(ctx, alert.App, name); known && !exists {
			addUnknownName(&problems, at, input.CodeAlertJobUnknown, "job", alert.App, name, r.conn.someJobs(ctx, alert.App))
		}
	}
	r.conn.warnOfMistakes(diags, alert.App, alert.Name, e.aboutKnown(problems), "more alerts")
}

// alertSecretsToWrite is secretsToWrite for an alert.
func alertSecretsToWrite(
	ctx context.Context, e *expander, alert alert.Alert, config alertModel, state *alertModel,
) map[string]target.Secret {
	var before expander
	var stored map[string]target.Secret
	if state != nil {
		stored = expandAlert(ctx, &before, *state).Secrets()
	}
	configured := expandAlert(ctx, &expander{}, config).Secrets()
	return chosenSecrets(alert.Secrets(), configured, stored, e.versions, before.versions)
}

// missingAlertSecrets is missingSecretProblems for an alert.
func missingAlertSecrets(ctx context.Context, config alertModel, state *alertModel) input.Problems {
	var e expander
	alert := expandAlert(ctx, &e, config)
	secrets := alertSecretsToWrite(ctx, &e, alert, config, state)
	return missingOf(e.aboutKnown(problemsOf(alert.WithSecrets(secrets).Validate())), secrets)
}

// keptAlertSecrets is keptSecretProblems for an alert.
func keptAlertSecrets(ctx context.Context, plan, config, state alertModel) input.Problems {
	var e expander
	alert, old := expandAlert(ctx, &e, plan), expandAlert(ctx, &expander{}, state)
	if !e.allKnown("/destination/webhook/url") || !e.allKnown("/destination/webhook/auth/oauth2/token_url") {
		return nil
	}
	stored := old.Secrets()
	for pointer, secret := range stored {
		if secret.Reference == "" {
			stored[pointer] = target.Secret{Stored: true}
		}
	}
	var problems input.Problems
	written := alert.WithSecrets(alertSecretsToWrite(ctx, &e, alert, config, &state)).Destination
	problems.AddError(destinationAt, written.CheckKept(old.WithSecrets(stored).Destination))
	for i, p := range problems {
		problems[i].Path = strings.TrimSuffix(p.Path, "/stored") + "/value_version"
	}
	return problems
}
