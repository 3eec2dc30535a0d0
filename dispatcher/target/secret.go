package target

import (
	"errors"
	"io/fs"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Secret is a value that only the sender and the target may know. One of its fields is set.
type Secret struct {
	// Reference is env:NAME, a variable of the node's environment with a name that begins with SecretEnvPrefix;
	// file:PATH, a file below the node's directory of secrets; or a secret of a manager: awssm:NAME, ssm:NAME or
	// vault:PATH, each with [#KEY][@VERSION]. The node looks it up for the attempts that need it. See
	// SecretReference.
	Reference string `json:"reference,omitempty" schema:"max=1536"`
	// Value is the secret itself, of at most MaxSecret bytes. It is stored encrypted and never returned.
	Value input.Sensitive `json:"value,omitzero"`
	// Stored stands for an earlier value: a PUT with it keeps that value, as long as the target keeps its Origin.
	Stored bool `json:"stored,omitempty"`
}

// MaxSecret bounds the value of a secret, in bytes; certificates are the longest.
const MaxSecret = 64 << 10

// SecretEnvPrefix begins the names of variables that jobs may refer to, so that declaring a job does not give access
// to the whole environment of a node.
const SecretEnvPrefix = "SECRET_"

// check reports the problems of s under path; form, if not nil, checks a value.
func (s Secret) check(problems *input.Problems, at string, form func(string) error) {
	given := make([]string, 0, 3)
	for field, is := range map[string]bool{"reference": s.Reference != "", "value": !s.Value.IsZero(), "stored": s.Stored} {
		if is {
			given = append(given, field)
		}
	}
	slices.Sort(given)
	switch {
	case len(given) == 0:
		problems.Add(at, input.CodeRequired, "secret is missing; refer to it as %s, or give its value", SecretForms)
	case len(given) > 1:
		// Only a secret that is sent back as the API returned it has stored.
		problems.Add(at, input.CodeSecretForm, "secret has %s; give one of them", strings.Join(given, " and "))
	case s.Reference != "":
		checkReference(problems, at+"/reference", s.Reference)
	case !s.Value.IsZero():
		checkSecretValue(problems, at+"/value", s.Value.Reveal(), form)
	}
}

func checkSecretValue(problems *input.Problems, at, value string, form func(string) error) {
	switch {
	case value == "":
		problems.Add(at, input.CodeSecretLength, "value of a secret is empty; the length is 1 byte to 64 KiB")
	case len(value) > MaxSecret:
		problems.Add(at, input.CodeSecretLength, "value of a secret has %d bytes; the maximum is 64 KiB", len(value))
	case !utf8.ValidString(value):
		problems.Add(at, input.CodeTextInvalid, "value of a secret is not UTF-8")
	case form != nil:
		problems.AddError(at, form(value))
	}
}

// eachSecret returns a copy of v, a definition or a part of one, with each secret replaced by f, which gets its JSON
// pointer in v.
func eachSecret[T any](v T, f func(pointer string, s Secret) Secret) T {
	replaceSecrets(reflect.ValueOf(&v).Elem(), "", f)
	return v
}

// replaceSecrets replaces the secrets below v, which is at a JSON pointer, and reports whether there are any. It copies
// the values on the way to them. A secret is a field, is pointed to, or is a value of a map, never an element of a
// list.
func replaceSecrets(v reflect.Value, at string, f func(pointer string, s Secret) Secret) (found bool) {
	secret := reflect.TypeFor[Secret]()
	switch {
	case v.Type() == secret:
		v.Set(reflect.ValueOf(f(at, v.Interface().(Secret))))
		return true
	case v.Kind() == reflect.Pointer && !v.IsNil():
		copied := reflect.New(v.Type().Elem())
		copied.Elem().Set(v.Elem())
		if found = replaceSecrets(copied.Elem(), at, f); found {
			v.Set(copied)
		}
	case v.Kind() == reflect.Map && v.Type().Elem() == secret && !v.IsNil():
		copied := reflect.MakeMapWithSize(v.Type(), v.Len())
		for name, of := range v.Seq2() {
			copied.SetMapIndex(name, reflect.ValueOf(f(at+input.Pointer(name.String()), of.Interface().(Secret))))
		}
		v.Set(copied)
		return true
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			switch v.Field(i).Kind() {
			case reflect.Struct, reflect.Pointer, reflect.Map:
				below, field := at, v.Type().Field(i)
				if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
					below += "/" + name
				}
				found = field.IsExported() && replaceSecrets(v.Field(i), below, f) || found
			default: // has none
			}
		}
	}
	return found
}

