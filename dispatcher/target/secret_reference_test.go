package target

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

func TestReferencesToManagersHaveParts(t *testing.T) {
	t.Parallel()
	const arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:billing/db-AbCdEf"
	for text, want := range map[string]SecretReference{
		"awssm:billing/db":                       {SecretsManager, "billing/db", "", ""},
		"awssm:billing/db#password":              {SecretsManager, "billing/db", "password", ""},
		"awssm:billing/db#a.b@AWSPREVIOUS":       {SecretsManager, "billing/db", "a.b", "AWSPREVIOUS"},
		"awssm:billing/db@AWSPREVIOUS":           {SecretsManager, "billing/db", "", "AWSPREVIOUS"},
		"awssm:me@example.com#key":               {SecretsManager, "me@example.com", "key", ""},
		"awssm:me@example.com@AWSCURRENT":        {SecretsManager, "me@example.com", "", "AWSCURRENT"},
		"awssm:" + arn + "#password":             {SecretsManager, arn, "password", ""},
		"ssm:/billing/token":                     {SecretParameterStore, "/billing/token", "", ""},
		"ssm:/billing/token@3":                   {SecretParameterStore, "/billing/token", "", "3"},
		"ssm:/billing/json#key@stable":           {SecretParameterStore, "/billing/json", "key", "stable"},
		"vault:secret/data/billing#token":        {SecretVault, "secret/data/billing", "token", ""},
		"vault:team/kv/data/billing/db#tls.key@": {SecretVault, "team/kv/data/billing/db", "tls.key", ""}, // wrong, see below
		"vault:secret/data/billing#token@12":     {SecretVault, "secret/data/billing", "token", "12"},
		"env:SECRET_A":                           {SecretEnv, "SECRET_A", "", ""},
		"file:a/b#c@d":                           {SecretFile, "a/b#c@d", "", ""},
	} {
		got, err := ParseSecretReference(text)
		if diff := cmp.Diff(want, got); diff != "" || (err != nil) != strings.HasSuffix(text, "@") {
			t.Errorf("%s: %v (-want +got):\n%s", text, err, diff)
		}
	}
	if r, _ := ParseSecretReference("awssm:" + arn); r.Region() != "eu-west-1" {
		t.Errorf("region of %s = %s", arn, r.Region())
	}
	if r, _ := ParseSecretReference("awssm:name"); r.Region() != "" {
		t.Errorf("region of a name = %s, want none", r.Region())
	}
}

