package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// contextCommand manages the contexts of this user.
type contextCommand struct {
	Set    contextSetCommand    `cmd:"" help:"Create or replace a context. The first one becomes the current one." example:"carillon context set prod --endpoint https://carillon.internal:8443 --token-file /run/secrets/carillon"`
	Use    contextUseCommand    `cmd:"" help:"Make a context the current one." example:"carillon context use prod"`
	List   contextListCommand   `cmd:"" aliases:"ls" help:"List the contexts, without their tokens." example:"carillon context list"`
	Show   contextShowCommand   `cmd:"" aliases:"describe" help:"Show a context, without its token." example:"carillon context show prod"`
	Delete contextDeleteCommand `cmd:"" help:"Delete a context, and the token that it stores." example:"carillon context delete prod"`
}

type contextSetCommand struct {
	Name         string `arg:"" help:"Name of the context, such as prod."`
	Endpoint     string `required:"" placeholder:"URL" help:"Address of the API of any node."`
	TokenFrom    string `placeholder:"FILE" help:"Store the token that this file holds now; - reads standard input."`
	TokenFile    string `placeholder:"FILE" help:"Read the token from this file, each time."`
	TokenCommand string `placeholder:"COMMAND" help:"Take the token from what this shell command prints, each time."`
	CACert       string `placeholder:"FILE" help:"Certificates of the authorities that the API's certificate may come from."`
	ClientCert   string `placeholder:"FILE" help:"Client certificate, for nodes with --client-ca. Needs --client-key."`
	ClientKey    string `placeholder:"FILE" help:"Private key of the client certificate."`
}