// Secrets returns the secrets of v, a definition or a part of one, by their JSON pointers in it.
func Secrets[T any](v T) map[string]Secret {
	all := map[string]Secret{}
	eachSecret(v, func(pointer string, s Secret) Secret {
		all[pointer] = s
		return s
	})
	return all
}

// WithSecrets returns a copy of v in which the secrets in with, by their JSON pointers in v, replace those of v.
func WithSecrets[T any](v T, with map[string]Secret) T {
	return eachSecret(v, func(pointer string, s Secret) Secret {
		if other, ok := with[pointer]; ok {
			return other
		}
		return s
	})
}

// ForWire returns a copy of v with the values of its secrets in its JSON. Use it only to send v to the API.
func ForWire[T any](v T) T {
	return eachSecret(v, func(_ string, s Secret) Secret {
		s.Value = s.Value.ForWire()
		return s
	})
}

// GivesSecret reports whether v has the value of a secret, and not only a reference or a mark that it is stored.
func GivesSecret[T any](v T) (gives bool) {
	for _, s := range Secrets(v) {
		gives = gives || !s.Value.IsZero()
	}
	return gives
}

// CheckStorable returns the problems of secrets that are to be stored, by their paths below a JSON pointer: one keeps
// a stored value that before does not have, or there are no keys to encrypt a value.
func CheckStorable(at string, secrets, before map[string]Secret, keys bool) error {
	var problems input.Problems
	for _, path := range input.SortedKeys(secrets) {
		switch secret := secrets[path]; {
		case secret.Stored && !before[path].Stored:
			problems.Add(at+path+"/stored", input.CodeSecretMissing, "no value is stored for this secret; give its value, or refer to it")
		case !secret.Value.IsZero() && !keys:
			problems.Add(at+path+"/value", input.CodeSecretKeys, "value cannot be stored, for the node has no key to encrypt it with; "+
				"start the nodes with --secret-keys-file (or CARILLON_SECRET_KEYS), or refer to the secret as %s", SecretForms)
		}
	}
	return problems.Err()
}

// CheckKept returns a problem, with a pointer in t, for each secret that keeps the stored value of old but would go
// to another origin. So a stored secret cannot be redirected to another host.
func (t Target) CheckKept(old Target) error {
	var problems input.Problems
	given, before := Secrets(t), Secrets(old)
	for _, path := range input.SortedKeys(given) {
		from, to := old.Origin(path), t.Origin(path)
		if given[path].Stored && before[path].Stored && from != to {
			problems.Add(path+"/stored", input.CodeSecretOrigin,
				"the stored value was given for %s and is not sent to %s; give it again (in Terraform, with another value_version), "+
					"or refer to the secret as %s", input.Echo(from), input.Echo(to), SecretForms)
		}
	}
	return problems.Err()
}

// SecretSource is where a referenced secret is kept.
type SecretSource string

// Sources of secrets. A reference begins with one of them and a colon.
const (
	SecretEnv            SecretSource = "env"   // a variable of the node's environment
	SecretFile           SecretSource = "file"  // a file of the node's directory of secrets
	SecretsManager       SecretSource = "awssm" // AWS Secrets Manager
	SecretParameterStore SecretSource = "ssm"   // Parameter Store of AWS Systems Manager
	SecretVault          SecretSource = "vault" // HashiCorp Vault, secrets engine KV version 2
)

// Managed reports whether the secret comes from a manager of secrets, and not from the node itself.
func (s SecretSource) Managed() bool {
	return s == SecretsManager || s == SecretParameterStore || s == SecretVault
}

