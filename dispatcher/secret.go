package dispatcher

import (
	"io/fs"
	"regexp"
	"strings"
)

// Secret is something that only the caller of a target may know, by reference to where each
// node finds it.
type Secret struct {
	// Reference is env:NAME, a variable of the node's environment whose name begins with
	// SecretEnvPrefix, or file:PATH, a file below the node's directory of secrets. It is looked
	// up when a call is made.
	Reference string `json:"reference"`
}

// SecretEnvPrefix begins the names of variables that jobs may refer to: who may declare a job
// must not thereby read the whole environment of a node.
const SecretEnvPrefix = "SECRET_"

var secretVariable = regexp.MustCompile(`^` + SecretEnvPrefix + `[A-Za-z0-9_]{1,128}$`)

// check reports what is wrong with s under path.
func (s Secret) check(faults *Faults, at string) {
	at += "/reference"
	name, isEnv := strings.CutPrefix(s.Reference, "env:")
	file, isFile := strings.CutPrefix(s.Reference, "file:")
	switch {
	case s.Reference == "":
		faults.Add(at, CodeRequired, "secret is missing; refer to it as env:%sNAME or file:PATH", SecretEnvPrefix)
	case isEnv && secretVariable.MatchString(name):
	case isEnv:
		faults.Add(at, CodeSecretReference, "variable %s is not one that jobs may refer to; its name has to begin with %s", Echo(name), SecretEnvPrefix)
	case !isFile:
		faults.Add(at, CodeSecretReference, "secret is not of the form env:%sNAME or file:PATH (not shown: it may be the secret itself)", SecretEnvPrefix)
	case len(file) > 512 || strings.ContainsFunc(file, func(r rune) bool { return r < ' ' || r == 0x7f }):
		faults.Add(at, CodeSecretReference, "path of a secret is longer than 512 characters, or holds a control character")
	case !fs.ValidPath(file) || file == ".":
		faults.Add(at, CodeSecretReference, "path %s is not below the nodes' directory of secrets; write it relative to that, without ..", Echo(file))
	}
}
