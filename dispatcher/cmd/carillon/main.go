// Command carillon calls webhooks on schedule. It contains the dispatcher node, its HTTP API and
// the tools for operators.
package main

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/cmd/carillon/node"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// version is set by the build.
var version = "0.0.0-dev"

// cli is the command line; kong fills it from flags and the environment. Each command has an example.
type cli struct {
	nodeCommands
	startCommands
	lookCommands
	operateCommands
	declareCommands
	developCommands

	VersionFlag kong.VersionFlag `name:"version" help:"Print the version."`
	zonesFlag
}

// nodeCommands run and check nodes.
type nodeCommands struct {
	Serve   serveCommand   `cmd:"" group:"node" help:"Run a dispatcher node with its HTTP API." example:"carillon serve --database postgres://carillon@db/carillon --listen 0.0.0.0:8080"`
	Migrate migrateCommand `cmd:"" group:"node" help:"Update the database schema." example:"carillon migrate --database postgres://carillon@db/carillon"`
	Doctor  doctorCommand  `cmd:"" group:"node" help:"Check what a node needs: database, rights, schema, clock, secrets, egress, AWS. Takes the flags of serve." example:"carillon doctor --database postgres://carillon@db/carillon"`
	Probe   probeCommand   `cmd:"" group:"node" help:"Ask the node on this machine whether it is alive or ready." example:"carillon probe readyz"`
	Machine machineCommand `cmd:"" group:"node" name:"lifecycle" help:"Stop a node before its machine ends."`
	Secret  secretCommand  `cmd:"" group:"node" help:"Create and replace the keys of stored secrets."`
}

// startCommands show where to look.
type startCommands struct {
	Attention attentionCommand `cmd:"" group:"look" help:"Show what needs the attention of a person on call." example:"carillon attention billing"`
	Open      openCommand      `cmd:"" group:"look" help:"Print the address of a page of the console, and open it in a browser." example:"carillon open billing/invoices"`
}

// lookCommands show what happens.
type lookCommands struct {
	Job       jobCommand        `cmd:"" group:"look" help:"Look at jobs; run, pause and resume them."`
	Runs      runCommand        `cmd:"" group:"look" name:"run" help:"Look at runs; repeat and cancel them."`
	Objective objectiveCommand  `cmd:"" group:"look" help:"See how jobs do by their objectives."`
	Statistic statisticsCommand `cmd:"" group:"look" name:"statistics" help:"Count the runs and misfires of each day." example:"carillon statistics billing --since 168h"`
	Misfire   misfireCommand    `cmd:"" group:"look" help:"List what became of missed fires."`
	Dead      deadLetterCommand `cmd:"" group:"look" name:"dead-letter" help:"List runs that failed for good, and retry them."`
	Next      nextCommand       `cmd:"" group:"look" help:"List what an app or a job fires tonight." example:"carillon next billing --for 12h --timezone Europe/Berlin"`
	Tail      tailCommand       `cmd:"" group:"look" help:"Show each attempt and misfire as it happens." example:"carillon tail billing/invoices"`
	Explain   explainCommand    `cmd:"" group:"look" help:"Explain what happened to one scheduled time of a trigger." example:"carillon explain billing/invoices/berlin 2026-05-01T06:00:00+02:00"`
	Verify    verifyCommand     `cmd:"" group:"look" help:"Compare the ledger of an app with its schedules. Fails if they disagree." example:"carillon verify billing --since 2026-05-01T00:00:00Z"`
	Alert     alertCommand      `cmd:"" group:"look" help:"See what alerts tell of, acknowledge it, mute and test alerts."`
	Audit     auditCommand      `cmd:"" group:"look" help:"Show who changed what, and whose change was refused." example:"carillon audit billing/invoices --since 24h"`
	Calendar  calendarCommand   `cmd:"" group:"look" help:"Look at calendars."`
	Group     groupCommand      `cmd:"" group:"look" help:"Look at endpoint groups."`
	Slot      slotCommand       `cmd:"" group:"look" help:"List the runs that hold a concurrency slot."`
}

