package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// contextFile holds the contexts of one user.
type contextFile struct {
	Current  string                `json:"current,omitempty"`
	Contexts map[string]apiContext `json:"contexts"`
}

// apiContext is an API with what it takes to call it. One of the three ways to a token is given.
type apiContext struct {
	Endpoint     string `json:"endpoint"`
	Token        string `json:"token,omitempty"`
	TokenFile    string `json:"token_file,omitempty"`
	TokenCommand string `json:"token_command,omitempty"`
	CACert       string `json:"ca_cert,omitempty"`
	ClientCert   string `json:"client_cert,omitempty"`
	ClientKey    string `json:"client_key,omitempty"`
}

// contextPath is where the contexts of this user are.
func contextPath() (string, error) {
	if dir := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) { // its specification says to ignore others
		return filepath.Join(dir, "carillon", "config"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no directory for contexts: %w, nor is $XDG_CONFIG_HOME", err)
	}
	return filepath.Join(home, ".config", "carillon", "config"), nil
}

// readContexts reads the contexts; none if there is no file. It refuses a file that others can read, since a token in it
// is no secret any more.
func readContexts() (contextFile, error) {
	contexts := contextFile{Contexts: map[string]apiContext{}}
	path, err := contextPath()
	if err != nil {
		return contexts, err
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return contexts, nil
	}
	if err != nil {
		return contexts, fmt.Errorf("contexts: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return contexts, fmt.Errorf("contexts: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return contexts, fmt.Errorf("contexts: others than its owner can use %s (mode %04o), so its tokens are no secrets; "+
			"replace them if others use this machine, then: chmod 600 %s", path, mode, path)
	}
	decoder := json.NewDecoder(file)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&contexts); err != nil {
		return contexts, fmt.Errorf("contexts: %s: %w", path, err)
	}
	if contexts.Contexts == nil {
		contexts.Contexts = map[string]apiContext{}
	}
	return contexts, nil
}

// write replaces the file of the contexts, as a whole or not at all.
func (f contextFile) write() error {
	path, err := contextPath()
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	temporary, err := os.CreateTemp(dir, ".config-*") // only its owner can read it
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temporary.Name()) }() // it is gone if all went well
	_, err = temporary.Write(append(text, '\n'))
	if err := errors.Join(err, temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}

// names are those of the contexts, sorted.
func (f contextFile) names() []string { return slices.Sorted(maps.Keys(f.Contexts)) }

// get finds a context.
func (f contextFile) get(name string) (apiContext, error) {
	found, ok := f.Contexts[name]
	if ok {
		return found, nil
	}
	known := "there is none yet; make one with carillon context set"
	if len(f.Contexts) > 0 {
		known = "known are " + strings.Join(f.names(), ", ")
	}
	return found, fmt.Errorf("context %s does not exist; %s", input.Echo(name), known)
}

// secret returns the token of a context, as it is now.
func (a apiContext) secret(ctx context.Context) (string, error) {
	var text []byte
	var err error
	switch {
	case a.TokenFile != "":
		text, err = os.ReadFile(a.TokenFile)
	case a.TokenCommand != "":
		command := exec.CommandContext(ctx, "sh", "-c", a.TokenCommand)
		command.Stdin, command.Stderr = os.Stdin, os.Stderr
		if text, err = command.Output(); err != nil {
			err = fmt.Errorf("the context's token command failed: %w", err)
		}
	default:
		text = []byte(a.Token)
	}
	if err != nil {
		return "", err
	}
	return checkToken(text)
}

// checkToken returns the token in a text, without the line break at its end. The error does not show it.
func checkToken(text []byte) (string, error) {
	token := bytes.TrimRight(text, "\r\n")
	if len(token) == 0 || bytes.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errors.New("what was given as a token is none: a token is one line of visible characters without blanks")
	}
	return string(token), nil
}

// from says where the token of a context comes from, without it.
func (a apiContext) from() string {
	switch {
	case a.TokenFile != "":
		return "file " + a.TokenFile
	case a.TokenCommand != "":
		return "command " + a.TokenCommand
	}
	return "stored"
}