// SecretReference is a reference to a secret in its parts: SOURCE:NAME, and for a manager of secrets
// SOURCE:NAME[#KEY][@VERSION].
type SecretReference struct {
	Source SecretSource
	// Name is a variable, a path, the name of a secret or parameter, or its ARN.
	Name string
	// Key selects a string in a secret that is JSON, with dots between the names of nested objects. Empty: the whole
	// secret.
	Key string
	// Version is a staging label of Secrets Manager, a number or label of Parameter Store, or a number of Vault. Empty: the
	// current one.
	Version string
}

// SecretForms lists the forms of references for messages.
const SecretForms = "env:" + SecretEnvPrefix + "NAME, file:PATH, awssm:NAME, ssm:NAME or vault:PATH#KEY"

// splitReference takes a reference apart without checking the parts. known is false for any other text.
func splitReference(text string) (r SecretReference, known bool) {
	source, name, found := strings.Cut(text, ":")
	r = SecretReference{Source: SecretSource(source), Name: name}
	if !found || !r.Source.Managed() {
		return r, found && (r.Source == SecretEnv || r.Source == SecretFile)
	}
	// Names of Secrets Manager may contain @, so the version follows the last one, after the key if there is one.
	name, key, hasKey := strings.Cut(name, "#")
	rest := name
	if hasKey {
		rest = key
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		rest, r.Version = rest[:at], rest[at+1:]
	}
	if r.Name, r.Key = rest, ""; hasKey {
		r.Name, r.Key = name, rest
	}
	return r, true
}

// ParseSecretReference reads a reference. Its error has everything wrong with it, as Problems, and never echoes a
// text that is not a reference: it may be the secret.
func ParseSecretReference(text string) (SecretReference, error) {
	var problems input.Problems
	checkReference(&problems, "", text)
	r, _ := splitReference(text)
	return r, problems.Err()
}

// Whole returns the reference to the whole secret in its current version. Bounds may list it instead of each key.
func (r SecretReference) Whole() string { return string(r.Source) + ":" + r.Name }

// Region returns the AWS region in the ARN of a secret; empty for a name, which is in the node's region.
func (r SecretReference) Region() string {
	if parts := strings.Split(r.Name, ":"); parts[0] == "arn" && len(parts) > 3 {
		return parts[3]
	}
	return ""
}

const regionAndAccount = `[a-z]{2,5}(-[a-z]+)+-[0-9]+:[0-9]{12}`

var (
	secretVariable = regexp.MustCompile(`^` + SecretEnvPrefix + `[A-Za-z0-9_]{1,128}$`)
	// An ARN decides where a signed request goes, so its region must have the form of a region.
	secretARN     = regexp.MustCompile(`^arn:aws[a-z-]*:secretsmanager:` + regionAndAccount + `:secret:[A-Za-z0-9/_+=.@-]{1,512}$`)
	parameterARN  = regexp.MustCompile(`^arn:aws[a-z-]*:ssm:` + regionAndAccount + `:parameter/[A-Za-z0-9/_.-]{1,1000}$`)
	secretName    = regexp.MustCompile(`^[A-Za-z0-9/_+=.@-]{1,512}$`)
	parameterName = regexp.MustCompile(`^[A-Za-z0-9/_.-]{1,1000}$`)
	vaultSegment  = regexp.MustCompile(`^[A-Za-z0-9_.~+=,:-]+$`)

	stagingLabel     = regexp.MustCompile(`^[A-Za-z0-9_+=.-]{1,256}$`)
	parameterVersion = regexp.MustCompile(`^([1-9][0-9]{0,17}|[A-Za-z_.-][A-Za-z0-9_.-]{0,99})$`)
	vaultVersion     = regexp.MustCompile(`^[1-9][0-9]{0,17}$`)
	secretKey        = regexp.MustCompile(`^[^#@\x00-\x1f\x7f]{1,256}$`)
)

