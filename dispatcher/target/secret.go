package target

import (
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Secret is a value that only the sender and the target may know. One of its fields is set.
type Secret struct {
	// Reference is env:NAME, a variable of the node's environment whose name begins with
	// SecretEnvPrefix; file:PATH, a file below the node's directory of secrets; or a secret of a
	// manager: awssm:NAME, ssm:NAME or vault:PATH, each with [#KEY][@VERSION]. The node looks it
	// up for the attempts that need it. See SecretReference.
	Reference string `json:"reference,omitempty"`
	// Value is the secret itself, of at most MaxSecret bytes. It is
	// stored encrypted and never returned.
	Value input.Sensitive `json:"value,omitzero"`
	// Stored stands for a value that was given before: a PUT with it keeps that value, as long as the
	// target keeps its Origin.
	Stored bool `json:"stored,omitempty"`
}

// MaxSecret bounds the value of a secret, in bytes; certificates are the longest.
const MaxSecret = 64 << 10

// SecretEnvPrefix begins the names of variables that jobs may refer to, so that declaring a job does
// not give access to the whole environment of a node.
const SecretEnvPrefix = "SECRET_"

// check reports what is wrong with s under path; form, if not nil, checks a value.
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
		// Only what is sent back as the API returned it has stored.
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

// eachSecret returns a copy of v, a definition or a part of one, with each secret replaced; f takes its JSON pointer in v.
func eachSecret[T any](v T, f func(pointer string, s Secret) Secret) T {
	replaceSecrets(reflect.ValueOf(&v).Elem(), "", f)
	return v
}

// replaceSecrets replaces the secrets below v, which is at a JSON pointer, and returns whether there are any. It copies what leads
// to them. A secret is a field, is pointed to, or is a value of a map, never an element of a list.
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

// ForWire returns a copy of v whose JSON holds the values of its secrets, only to send it to the API.
func ForWire[T any](v T) T {
	return eachSecret(v, func(_ string, s Secret) Secret {
		s.Value = s.Value.ForWire()
		return s
	})
}

// GivesSecret tells whether v has the value of a secret, not only a reference or that one is stored.
func GivesSecret[T any](v T) (gives bool) {
	for _, s := range Secrets(v) {
		gives = gives || !s.Value.IsZero()
	}
	return gives
}

// CheckStorable returns what is wrong with secrets, by their paths below a JSON pointer, that are to be stored: one is to be kept of which
// no value is stored among before, or there are no keys to encrypt a value with.
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

// CheckKept returns a problem for each secret of t that keeps the stored value of old but would be sent
// to another origin, so that nobody can redirect a stored secret to a host of their own. The pointers
// are those in t.
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
