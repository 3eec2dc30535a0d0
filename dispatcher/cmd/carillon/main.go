// Command carillon calls webhooks on schedule. It holds the dispatcher node, its HTTP API and the tools of
// its operator.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
)

// version is set by the build.
var version = "0.0.0-dev"

// Exit codes, for scripts.
const (
	exitFailure = 1 // the command failed
	exitUsage   = 2 // a flag or variable is invalid
	exitTooNew  = 3 // the database schema is newer than this program
)

// cli is the command line; kong fills it from flags and the environment.
type cli struct {
	Serve    serveCommand    `cmd:"" help:"Run a dispatcher node with its HTTP API."`
	Migrate  migrateCommand  `cmd:"" help:"Update the database schema."`
	Token    tokenCommand    `cmd:"" help:"Create, list and delete API tokens."`
	Doctor   doctorCommand   `cmd:"" help:"Check what a node needs: database, rights, schema, clock, secrets, egress, AWS. Takes the flags of serve."`
	Dev      devCommand      `cmd:"" help:"Run a node, a receiver and the quickstart example on this machine."`
	Probe    probeCommand    `cmd:"" help:"Ask the node on this machine whether it is alive or ready."`
	Schedule scheduleCommand `cmd:"" help:"Work with schedule expressions."`
	Explain  explainCommand  `cmd:"" help:"Explain what happened to one scheduled time of a trigger."`
	Verify   verifyCommand   `cmd:"" help:"Compare the ledger of an app with its schedules. Fails if they disagree."`
	Audit    auditCommand    `cmd:"" help:"Show who changed what, and whose change was refused."`
	App      appCommand      `cmd:"" help:"Show an app, set its bounds, suspend it, or move it between installations."`
	Node     nodeCommand     `cmd:"" help:"List, pause and resume the nodes of a database."`
	Rollback rollbackCommand `cmd:"" help:"Resume after a restore or failover lost committed data."`
	Machine  machineCommand  `cmd:"" name:"lifecycle" help:"Stop a node before its machine ends."`
	Runs     runCommand      `cmd:"" name:"run" help:"Show a run."`
	Secret   secretCommand   `cmd:"" help:"Create and replace the keys of stored secrets."`
	Slot     slotCommand     `cmd:"" help:"List the runs that hold a concurrency slot."`
	Version  versionCommand  `cmd:"" help:"Print the version."`
}

// console is input and output of a command.
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
		// The first signal starts a drain. Before that becomes visible, signals have their usual effect again,
		// so a second one ends the process at once.
		signal.Stop(signals)
		drain()
	}()
	os.Exit(run(ctx, os.Args[1:], console{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, c console) int {
	unreadable, fileErr := loadEnvFile()
	found, credentialErr := loadCredentials()
	fileErr = errors.Join(fileErr, credentialErr)
	var commands cli
	exited := -1
	parser, err := kong.New(&commands,
		kong.Name("carillon"),
		kong.Description("Calls webhooks on schedule. Jobs are declared in Terraform."),
		kong.Writers(c.out, c.err),
		kong.Exit(func(code int) { exited = code }),
		kong.KindMapper(reflect.Int, kong.MapperFunc(plainNumber)),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(c),
		kong.UsageOnError(),
	)
	if err != nil {
		panic(err) // a mistake in the struct above
	}
	parsed, err := parser.Parse(args)
	if exited >= 0 {
		return exited // --help
	}
	if fileErr != nil && (err != nil || parsed.Command() != "version") {
		return fail(c, &usageError{errors.Join(fileErr, err)})
	}
	if err != nil {
		err = explainCredentials(err, found)
		if unreadable != "" {
			err = fmt.Errorf("%w\nthe settings in %s were not read: this user may not; use sudo, or set the variables or flags", err, unreadable)
		}
		return fail(c, &usageError{err})
	}
	if err := parsed.Run(); err != nil {
		return fail(c, err)
	}
	return 0
}

// usageError is an invalid flag or variable.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

// fail prints an error and returns its exit code.
func fail(c console, err error) int {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintln(c.err, "carillon:", line)
	}
	var usage *usageError
	switch {
	case errors.Is(err, dispatcher.ErrSchemaTooNew):
		return exitTooNew
	case errors.As(err, &usage):
		return exitUsage
	}
	return exitFailure
}

// versionCommand prints the version.
type versionCommand struct{}

// Run prints the version.
func (versionCommand) Run(c console) error {
	_, err := fmt.Fprintln(c.out, "carillon", version)
	return err
}
