package provider

import (
	"context"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
)

// secretsToWrite returns the secrets of a planned job, by their pointers inside its target.
// A reference is written as it is. A value is sent only if the secret is new or its
// value_version changed; otherwise the API is told to keep the stored one, which Terraform
// does not know. e must have expanded the job, and state is nil for a new job.
func secretsToWrite(
	ctx context.Context, e *expander, job dispatcher.Job, config jobModel, state *jobModel,
) map[string]dispatcher.Secret {
	var before expander
	var stored map[string]dispatcher.Secret
	if state != nil {
		stored = expandJob(ctx, &before, *state).Target.Secrets()
	}
	configured := expandJob(ctx, &expander{}, config).Target.Secrets()
	secrets := job.Target.Secrets()
	for pointer, secret := range secrets {
		if secret.Reference != "" {
			continue
		}
		old, exists := stored[pointer]
		sameVersion := before.versions["/target"+pointer].Equal(e.versions["/target"+pointer])
		if exists && old.Reference == "" && sameVersion {
			secrets[pointer] = dispatcher.Secret{Stored: true}
		} else {
			secrets[pointer] = configured[pointer]
		}
	}
	return secrets
}

// keptSecretProblems returns a problem for each secret that would keep its stored value although
// the URL now leads to another server. Each points to the value_version, which must change so
// that the value is sent again.
func keptSecretProblems(ctx context.Context, plan, config, state jobModel) dispatcher.Problems {
	if plan.Target.Equal(state.Target) {
		return nil // nothing leads elsewhere; most plans of most jobs end here
	}
	var e expander
	job, old := expandJob(ctx, &e, plan), expandJob(ctx, &expander{}, state)
	if !e.allKnown("/target/webhook/url") {
		return nil
	}
	stored := old.Target.Secrets()
	for pointer, secret := range stored {
		if secret.Reference == "" {
			stored[pointer] = dispatcher.Secret{Stored: true}
		}
	}
	var problems dispatcher.Problems
	written := job.Target.WithSecrets(secretsToWrite(ctx, &e, job, config, &state))
	problems.AddError("/target", written.CheckKept(old.Target.WithSecrets(stored)))
	for i, p := range problems {
		problems[i].Path = strings.TrimSuffix(p.Path, "/stored") + "/value_version"
	}
	return problems
}
