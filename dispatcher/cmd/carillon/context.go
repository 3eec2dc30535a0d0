package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// contextCommand manages the contexts of this user.
type contextCommand struct {
	Set    contextSetCommand    `cmd:"" help:"Create or replace a context. The first one becomes the current one." example:"carillon context set prod --endpoint https://carillon.internal:8443 --token-file /run/secrets/carillon"`
	Use    contextUseCommand    `cmd:"" help:"Make a context the current one." example:"carillon context use prod"`
	List   contextListCommand   `cmd:"" help:"List the contexts, without their tokens." example:"carillon context list"`
	Show   contextShowCommand   `cmd:"" help:"Show a context, without its token." example:"carillon context show prod"`
	Delete contextDeleteCommand `cmd:"" help:"Delete a context, and the token that it stores." example:"carillon context delete prod"`
}

// contextSetCommand creates a context.
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

// Validate checks the name, and that there is one way to the token.
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

// Run stores the context.
func (s *contextSetCommand) Run(c console) error {
	made := apiContext{Endpoint: s.Endpoint, TokenFile: s.TokenFile, TokenCommand: s.TokenCommand,
		CACert: s.CACert, ClientCert: s.ClientCert, ClientKey: s.ClientKey}
	for _, path := range []*string{&made.TokenFile, &made.CACert, &made.ClientCert, &made.ClientKey} {
		if *path == "" {
			continue
		}
		absolute, err := filepath.Abs(*path) // the context is used in other directories, too
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

// readInput reads a file, or standard input if it is named "-".
func readInput(c console, file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(c.in)
	}
	return os.ReadFile(file)
}

// changeContexts changes the file of the contexts.
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

// contextUseCommand chooses the current context.
type contextUseCommand struct {
	Name string `arg:"" help:"Name of the context."`
}

// Run chooses it.
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

// contextListCommand lists contexts.
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

// contextShowCommand shows a context.
type contextShowCommand struct {
	outputFlags
	Name string `arg:"" optional:"" help:"Name of the context. Default: the current one."`
}

// Run shows the context.
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

// contextDeleteCommand deletes a context.
type contextDeleteCommand struct {
	Name string `arg:"" help:"Name of the context."`
}

// Run deletes it.
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