// All wrong parts are reported at once, and a text that is not a reference is never shown.
func TestAllProblemsOfAReferenceAreReported(t *testing.T) {
	t.Parallel()
	const unknown = "secret is not of the form env:SECRET_NAME, file:PATH, awssm:NAME, ssm:NAME or vault:PATH#KEY " +
		"(not shown: it may be the secret itself)"
	for text, want := range map[string][]string{
		"hunter2":            {unknown},
		"vaults:hunter2":     {unknown},
		"awssm:":             {`"" is not the name of a secret: 1 to 512 letters, digits and any of /_+=.@-, or an ARN`},
		"awssm:a b":          {`"a b" is not the name of a secret: 1 to 512 letters, digits and any of /_+=.@-, or an ARN`},
		"awssm:arn:aws:s3:x": {`"arn:aws:s3:x" is not the ARN of a secret; write it as arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME`},
		"awssm:a b##@c d": {
			`"a b" is not the name of a secret: 1 to 512 letters, digits and any of /_+=.@-, or an ARN`,
			`key "#" is not 1 to 256 characters without # and @; leave out # to use the whole secret`,
			`version "c d" is not a staging label such as AWSCURRENT or AWSPREVIOUS: 1 to 256 letters, digits and any of _+=.-`,
		},
		"awssm:arn:aws:secretsmanager:eu-west-1.evil/:1:secret:a": {
			`"arn:aws:secretsmanager:eu-west-1.evil/:1:secret:a" is not the ARN of a secret; ` +
				`write it as arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME`,
		},
		"ssm:/a:3": {`"/a:3" is not the name of a parameter: 1 to 1000 letters, digits and any of /_.-, or an ARN; the version follows an @`},
		"ssm:arn:aws:ssm:eu-west-1:1:parameter/a@0": {
			`"arn:aws:ssm:eu-west-1:1:parameter/a" is not the ARN of a parameter; write it as arn:aws:ssm:REGION:ACCOUNT:parameter/NAME`,
			`version "0" is neither the number nor a label of a version of a parameter`,
		},
		"vault:secret/billing": {
			`path "secret/billing" is not one of KV version 2; write it as in policies, as the mount, data and the path: secret/data/billing`,
			"key is missing: a secret of Vault has several; name one, as in vault:secret/data/billing#token",
		},
		"vault:secret/data/../../sys/x#a@AWSCURRENT": {
			`path "secret/data/../../sys/x" is not a path of Vault: names between slashes, without . and .., of letters, digits and any of _.~+=,:-`,
			`version "AWSCURRENT" is not the number of a version in Vault, 1 or more`,
		},
		"vault:secret/data/a?version=1#a": {
			`path "secret/data/a?version=1" is not a path of Vault: names between slashes, without . and .., of letters, digits and any of _.~+=,:-`,
		},
		"vault:secret/data/a#" + strings.Repeat("k", 257): {
			`key "` + strings.Repeat("k", 64) + `…" is not 1 to 256 characters without # and @; leave out # to use the whole secret`,
		},
	} {
		_, err := ParseSecretReference(text)
		var problems input.Problems
		if !errors.As(err, &problems) {
			t.Errorf("%s: error = %v, want problems", text, err)
			continue
		}
		var got []string
		for _, problem := range problems {
			if got = append(got, problem.Message); problem.Code != input.CodeSecretReference {
				t.Errorf("%s: code %s", text, problem.Code)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

func TestBoundsAllowSecretsOfManagersOnlyIfTheyListThem(t *testing.T) {
	t.Parallel()
	bounds := Bounds{Secrets: []string{
		"awssm:billing/*", "awssm:shared#billing", "awssm:me@example.com", "ssm:/billing/*",
		"vault:secret/data/billing/*", "vault:secret/data/one#*",
	}}
	if err := bounds.Validate(); err != nil {
		t.Fatal(err)
	}
	for reference, want := range map[string]bool{
		"awssm:billing/db":                   true,
		"awssm:billing/db#password":          true,
		"awssm:billing/db@AWSPREVIOUS":       true,
		"awssm:shared#billing":               true,
		"awssm:shared#other":                 false,
		"awssm:shared":                       false,
		"awssm:shared#billing@AWSPREVIOUS":   false,
		"awssm:me@example.com#key":           true,
		"awssm:crm/db":                       false,
		"awssm:crm/db#awssm:billing/x":       false,
		"ssm:/billing/token@3":               true,
		"ssm:/billing":                       false,
		"vault:secret/data/billing/db#token": true,
		"vault:secret/data/one#token":        true,
		"vault:secret/data/two#token":        false,
		"env:SECRET_BILLING_A":               false,
	} {
		if got := bounds.AllowsSecret(reference); got != want {
			t.Errorf("AllowsSecret(%s) = %v, want %v", reference, got, want)
		}
	}
	standard := Bounds{}.WithDefaults("billing")
	for _, reference := range []string{"awssm:billing/db", "ssm:/billing/db", "vault:secret/data/billing#token"} {
		if standard.AllowsSecret(reference) {
			t.Errorf("the default bounds allow %s", reference)
		}
	}
	for _, pattern := range []string{"*", "awssm:", "consul:x", "awssm", "env:PATH"} {
		if (Bounds{Secrets: []string{pattern}}).Validate() == nil {
			t.Errorf("bounds may list %s", pattern)
		}
	}
}
