package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// completionCommand prints a script that completes commands and flags.
type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: bash, zsh or fish."`
}

// Run prints the script, which works without this program.
func (s *completionCommand) Run(c console, parsed *kong.Context) error {
	script := map[string]func([]completions) string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}[s.Shell]
	_, err := io.WriteString(c.out, script(completionsOf(parsed.Model.Node, "")))
	return err
}

// completions are the words that may follow a command.
type completions struct{ command, words string }

// completionsOf returns the completions of a command and its subcommands.
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

// cases writes a case of a shell for each command.
func cases(all []completions, form string) string {
	var text strings.Builder
	for _, one := range all {
		fmt.Fprintf(&text, form, one.command, one.words)
	}
	return text.String()
}

func bashCompletion(all []completions) string {
	return `# bash completion of carillon
_carillon_words() {
  case "$1" in
` + cases(all, "  %q) echo %q ;;\n") + `  esac
}
_carillon() {
  local command="" word i
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    case " $(_carillon_words "$command") " in
    *" $word "*) [[ $word == -* ]] || command="${command:+$command }$word" ;;
    esac
  done
  COMPREPLY=($(compgen -W "$(_carillon_words "$command")" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _carillon carillon
`
}

func zshCompletion(all []completions) string {
	return `#compdef carillon
_carillon_words() {
  case "$1" in
` + cases(all, "  %q) echo %q ;;\n") + `  esac
}
_carillon() {
  local command="" word
  for word in "${(@)words[2,CURRENT-1]}"; do
    case " $(_carillon_words "$command") " in
    *" $word "*) [[ $word == -* ]] || command="${command:+$command }$word" ;;
    esac
  done
  compadd -- ${=$(_carillon_words "$command")}
  _files
}
if [ "$funcstack[1]" = "_carillon" ]; then _carillon "$@"; else compdef _carillon carillon; fi
`
}

func fishCompletion(all []completions) string {
	return `# fish completion of carillon
function __carillon_words
    switch "$argv[1]"
` + cases(all, "        case %q\n            string split ' ' -- %q\n") + `    end
end
function __carillon_complete
    set -l command ""
    for word in (commandline -opc)[2..-1]
        if not string match -q -- '-*' $word; and contains -- $word (__carillon_words $command)
            set command (string trim -- "$command $word")
        end
    end
    __carillon_words $command
end
complete -c carillon -a '(__carillon_complete)'
`
}
