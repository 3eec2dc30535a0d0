package provider

import (
	"context"
	"reflect"
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

// withOmittedSecrets returns job as if each secret with neither reference nor value had a stored value.
// So does the configuration that Terraform generates for an imported job: it cannot know the value.
func withOmittedSecrets(job dispatcher.Job) dispatcher.Job {
	secrets := job.Target.Secrets()
	for pointer, secret := range secrets {
		if secret == (dispatcher.Secret{}) {
			secrets[pointer] = dispatcher.Secret{Stored: true}
		}
	}
	job.Target = job.Target.WithSecrets(secrets)
	return job
}

// missingSecretProblems returns a problem for each secret with neither reference nor value, unless the job in the state
// has a stored value that stays. The state of a new job is the zero model.
func missingSecretProblems(ctx context.Context, e *expander, job dispatcher.Job, change jobChange) dispatcher.Problems {
	if reflect.DeepEqual(job.Target, withOmittedSecrets(job).Target) {
		return nil
	}
	prior := &change.state
	if importID(change.config.App, change.config.Name) != importID(prior.App, prior.Name) {
		prior = nil
	}
	secrets := secretsToWrite(ctx, e, job, change.config, prior)
	job.Target = job.Target.WithSecrets(secrets)
	var all, missing dispatcher.Problems
	all.AddError("", job.Validate())
	for _, p := range e.aboutKnown(all) {
		secret, is := secrets[strings.TrimPrefix(p.Path, "/target")]
		if is && secret == (dispatcher.Secret{}) {
			missing = append(missing, p)
		}
	}
	return missing
}