// Validate checks the name, and that exactly one source of the token is given.
func (s *contextSetCommand) Validate() error {
	var problems []error
	if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`).MatchString(s.Name) {
		problems = append(problems, fmt.Errorf("context %s: a name is up to 64 letters, digits, dots, hyphens and underscores",
			input.Echo(s.Name)))
	}
	ways := 0
	for _, way := range []string{s.TokenFrom, s.TokenFile, s.TokenCommand} {
		if way != "" {
			ways++
		}
	}
	if ways != 1 {
		problems = append(problems, errors.New("give one of --token-from, --token-file and --token-command"))
	}
	return errors.Join(problems...)
}

func (s *contextSetCommand) Run(c console) error {
	made := apiContext{Endpoint: s.Endpoint, TokenFile: s.TokenFile, TokenCommand: s.TokenCommand,
		CACert: s.CACert, ClientCert: s.ClientCert, ClientKey: s.ClientKey}
	for _, path := range []*string{&made.TokenFile, &made.CACert, &made.ClientCert, &made.ClientKey} {
		if *path == "" {
			continue
		}
		absolute, err := filepath.Abs(*path) // because the context is used in other directories, too
		if err != nil {
			return err
		}
		*path = absolute
	}
	if s.TokenFrom != "" {
		text, err := readInput(c, s.TokenFrom)
		if err == nil {
			made.Token, err = checkToken(text)
		}
		if err != nil {
			return &usageError{fmt.Errorf("--token-from: %w", err)}
		}
	}
	to := connection{made.Endpoint, made.Token, clientTLSFlags{made.CACert, made.ClientCert, made.ClientKey}}
	if _, err := to.newClient(); err != nil {
		return err
	}
	return changeContexts(func(contexts *contextFile) error {
		contexts.Contexts[s.Name] = made
		contexts.Current = cmp.Or(contexts.Current, s.Name)
		return nil
	})
}

// readInput reads a file, or standard input if the name is "-".
func readInput(c console, file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(c.in)
	}
	return os.ReadFile(file)
}

// readJSON returns what a flag or an argument gives: JSON, @ and the path of a file, or - for standard input. from is where
// it comes from, for errors.
func readJSON(c console, given string) (text []byte, from string, err error) {
	switch {
	case given == "-":
		from = "standard input"
		text, err = io.ReadAll(io.LimitReader(c.in, input.MaxPayload+1))
	case strings.HasPrefix(given, "@"):
		from = "file " + plain(given[1:])
		text, err = os.ReadFile(given[1:])
	default:
		return []byte(given), plain(input.Echo(given)), nil
	}
	if err != nil {
		err = fmt.Errorf("read %s: %w", from, err)
	}
	return bytes.TrimSpace(text), from, err
}

func changeContexts(change func(*contextFile) error) error {
	contexts, err := readContexts()
	if err == nil {
		err = change(&contexts)
	}
	if err == nil {
		err = contexts.write()
	}
	if err != nil {
		return &usageError{err}
	}
	return nil
}

type contextUseCommand struct {
	Name string `arg:"" help:"Name of the context."`
}

func (u *contextUseCommand) Run() error {
	return changeContexts(func(contexts *contextFile) error {
		_, err := contexts.get(u.Name)
		contexts.Current = u.Name
		return err
	})
}

// shownContext is a context without its token.
type shownContext struct {
	Name       string `json:"name"`
	Current    bool   `json:"current"`
	Endpoint   string `json:"endpoint"`
	TokenFrom  string `json:"token_from"`
	CACert     string `json:"ca_cert,omitempty"`
	ClientCert string `json:"client_cert,omitempty"`
	ClientKey  string `json:"client_key,omitempty"`
}

func (f contextFile) shown(name string) shownContext {
	found := f.Contexts[name]
	return shownContext{Name: name, Current: name == f.Current, Endpoint: found.Endpoint, TokenFrom: found.from(),
		CACert: found.CACert, ClientCert: found.ClientCert, ClientKey: found.ClientKey}
}

type contextListCommand struct{ outputFlags }

// Run lists the contexts; a star marks the current one.
func (l *contextListCommand) Run(c console) error {
	contexts, err := readContexts()
	if err != nil {
		return &usageError{err}
	}
	all := make([]shownContext, 0, len(contexts.Contexts))
	for _, name := range contexts.names() {
		all = append(all, contexts.shown(name))
	}
	return printList(l.outputFlags, c, all, "CURRENT\tNAME\tENDPOINT\tTOKEN", func(s shownContext) []any {
		return []any{map[bool]string{true: "*"}[s.Current], s.Name, s.Endpoint, s.TokenFrom}
	})
}

type contextShowCommand struct {
	outputFlags
	Name string `arg:"" optional:"" help:"Name of the context. Default: the current one."`
}

func (s *contextShowCommand) Run(c console) error {
	contexts, err := readContexts()
	if err == nil {
		s.Name = cmp.Or(s.Name, contexts.Current)
		_, err = contexts.get(s.Name)
	}
	if err != nil {
		return &usageError{err}
	}
	shown := contexts.shown(s.Name)
	return printObject(s.outputFlags, c, shown, func(l *lines) {
		l.add("context", shown.Name)
		l.add("current", map[bool]string{true: "yes", false: "no"}[shown.Current])
		l.add("endpoint", shown.Endpoint)
		l.add("token", shown.TokenFrom)
		l.add("authorities", shown.CACert)
		l.add("client certificate", shown.ClientCert)
		l.add("client key", shown.ClientKey)
	})
}

type contextDeleteCommand struct {
	Name string `arg:"" help:"Name of the context."`
}

func (d *contextDeleteCommand) Run() error {
	return changeContexts(func(contexts *contextFile) error {
		_, err := contexts.get(d.Name)
		delete(contexts.Contexts, d.Name)
		if contexts.Current == d.Name {
			contexts.Current = ""
		}
		return err
	})
}

// contextFile holds the contexts of one user.
type contextFile struct {
	Current  string                `json:"current,omitempty"`
	Contexts map[string]apiContext `json:"contexts"`
}

// apiContext is an API with the settings to call it. It has one of three sources of the token.
type apiContext struct {
	Endpoint     string `json:"endpoint"`
	Token        string `json:"token,omitempty"`
	TokenFile    string `json:"token_file,omitempty"`
	TokenCommand string `json:"token_command,omitempty"`
	CACert       string `json:"ca_cert,omitempty"`
	ClientCert   string `json:"client_cert,omitempty"`
	ClientKey    string `json:"client_key,omitempty"`
}

func contextPath() (string, error) {
	if dir := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) { // the specification says to ignore relative paths
		return filepath.Join(dir, "carillon", "config"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no directory for contexts: %w, nor is $XDG_CONFIG_HOME", err)
	}
	return filepath.Join(home, ".config", "carillon", "config"), nil
}

// readContexts reads the contexts; none without a file. It refuses a file that others can read,
// because a token in it is no longer secret.
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

// write replaces the file of the contexts atomically.
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
	defer func() { _ = os.Remove(temporary.Name()) }() // already renamed if all went well
	_, err = temporary.Write(append(text, '\n'))
	if err := errors.Join(err, temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}

func (f contextFile) names() []string { return slices.Sorted(maps.Keys(f.Contexts)) }

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

// checkToken returns the token in a text, without the line break at its end. Its errors do not show the token.
func checkToken(text []byte) (string, error) {
	token := bytes.TrimRight(text, "\r\n")
	if len(token) == 0 || bytes.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errors.New("what was given as a token is none: a token is one line of visible characters without blanks")
	}
	return string(token), nil
}

// from describes the source of a context's token, without showing the token.
func (a apiContext) from() string {
	switch {
	case a.TokenFile != "":
		return "file " + a.TokenFile
	case a.TokenCommand != "":
		return "command " + a.TokenCommand
	}
	return "stored"
}

// apiFlags select the API that a command calls: of a context, or of flags and variables.
type apiFlags struct {
	Endpoint string `group:"api" env:"CARILLON_ENDPOINT" placeholder:"URL" help:"Address of the API of any node. Default: that of the context, else http://127.0.0.1:8080."`
	Token    string `group:"api" env:"CARILLON_TOKEN" help:"API token. Prefer the variable or a context: other users of the machine can see flags."`
	Context  string `group:"api" env:"CARILLON_CONTEXT" placeholder:"NAME" help:"Use this context, not the current one. See carillon context."`
	clientTLSFlags
	onCommandLine map[string]bool // names of the flags that were not set by variables
}

// defaultEndpoint is the endpoint of a node on this machine.
const defaultEndpoint = "http://127.0.0.1:8080"

// AfterApply records which flags are on the command line.
func (a *apiFlags) AfterApply(parsed *kong.Context) error {
	a.onCommandLine = map[string]bool{}
	for _, step := range parsed.Path {
		if step.Flag != nil {
			a.onCommandLine[step.Flag.Name] = true
		}
	}
	return nil
}

// ProvideClient returns a client of the API; kong passes it to the Run of a command that takes one.
func (a *apiFlags) ProvideClient(ctx context.Context) (*client.Client, error) {
	to, err := a.connection(ctx)
	if err != nil {
		return nil, &usageError{err}
	}
	return to.newClient()
}

// connection is an endpoint with its token and certificates.
type connection struct {
	endpoint, token string
	clientTLSFlags
}

// newClient returns a client of the API. Its errors name the flags.
func (c connection) newClient() (*client.Client, error) {
	called := client.Certificates{CACert: "--ca-cert (CARILLON_CA_CERT)", ClientCert: "--client-cert", ClientKey: "--client-key"}
	transport, err := client.Certificates(c.clientTLSFlags).Transport(called)
	if err != nil {
		return nil, &usageError{err}
	}
	made, err := client.New(c.endpoint, c.token, client.Options{UserAgent: "carillon/" + version, Transport: transport})
	if err != nil {
		return nil, &usageError{fmt.Errorf("--endpoint: %w", err)}
	}
	return made, nil
}

// connection chooses the endpoint and the token. A token is sent only to its own endpoint: either all settings come
// from a context, which flags may change, or all from flags and variables. A named context precedes variables.
func (a *apiFlags) connection(ctx context.Context) (connection, error) {
	given := connection{cmp.Or(a.Endpoint, defaultEndpoint), a.Token, a.clientTLSFlags}
	if a.Context == "" && (a.Endpoint != "" || a.Token != "") {
		if a.Token == "" {
			return given, errors.New("--token (CARILLON_TOKEN): is required with --endpoint (CARILLON_ENDPOINT); " +
				"the token of a context goes only to the endpoint of that context")
		}
		return given, nil
	}
	contexts, err := readContexts()
	if err != nil {
		return given, err
	}
	name := cmp.Or(a.Context, contexts.Current)
	if name == "" {
		return given, errors.New("no token: set --token (CARILLON_TOKEN), or make a context with: " +
			"carillon context set NAME --endpoint URL --token-from FILE")
	}
	found, err := contexts.get(name)
	if err != nil {
		return given, err
	}
	if a.onCommandLine["endpoint"] && !a.onCommandLine["token"] {
		return given, fmt.Errorf("--endpoint: the token of context %s goes only to its own endpoint; "+
			"give --token, too, or leave out --endpoint", input.Echo(name))
	}
	return a.over(ctx, found)
}

// over returns the connection of a context, changed by the command line.
func (a *apiFlags) over(ctx context.Context, found apiContext) (connection, error) {
	to := connection{found.Endpoint, "", clientTLSFlags{found.CACert, found.ClientCert, found.ClientKey}}
	for name, change := range map[string]struct {
		from string
		to   *string
	}{
		"endpoint": {a.Endpoint, &to.endpoint}, "token": {a.Token, &to.token}, "ca-cert": {a.CACert, &to.CACert},
		"client-cert": {a.ClientCert, &to.ClientCert}, "client-key": {a.ClientKey, &to.ClientKey},
	} {
		if a.onCommandLine[name] {
			*change.to = change.from
		}
	}
	var err error
	if to.token == "" {
		to.token, err = found.secret(ctx)
	}
	return to, err
}

// clientTLSFlags are the certificates of a command that calls the API.
type clientTLSFlags struct {
	CACert     string `group:"api" env:"CARILLON_CA_CERT" placeholder:"FILE" help:"Certificates of the authorities that the API's certificate may come from. Default: those of this machine."`
	ClientCert string `group:"api" env:"CARILLON_CLIENT_CERT" placeholder:"FILE" help:"Client certificate, for nodes with --client-ca. Needs --client-key."`
	ClientKey  string `group:"api" env:"CARILLON_CLIENT_KEY" placeholder:"FILE" help:"Private key of the client certificate."`
}