// operateCommands change what happens.
type operateCommands struct {
	App      appCommand      `cmd:"" group:"operate" help:"List and show apps, set their bounds, suspend them, or move them between installations."`
	Bulk     bulkCommand     `cmd:"" group:"operate" help:"Pause, resume or run all jobs, or cancel or retry all runs, that a filter selects."`
	Backfill backfillCommand `cmd:"" group:"operate" help:"Run the instants of a range."`
	Pause    pauseCommand    `cmd:"" group:"operate" help:"Pause apps, or their jobs with some labels."`
	Node     nodeCommand     `cmd:"" group:"operate" help:"List, pause, resume and drain nodes."`
	Endpoint endpointCommand `cmd:"" group:"operate" help:"List, drain and resume the endpoints of a group."`
	Token    tokenCommand    `cmd:"" group:"operate" help:"Create, list, rotate and revoke API tokens."`
	Context  contextCommand  `cmd:"" group:"operate" help:"Choose the installation that commands speak to."`
	Zones    zonesCommand    `cmd:"" group:"operate" help:"Choose the time zone data that all nodes compute with."`
	Rollback rollbackCommand `cmd:"" group:"operate" help:"Resume after a restore or failover lost committed data."`
}

// declareCommands declare jobs and check schedules.
type declareCommands struct {
	Lint     lintCommand     `cmd:"" group:"declare" help:"Find mistakes in Terraform files, without a server." example:"carillon lint infrastructure/jobs"`
	Diff     diffCommand     `cmd:"" group:"declare" help:"Compare Terraform files with what the server has." example:"carillon diff infrastructure/jobs"`
	Export   exportCommand   `cmd:"" group:"declare" help:"Print an app as Terraform files that import it." example:"carillon export billing"`
	Schedule scheduleCommand `cmd:"" group:"declare" help:"Work with schedule expressions."`
}

// developCommands are for trying and building Carillon.
type developCommands struct {
	Dev        devCommand        `cmd:"" group:"develop" help:"Run a node, a receiver and the quickstart example on this machine." example:"carillon dev --terraform /usr/bin/terraform --provider bin/terraform-provider-carillon"`
	Completion completionCommand `cmd:"" group:"develop" help:"Print a script that completes commands in a shell." example:"carillon completion bash"`
	Version    versionCommand    `cmd:"" group:"develop" help:"Print the version." example:"carillon version"`
}

// BeforeReset reads the variables of a command's flags, and reports all invalid ones. Kong, which
// reads them next, would report only the first.
func (*cli) BeforeReset(parsed *kong.Context) error {
	for _, step := range parsed.Path {
		if step.Flag != nil && step.Flag.Name == "help" {
			return nil
		}
	}
	var problems []error
	for _, flag := range parsed.Flags() {
		problems = append(problems, flag.Reset())
	}
	return errors.Join(problems...)
}

// flagVariables returns the variables of all commands.
func flagVariables() node.Variables { return node.VariablesOf(reflect.TypeFor[cli]()) }

func groups() []kong.Group {
	return []kong.Group{
		{Key: "node", Title: "Run a node"},
		{Key: "look", Title: "Look"},
		{Key: "operate", Title: "Operate"},
		{Key: "declare", Title: "Declare"},
		{Key: "develop", Title: "Develop"},
		{Key: "api", Title: "Which API to call"},
	}
}

// newParser returns a parser of command lines. It calls exit with a code after help or the version.
func newParser(commands *cli, c console, exit func(code int), options ...kong.Option) *kong.Kong {
	parser, err := kong.New(commands, append([]kong.Option{
		kong.Name("carillon"),
		kong.Description("Calls webhooks on schedule. Jobs are declared in Terraform."),
		kong.Vars{"version": "carillon " + version},
		kong.Writers(c.out, c.err),
		kong.Exit(exit),
		kong.KindMapper(reflect.Int, kong.MapperFunc(plainNumber)),
		kong.ExplicitGroups(groups()),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Help(helpWithExample),
		kong.UsageOnError(),
	}, options...)...)
	if err != nil {
		panic(err) // a mistake in the struct above
	}
	return parser
}

func helpWithExample(options kong.HelpOptions, parsed *kong.Context) error {
	if err := kong.DefaultHelpPrinter(options, parsed); err != nil {
		return err
	}
	selected := parsed.Selected()
	if selected == nil || options.Summary || selected.Tag.Get("example") == "" {
		return nil
	}
	_, err := fmt.Fprintf(parsed.Stdout, "\nExample:\n  %s\n", selected.Tag.Get("example"))
	return err
}

// console is the input and output of a command.
type console struct {
	in       io.Reader
	out, err io.Writer
}