// checkReference reports the problems of a reference. It never echoes a text that is not one: it may be the secret.
func checkReference(problems *input.Problems, at, reference string) {
	r, known := splitReference(reference)
	if !known {
		problems.Add(at, input.CodeSecretReference, "secret is not of the form %s (not shown: it may be the secret itself)", SecretForms)
		return
	}
	report := func(format string, args ...any) { problems.Add(at, input.CodeSecretReference, format, args...) }
	switch r.Source {
	case SecretEnv:
		if !secretVariable.MatchString(r.Name) {
			report("variable %s is not one that jobs may refer to; its name has to begin with %s", input.Echo(r.Name), SecretEnvPrefix)
		}
	case SecretFile:
		checkSecretFile(report, r.Name)
	default:
		r.checkManaged(report, reference)
	}
}

func checkSecretFile(report func(string, ...any), path string) {
	switch {
	case len(path) > 512 || strings.ContainsFunc(path, input.IsControl):
		report("path of a secret is longer than 512 characters, or holds a control character")
	case !fs.ValidPath(path) || path == ".":
		report("path %s is not below the nodes' directory of secrets; write it relative to that, without ..", input.Echo(path))
	}
}

// managedParts are the parts of references to managers of secrets, with the problem if a pattern does not match.
var managedParts = []struct {
	source  SecretSource
	part    string // name, arn or version
	pattern *regexp.Regexp
	problem string
}{
	{SecretsManager, "arn", secretARN, "%s is not the ARN of a secret; write it as arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME"},
	{SecretsManager, "name", secretName, "%s is not the name of a secret: 1 to 512 letters, digits and any of /_+=.@-, or an ARN"},
	{SecretsManager, "version", stagingLabel,
		"version %s is not a staging label such as AWSCURRENT or AWSPREVIOUS: 1 to 256 letters, digits and any of _+=.-"},
	{SecretParameterStore, "arn", parameterARN, "%s is not the ARN of a parameter; write it as arn:aws:ssm:REGION:ACCOUNT:parameter/NAME"},
	{SecretParameterStore, "name", parameterName,
		"%s is not the name of a parameter: 1 to 1000 letters, digits and any of /_.-, or an ARN; the version follows an @"},
	{SecretParameterStore, "version", parameterVersion, "version %s is neither the number nor a label of a version of a parameter"},
	{SecretVault, "version", vaultVersion, "version %s is not the number of a version in Vault, 1 or more"},
}

// checkManaged reports the problems of each part of a reference to a manager of secrets.
func (r SecretReference) checkManaged(report func(string, ...any), text string) {
	check := func(part, value string) {
		for _, p := range managedParts {
			if p.source == r.Source && p.part == part && !p.pattern.MatchString(value) {
				report(p.problem, input.Echo(value))
			}
		}
	}
	switch {
	case r.Source == SecretVault:
		if err := checkVaultPath(r.Name); err != nil {
			report("path %s %s", input.Echo(r.Name), err)
		}
	case strings.HasPrefix(r.Name, "arn:"):
		check("arn", r.Name)
	default:
		check("name", r.Name)
	}
	if hasKey := strings.Contains(text, "#"); hasKey && !secretKey.MatchString(r.Key) {
		report("key %s is not 1 to 256 characters without # and @; leave out # to use the whole secret", input.Echo(r.Key))
	} else if !hasKey && r.Source == SecretVault {
		report("key is missing: a secret of Vault has several; name one, as in vault:secret/data/billing#token")
	}
	if strings.HasSuffix(text, "@"+r.Version) {
		check("version", r.Version)
	}
}

// checkVaultPath returns the problem of a path of KV version 2.
func checkVaultPath(path string) error {
	parts := strings.Split(path, "/")
	data := slices.Index(parts, "data")
	switch {
	case len(path) > 512:
		return errors.New("is longer than 512 characters")
	case slices.ContainsFunc(parts, func(part string) bool {
		return !vaultSegment.MatchString(part) || part == "." || part == ".."
	}):
		return errors.New("is not a path of Vault: names between slashes, without . and .., of letters, digits and any of _.~+=,:-")
	case data < 1 || data == len(parts)-1:
		return errors.New("is not one of KV version 2; write it as in policies, as the mount, data and the path: secret/data/billing")
	}
	return nil
}
