package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store"
)

// doctorFlags say what of the surroundings of a node is tried.
type doctorFlags struct {
	SecretReference []string `placeholder:"REFERENCE,..." help:"References to read from their manager, such as awssm:billing/api. No value is shown."`
	EgressURL       []string `placeholder:"URL,..." help:"Targets to connect to, as a webhook would. No request is sent."`
}

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
	*serveFlags
	doctorFlags
	variables variables // that flags read
	findings  []finding
	valid     bool              // the configuration
	database  *store.Inspection // nil: not reached
	schema    bool              // it is there, and this version can use it
}

func (e *examination) add(check string, found health, detail, action string) {
	// A name of a user or file could hold anything.
	var lines []string
	for line := range strings.SplitSeq(detail, "\n") {
		lines = append(lines, strings.TrimSpace(line))
	}
	e.findings = append(e.findings, finding{check, found, input.ShownText(strings.Join(lines, "; "), ""), action})
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

// examine checks what a node with these flags needs, as the node would use it. It changes nothing.
func (s *serveFlags) examine(ctx context.Context, d doctorFlags, v variables) []finding {
	e := &examination{serveFlags: s, doctorFlags: d, variables: v}
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
	return e.findings
}

// checkConfiguration is what serve --check does, and a warning for each variable that no flag reads.
func (e *examination) checkConfiguration(context.Context) {
	const check = "configuration"
	if err := e.Validate(); err != nil {
		for problem := range strings.SplitSeq(err.Error(), "\n") {
			e.add(check, healthFail, problem, "correct the flag or the variable")
		}
	} else {
		e.valid = true
		e.ok(check, "valid")
	}
	for _, name := range e.variables.unknown() {
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
