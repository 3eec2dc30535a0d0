package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/alecthomas/kong"
)

// checkFlag has serve check its configuration only.
type checkFlag struct {
	Check bool `help:"Check the configuration, print the result and exit. It touches neither database nor network."`
}

// report prints that the configuration is valid; problems have ended the command before. Variables that no flag
// reads are no problem: another version may know them. They are logged as at a start.
func (s *serveCommand) report(ctx context.Context, c console) error {
	warnUnknownVariables(ctx, newLogger(c.err, s.LogLevel, s.LogFormat), os.Environ())
	_, err := fmt.Fprintln(c.out, "configuration is valid")
	return err
}

// BeforeReset reads the variables of a command's flags, and reports all that cannot be read. Kong, which reads
// them next, would report the first of them.
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
