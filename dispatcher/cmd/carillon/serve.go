package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

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

// secretCommand manages the keys of stored secrets.
type secretCommand struct {
	Key    secretKeyCommand    `cmd:"" help:"Print a new key, or write it to a file. With --kms, only AWS KMS can decrypt it." example:"carillon secret key --out new.key"`
	Rewrap secretRewrapCommand `cmd:"" help:"Encrypt all stored secrets with the first key, so that you can remove the others." example:"carillon secret rewrap --database postgres://carillon@db/carillon --secret-keys-file keys"`
}

// secretKeyCommand creates a key.
type secretKeyCommand struct {
	KMS string `name:"kms" placeholder:"ARN" help:"Have this key of AWS KMS create the key and encrypt it. Nodes have KMS decrypt it when they start."`
	Out string `placeholder:"FILE" help:"Write the key to a new file that only its owner can read, instead of printing it."`
}

func (s *secretKeyCommand) Run(ctx context.Context, c console) error {
	key := newKey()
	if s.KMS != "" {
		var err error
		if key, err = node.NewKMSKey(ctx, s.KMS); err != nil {
			return err
		}
	}
	if s.Out != "" {
		return writeNewFile(s.Out, key+"\n")
	}
	_, err := fmt.Fprintln(c.out, key)
	return err
}

func newKey() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails since Go 1.24
	return base64.StdEncoding.EncodeToString(key)
}

// secretRewrapCommand encrypts the data keys again.
type secretRewrapCommand struct {
	node.DatabaseFlag
	node.KeysFlag
}

func (r *secretRewrapCommand) Validate() error { return r.DatabaseFlag.Check() }

// Run encrypts the data keys with the first key, and prints their count.
func (r *secretRewrapCommand) Run(ctx context.Context, c console) error {
	keys, err := r.Keys(ctx)
	if err == nil && keys == nil {
		err = &usageError{errors.New("--secret-keys-file (CARILLON_SECRET_KEYS_FILE) or --secret-keys (CARILLON_SECRET_KEYS): " +
			"set the new key, followed by the old ones")}
	}
	if err != nil {
		return err
	}
	s, err := r.Open(ctx, keys)
	if err != nil {
		return err
	}
	defer s.Close()
	count, err := s.RewrapSecrets(ctx, byCommandLine())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.out, "secrets encrypted with key %[2]s: %[1]d\n", count, keys.Current())
	return err
}

// writeNewFile writes a file that only its owner can read, whatever the umask. It creates the file
// atomically and never replaces an existing one.
func writeNewFile(path, text string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // of mode 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("--out %s: the file exists and may hold keys that stored secrets need; name one that does not exist", path)
		}
		return err
	}
	return nil
}
