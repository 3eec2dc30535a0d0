package main

import (
	"context"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher/cmd/carillon/node"
)

// serveCommand runs a dispatcher node.
type serveCommand struct {
	node.Flags
	Check bool `help:"Check the configuration, print the result and exit. It touches neither database nor network."`
}

func (s *serveCommand) Validate() error { return s.Flags.Check() }

// Run serves until ctx ends, then drains. With --check it only prints that the configuration is valid, because
// Validate has already reported problems. Variables that no flag reads are no problem: another version may know them.
func (s *serveCommand) Run(ctx context.Context, c console) error {
	if !s.Check {
		return s.Serve(ctx, node.Program{Version: version, Variables: flagVariables()}, c.err)
	}
	flagVariables().WarnUnknown(ctx, node.NewLogger(c.err, s.LogLevel, s.LogFormat))
	_, err := fmt.Fprintln(c.out, "configuration is valid")
	return err
}

// migrateCommand updates the schema of a database.
type migrateCommand struct {
	node.DatabaseFlag
}

func (m *migrateCommand) Validate() error { return m.Check() }

// Run migrates. Several processes may do so at once, and repeatedly.
func (m *migrateCommand) Run(ctx context.Context, c console) error {
	if err := m.MigrateSchema(ctx); err != nil {
		return err
	}
	_, err := fmt.Fprintln(c.out, "the schema is up to date")
	return err
}

// doctorCommand checks the needs of a node, one line per check. An invalid flag is a finding, not a usage error.
type doctorCommand struct {
	node.Flags
	outputFlags
	node.DoctorFlags
}

// Run runs all checks, then prints the findings.
func (d *doctorCommand) Run(ctx context.Context, c console) error {
	findings := d.Examine(ctx, d.DoctorFlags, flagVariables())
	if err := d.print(c, findings); err != nil {
		return err
	}
	failed := 0
	for _, f := range findings {
		if f.Health == node.HealthFail {
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d checks failed", failed, len(findings))
	}
	return nil
}

func (d *doctorCommand) print(c console, findings []node.Finding) error {
	if d.Output != outputTable {
		return printObject(d.outputFlags, c, map[string]any{"version": version, "checks": findings}, nil)
	}
	t := &table{}
	for _, f := range findings {
		line := f.Detail
		if f.Action != "" {
			line += "  -> " + f.Action
		}
		t.add(stateCell(f.Health), f.Check, line)
	}
	return t.show(c)
}

type probeCommand struct{ node.Probe }

func (p *probeCommand) Validate() error { return p.Check() }

func (p *probeCommand) Run(ctx context.Context, c console) error {
	if err := p.Ask(ctx); err != nil {
		return err
	}
	_, err := fmt.Fprintf(c.out, "%s at %s: ok\n", p.Path, p.Listen)
	return err
}

// machineCommand has the agents that stop a node before its machine ends.
type machineCommand struct {
	EC2 lifecycleEC2Command `cmd:"" name:"ec2" help:"Stop the node of this EC2 instance before its autoscaling group or EC2 ends it." example:"carillon lifecycle ec2 --hook carillon-drain"`
}

// lifecycleEC2Command is the agent for a termination lifecycle hook.
type lifecycleEC2Command struct{ node.EC2Agent }

// Run waits until the instance is about to end, and stops its node.
func (l *lifecycleEC2Command) Run(ctx context.Context, c console) error { return l.Await(ctx, c.err) }
