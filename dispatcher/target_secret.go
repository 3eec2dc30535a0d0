package dispatcher

import (
	"io/fs"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Secret is a value that only the sender and the target may know. One of its fields is set.
type Secret struct {
	// Reference is env:NAME, a variable of the node's environment whose name begins with
	// SecretEnvPrefix, or file:PATH, a file below the node's directory of secrets. The node
	// reads it for each attempt.
	Reference string `json:"reference,omitempty"`
	// Value is the secret itself, of at most MaxSecret bytes. It is
	// stored encrypted and never returned.
	Value Sensitive `json:"value,omitzero"`
	// Stored stands for a value that was given before: a PUT with it keeps that value, as long as the
	// target keeps its Origin.
	Stored bool `json:"stored,omitempty"`
}

// MaxSecret bounds the value of a secret, in bytes; certificates are the longest.
const MaxSecret = 64 << 10

// SecretEnvPrefix begins the names of variables that jobs may refer to, so that declaring a job does
// not give access to the whole environment of a node.
const SecretEnvPrefix = "SECRET_"

var secretVariable = regexp.MustCompile(`^` + SecretEnvPrefix + `[A-Za-z0-9_]{1,128}$`)

// check reports what is wrong with s under path; form, if not nil, checks a value.
func (s Secret) check(problems *Problems, at string, form func(string) error) {
	given := 0
	for _, is := range []bool{s.Reference != "", !s.Value.IsZero(), s.Stored} {
		if is {
			given++
		}
	}
	switch {
	case given == 0:
		problems.Add(at, CodeRequired, "secret is missing; refer to it as env:%sNAME or file:PATH, or give its value", SecretEnvPrefix)
	case given > 1:
		problems.Add(at, CodeSecretForm, "secret has more than one of reference, value and stored; give one")
	case s.Reference != "":
		checkReference(problems, at+"/reference", s.Reference)
	case !s.Value.IsZero():
		checkSecretValue(problems, at+"/value", s.Value.Reveal(), form)
	}
}

// checkReference never echoes a text that is not a reference: it may be the secret.
func checkReference(problems *Problems, at, reference string) {
	name, isEnv := strings.CutPrefix(reference, "env:")
	file, isFile := strings.CutPrefix(reference, "file:")
	switch {
	case isEnv && secretVariable.MatchString(name):
	case isEnv:
		problems.Add(at, CodeSecretReference, "variable %s is not one that jobs may refer to; its name has to begin with %s",
			Echo(name), SecretEnvPrefix)
	case !isFile:
		problems.Add(at, CodeSecretReference, "secret is not of the form env:%sNAME or file:PATH (not shown: it may "+
			"be the secret itself)", SecretEnvPrefix)
	case len(file) > 512 || strings.ContainsFunc(file, func(r rune) bool { return r < ' ' || r == 0x7f }):
		problems.Add(at, CodeSecretReference, "path of a secret is longer than 512 characters, or holds a control character")
	case !fs.ValidPath(file) || file == ".":
		problems.Add(at, CodeSecretReference, "path %s is not below the nodes' directory of secrets; write it "+
			"relative to that, without ..", Echo(file))
	}
}

func checkSecretValue(problems *Problems, at, value string, form func(string) error) {
	switch {
	case value == "":
		problems.Add(at, CodeSecretLength, "value of a secret is empty; the length is 1 byte to 64 KiB")
	case len(value) > MaxSecret:
		problems.Add(at, CodeSecretLength, "value of a secret has %d bytes; the maximum is 64 KiB", len(value))
	case !utf8.ValidString(value):
		problems.Add(at, CodeTextInvalid, "value of a secret is not UTF-8")
	case form != nil:
		problems.AddError(at, form(value))
	}
}

// Secrets returns the secrets of a target by their JSON pointers in it.
func (t Target) Secrets() map[string]Secret {
	all := map[string]Secret{}
	t.eachSecret(func(path string, s Secret) Secret {
		all[path] = s
		return s
	})
	return all
}

// CheckKept returns a problem for each secret of t that keeps the stored value of old but would be sent
// to another origin, so that nobody can redirect a stored secret to a host of their own. The pointers
// are those in t.
func (t Target) CheckKept(old Target) error {
	var problems Problems
	given, before := t.Secrets(), old.Secrets()
	from, to := old.Origin(), t.Origin()
	for _, path := range sortedKeys(given) {
		if given[path].Stored && before[path].Stored && from != to {
			problems.Add(path+"/stored", CodeSecretOrigin,
				"the stored value was given for %s and is not sent to %s; give it again (in Terraform, with another value_version), "+
					"or refer to the secret as env:%sNAME or file:PATH", Echo(from), Echo(to), SecretEnvPrefix)
		}
	}
	return problems.Err()
}

// WithSecrets returns a copy of t in which the secrets in with, by their JSON pointers, replace those
// of t.
func (t Target) WithSecrets(with map[string]Secret) Target {
	return t.eachSecret(func(path string, s Secret) Secret {
		if other, ok := with[path]; ok {
			return other
		}
		return s
	})
}

// ForWire returns a copy of j whose JSON holds the values of its secrets, only to send it to the API.
func (j Job) ForWire() Job {
	j.Target = j.Target.eachSecret(func(_ string, s Secret) Secret {
		s.Value.wired = true
		return s
	})
	return j
}
