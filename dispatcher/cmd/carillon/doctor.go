package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/store"
)

// doctorCommand checks what a node needs, as the node would use it: one line for each check. It changes nothing.
type doctorCommand struct {
	serveFlags
	outputFlags
	SecretReference []string `placeholder:"REFERENCE,..." help:"References to read from their manager, such as awssm:billing/api. No value is shown."`
	EgressURL       []string `placeholder:"URL,..." help:"Targets to connect to, as a webhook would. No request is sent."`
}

// Validate accepts everything: an invalid flag is a finding, see checkConfiguration.
func (d *doctorCommand) Validate() error { return nil }

// health is the result of a check.
type health string

const (
	healthOK   health = "ok"
	healthWarn health = "warn" // a node works, but not as well as it could
	healthFail health = "fail" // a node does not work
	healthSkip health = "skip" // it was not checked, because another check failed
)

// finding is the result of one check.
type finding struct {
	Check  string `json:"check"`
	Health health `json:"health"`
	Detail string `json:"detail"`
	Action string `json:"action,omitempty"` // what to do; empty if all is well
}

// examination is what the checks share. Each check adds its findings; none ends the examination.
type examination struct {
	*doctorCommand
	serve    serveCommand
	findings []finding
	valid    bool              // the configuration
	database *store.Inspection // nil: not reached
	schema   bool              // it is there, and this version can use it
}

func (e *examination) add(check string, found health, detail, action string) {
	// A name of a user or file could hold anything.
	var lines []string
	for line := range strings.SplitSeq(detail, "\n") {
		lines = append(lines, strings.TrimSpace(line))
	}
	e.findings = append(e.findings, finding{check, found, plain(strings.Join(lines, "; ")), action})
}

func (e *examination) ok(check, format string, args ...any) {
	e.add(check, healthOK, fmt.Sprintf(format, args...), "")
}

func (e *examination) fail(check string, err error, action string) {
	e.add(check, healthFail, err.Error(), action)
}

func (e *examination) skip(check, why string) { e.add(check, healthSkip, "not checked: "+why, "") }

// checkTimeout bounds one check.
const checkTimeout = 15 * time.Second

// Run examines all, then prints.
func (d *doctorCommand) Run(ctx context.Context, c console) error {
	e := &examination{doctorCommand: d, serve: serveCommand{serveFlags: d.serveFlags}}
	for _, check := range []func(context.Context){
		e.checkConfiguration, e.checkDatabase, e.checkNotifications, e.checkRights, e.checkSchema, e.checkCapabilities, e.checkSetAside,
		e.checkClock, e.checkSecrets, e.checkManagers, e.checkEgress, e.checkAWS, e.checkMemory, e.checkFiles, e.checkZones,
	} {
		ctx, cancel := context.WithTimeout(ctx, checkTimeout)
		check(ctx)
		cancel()
	}
	if e.database != nil {
		_ = e.database.Close() // it was only read
	}
	if err := d.print(c, e.findings); err != nil {
		return err
	}
	failed := 0
	for _, f := range e.findings {
		if f.Health == healthFail {
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d checks failed", failed, len(e.findings))
	}
	return nil
}

func (d *doctorCommand) print(c console, findings []finding) error {
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

// checkConfiguration is what serve --check does, and a warning for each variable that no flag reads.
func (e *examination) checkConfiguration(context.Context) {
	const check = "configuration"
	if err := e.serve.Validate(); err != nil {
		for problem := range strings.SplitSeq(err.Error(), "\n") {
			e.add(check, healthFail, problem, "correct the flag or the variable")
		}
	} else {
		e.valid = true
		e.ok(check, "valid")
	}
	for _, name := range unknownVariables(knownVariables(), os.Environ()) {
		e.add(check, healthWarn, name+" is set, and no flag reads it", "correct its name, or remove it")
	}
}

// withoutQuery leaves out what may be a secret of a URL.
func withoutQuery(target string) string {
	u, err := url.Parse(target)
	if err != nil {
		return "a URL that cannot be read"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
}
