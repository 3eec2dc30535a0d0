package node

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store"
)

// DoctorFlags say what of the surroundings of a node is tried.
type DoctorFlags struct {
	SecretReference []string `placeholder:"REFERENCE,..." help:"References to read from their manager, such as awssm:billing/api. No value is shown."`
	EgressURL       []string `placeholder:"URL,..." help:"Targets to connect to, as a webhook would. No request is sent."`
}

// Health is the result of a check.
type Health string

// The results of checks.
const (
	HealthOK   Health = "ok"
	HealthWarn Health = "warn" // a node works, but not as well as it could
	HealthFail Health = "fail" // a node does not work
	HealthSkip Health = "skip" // it was not checked, because another check failed
)

// Finding is the result of one check.
type Finding struct {
	Check  string `json:"check"`
	Health Health `json:"health"`
	Detail string `json:"detail"`
	Action string `json:"action,omitempty"` // what to do; empty if all is well
}

// examination is what the checks share. Each check adds its findings; none ends the examination.
type examination struct {
	*Flags
	DoctorFlags
	variables Variables // that flags read
	findings  []Finding
	valid     bool              // the configuration
	database  *store.Inspection // nil: not reached
	schema    bool              // it is there, and this version can use it
}

func (e *examination) add(check string, found Health, detail, action string) {
	// A name of a user or file could hold anything.
	var lines []string
	for line := range strings.SplitSeq(detail, "\n") {
		lines = append(lines, strings.TrimSpace(line))
	}
	e.findings = append(e.findings, Finding{check, found, input.ShownText(strings.Join(lines, "; "), ""), action})
}

func (e *examination) ok(check, format string, args ...any) {
	e.add(check, HealthOK, fmt.Sprintf(format, args...), "")
}

func (e *examination) fail(check string, err error, action string) {
	e.add(check, HealthFail, err.Error(), action)
}

func (e *examination) skip(check, why string) { e.add(check, HealthSkip, "not checked: "+why, "") }

// checkTimeout bounds one check.
const checkTimeout = 15 * time.Second

// Examine checks what a node with these flags needs, as the node would use it. It changes nothing.
func (s *Flags) Examine(ctx context.Context, d DoctorFlags, v Variables) []Finding {
	e := &examination{Flags: s, DoctorFlags: d, variables: v}
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
	if err := e.Flags.Check(); err != nil {
		for problem := range strings.SplitSeq(err.Error(), "\n") {
			e.add(check, HealthFail, problem, "correct the flag or the variable")
		}
	} else {
		e.valid = true
		e.ok(check, "valid")
	}
	for _, name := range e.variables.unknown() {
		e.add(check, HealthWarn, name+" is set, and no flag reads it", "correct its name, or remove it")
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
