package main

import (
	"cmp"
	"embed"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// completionScripts are scripts in which a case for each command takes the place of @cases@.
//
//go:embed completion
var completionScripts embed.FS

// completionCommand prints a script that completes commands and flags.
type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: bash, zsh or fish."`
}

// Run prints the script, which works without this program.
func (s *completionCommand) Run(c console, parsed *kong.Context) error {
	script, err := completionScripts.ReadFile("completion/carillon." + s.Shell)
	if err != nil {
		return err
	}
	form := map[string]string{"fish": "        case %q\n            string split ' ' -- %q"}[s.Shell]
	var cases []string
	for _, one := range completionsOf(parsed.Model.Node, "") {
		cases = append(cases, fmt.Sprintf(cmp.Or(form, "  %q) echo %q ;;"), one.command, one.words))
	}
	_, err = io.WriteString(c.out, strings.ReplaceAll(string(script), "@cases@", strings.Join(cases, "\n")))
	return err
}

// completions are the words that may follow a command.
type completions struct{ command, words string }

func completionsOf(node *kong.Node, command string) []completions {
	var words []string
	var below []completions
	for _, child := range node.Children {
		if child.Hidden {
			continue
		}
		words = append(words, child.Name)
		below = append(below, completionsOf(child, strings.TrimSpace(command+" "+child.Name))...)
	}
	for _, argument := range node.Positional {
		words = append(words, argument.EnumSlice()...)
	}
	for _, group := range node.AllFlags(true) {
		for _, flag := range group {
			words = append(words, "--"+flag.Name)
		}
	}
	return append([]completions{{command, strings.Join(words, " ")}}, below...)
}