func main() {
	failpoint.WatchClock()
	ctx, drain := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		// The first signal starts a drain. Signals get their default effect back before the drain
		// becomes visible, so a second one ends the process at once.
		signal.Stop(signals)
		drain()
	}()
	os.Exit(execute(ctx, os.Args[1:], console{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}

// execute executes one command line and returns the exit code.
func execute(ctx context.Context, args []string, c console) int {
	settings := flagVariables()
	unreadable, fileErr := settings.LoadFile()
	found, credentialErr := settings.LoadCredentials()
	fileErr = errors.Join(fileErr, credentialErr)
	args = withTimesAgo(args)
	var commands cli
	exited := -1
	parser := newParser(&commands, c, func(code int) { exited = code },
		kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(c))
	parsed, err := parser.Parse(args)
	if exited >= 0 {
		return exited // after --help
	}
	if fileErr != nil && (err != nil || parsed.Command() != "version") {
		return fail(c, &usageError{errors.Join(fileErr, err)})
	}
	if err != nil {
		return fail(c, &usageError{explainSettings(withoutGuess(found.Explain(err)), unreadable)})
	}
	if err := commands.use(); err != nil {
		return fail(c, &usageError{err})
	}
	err = parsed.Run()
	if err == nil {
		return 0
	}
	if strings.Contains(err.Error(), "(CARILLON_") {
		err = explainSettings(err, unreadable)
	}
	return fail(c, err)
}

// withTimesAgo replaces a time such as -2h, which the parser would take for a flag.
func withTimesAgo(args []string) []string {
	ago := regexp.MustCompile(`^-(\d[\d.]*[a-z]+)$`)
	args = slices.Clone(args)
	for i, arg := range args {
		if args[0] == "explain" {
			args[i] = ago.ReplaceAllString(arg, "$1 ago")
		}
	}
	return args
}

// withoutGuess returns a parser's error without its guess that a flag was meant as the value of the one before it.
func withoutGuess(err error) error {
	guess := regexp.MustCompile(`^(--\S+: )expected .* but got ("[^"]*") \([a-z]* flag\); perhaps try .*$`)
	if m := guess.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("%sneeds a value, and %s is a flag", m[1], m[2])
	}
	return err
}

// explainSettings adds to an error about a setting that the user may not read the file of settings.
func explainSettings(err error, unreadable string) error {
	if unreadable == "" {
		return err
	}
	return fmt.Errorf("%w\nthe settings in %s were not read: this user may not; use sudo, or set the variables or flags", err, unreadable)
}

// versionCommand prints the versions of the program and of its time zone data.
type versionCommand struct{}

// Run prints one version per line.
func (versionCommand) Run(c console) error {
	_, err := fmt.Fprintf(c.out, "carillon %s\n%s\n", version, node.DescribeZones())
	return err
}

// Exit codes, for scripts. docs/reference/cli.md lists them.
const (
	exitFailure     = 1 // any failure other than those below
	exitUsage       = 2 // a flag, variable or argument is invalid, or the database cannot be opened
	exitTooNew      = 3 // the database schema is newer than this program
	exitMissing     = 4 // a named object does not exist, or is invisible to the token
	exitRefused     = 5 // the token is refused, or lacks a scope or an app
	exitConflict    = 6 // the state of the object does not permit it, or another client has changed it
	exitUnreachable = 7 // the API cannot be reached, or is overloaded
	exitNegative    = 8 // the command worked and found a problem: a failed run, an unexplained fire, an error in a file
)

// usageError is an invalid flag or variable.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

// negativeError means that a command found a problem in what it examined.
type negativeError struct{ error }

func (e *negativeError) Unwrap() error { return e.error }

// fail prints an error and returns its exit code.
func fail(c console, err error) int {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintln(c.err, "carillon:", plain(line))
	}
	var usage *usageError
	var invalid *node.InvalidError
	var negative *negativeError
	switch {
	case errors.Is(err, dispatcher.ErrSchemaTooNew):
		return exitTooNew
	case errors.As(err, &usage), errors.As(err, &invalid):
		return exitUsage
	case errors.As(err, &negative):
		return exitNegative
	}
	return exitCodeOfAPI(err)
}

func exitCodeOfAPI(err error) int {
	var refused *client.Error
	var unanswered *url.Error // the client of the API returns it
	switch {
	case errors.Is(err, client.ErrForeign):
		return exitFailure
	case errors.Is(err, dispatcher.ErrNotFound):
		return exitMissing
	case errors.Is(err, dispatcher.ErrConflict), errors.Is(err, dispatcher.ErrPrecondition):
		return exitConflict
	case errors.As(err, &unanswered):
		return exitUnreachable
	case !errors.As(err, &refused):
		return exitFailure
	case refused.Status == http.StatusUnauthorized, refused.Status == http.StatusForbidden, client.HasCode(refused, input.CodeBoundOperator):
		return exitRefused
	case refused.Status == http.StatusTooManyRequests, refused.Status >= http.StatusBadGateway:
		return exitUnreachable
	}
	return exitFailure
}

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
