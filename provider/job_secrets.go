package provider

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// secretsToWrite returns the secrets of a planned job, by their pointers in it.
// A reference is written as it is. A value is sent only if the secret is new or its
// value_version changed; otherwise the API is told to keep the stored one, which Terraform
// does not know. e must have expanded the job, and state is nil for a new job.
func secretsToWrite(
	ctx context.Context, e *expander, job dispatcher.Job, config jobModel, state *jobModel,
) map[string]target.Secret {
	var before expander
	var stored map[string]target.Secret
	if state != nil {
		stored = expandJob(ctx, &before, *state).Secrets()
	}
	configured := expandJob(ctx, &expander{}, config).Secrets()
	return chosenSecrets(job.Secrets(), configured, stored, e.versions, before.versions)
}

// chosenSecrets returns planned secrets as they are to be sent: as configured, or stored if the one in the state stays.
// versions and before are those of the plan and of the state.
func chosenSecrets(
	planned, configured, stored map[string]target.Secret, versions, before map[string]types.String,
) map[string]target.Secret {
	for pointer, secret := range planned {
		if secret.Reference != "" {
			continue
		}
		old, exists := stored[pointer]
		if exists && old.Reference == "" && before[pointer].Equal(versions[pointer]) {
			planned[pointer] = target.Secret{Stored: true}
		} else {
			planned[pointer] = configured[pointer]
		}
	}
	return planned
}

// keptSecretProblems returns a problem for each secret that would keep its stored value although
// the URL now leads to another server. Each points to the value_version, which must change so
// that the value is sent again.
func keptSecretProblems(ctx context.Context, plan, config, state jobModel) input.Problems {
	if plan.Target.Equal(state.Target) && plan.OnSuccess.Equal(state.OnSuccess) && plan.OnFailure.Equal(state.OnFailure) &&
		plan.OnMisfire.Equal(state.OnMisfire) {
		return nil // nothing leads elsewhere; most plans of most jobs end here
	}
	var e expander
	job, old := expandJob(ctx, &e, plan), expandJob(ctx, &expander{}, state)
	stored := old.Secrets()
	for pointer, secret := range stored {
		if secret.Reference == "" {
			stored[pointer] = target.Secret{Stored: true}
		}
	}
	var problems input.Problems
	written := job.WithSecrets(secretsToWrite(ctx, &e, job, config, &state))
	problems.AddError("", written.CheckKept(old.WithSecrets(stored)))
	problems = slices.DeleteFunc(problems, func(p input.Problem) bool { // where it leads is known at apply
		at, _, _ := strings.Cut(p.Path, "/webhook/")
		return !e.allKnown(at+"/webhook/url") || !e.allKnown(at+"/webhook/auth/oauth2/token_url")
	})
	for i, p := range problems {
		problems[i].Path = strings.TrimSuffix(p.Path, "/stored") + "/value_version"
	}
	return problems
}

// withOmittedSecrets returns job as if each secret with neither reference nor value had a stored value.
// So does the configuration that Terraform generates for an imported job: it cannot know the value.
func withOmittedSecrets(job dispatcher.Job) dispatcher.Job {
	return job.WithSecrets(withOmitted(job.Secrets()))
}

// withOmitted returns secrets as if each with neither reference nor value had a stored value.
func withOmitted(secrets map[string]target.Secret) map[string]target.Secret {
	for pointer, secret := range secrets {
		if secret == (target.Secret{}) {
			secrets[pointer] = target.Secret{Stored: true}
		}
	}
	return secrets
}

// missingSecretProblems returns a problem for each secret with neither reference nor value, unless the job in the state
// has a stored value that stays. The state of a new job is the zero model.
func missingSecretProblems(ctx context.Context, e *expander, job dispatcher.Job, change jobChange) input.Problems {
	if !slices.Contains(slices.Collect(maps.Values(job.Secrets())), target.Secret{}) {
		return nil
	}
	prior := &change.state
	if importID(change.config.App, change.config.Name) != importID(prior.App, prior.Name) {
		prior = nil
	}
	secrets := secretsToWrite(ctx, e, job, change.config, prior)
	return missingOf(e.aboutKnown(problemsOf(job.WithSecrets(secrets).Validate())), secrets)
}

// missingOf returns those of some problems that are about secrets with neither reference nor value.
func missingOf(problems input.Problems, secrets map[string]target.Secret) input.Problems {
	var missing input.Problems
	for _, p := range problems {
		secret, is := secrets[p.Path]
		if is && secret == (target.Secret{}) {
			missing = append(missing, p)
		}
	}
	return missing
}

// problemsOf returns the problems in the domain's verdict.
func problemsOf(err error) input.Problems {
	var all input.Problems
	all.AddError("", err)
	return all
}
