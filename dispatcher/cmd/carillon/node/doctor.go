package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/limit"
	"github.com/carillon-dev/carillon/dispatcher/platform"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// DoctorFlags select further checks of a node's environment.
type DoctorFlags struct {
	SecretReference []string `placeholder:"REFERENCE,..." help:"References to read from their manager, such as awssm:billing/api. No value is shown."`
	EgressURL       []string `placeholder:"URL,..." help:"Targets to connect to, as a webhook would. No request is sent."`
}

// Health is the result of a check.
type Health string

// The results of checks.
const (
	HealthOK   Health = "ok"
	HealthWarn Health = "warn" // a node works, with limits
	HealthFail Health = "fail" // a node does not work
	HealthSkip Health = "skip" // not checked, because another check failed
)

// Finding is the result of one check.
type Finding struct {
	Check  string `json:"check"`
	Health Health `json:"health"`
	Detail string `json:"detail"`
	Action string `json:"action,omitempty"` // the remedy; empty if the check is ok
}

// examination is the state that the checks share. Each check adds findings; none ends the examination.
type examination struct {
	*Flags
	DoctorFlags
	variables Variables // read by flags
	findings  []Finding
	valid     bool              // the configuration is valid
	database  *store.Inspection // nil if it was not reached
	schema    bool              // it exists, and this version can use it
}

func (e *examination) add(check string, found Health, detail, action string) {
	// The name of a user or file may contain any text.
	var lines []string
	for line := range strings.SplitSeq(detail, "\n") {
		lines = append(lines, strings.TrimSpace(line))
	}
	e.findings = append(e.findings, Finding{check, found, input.ShownText(strings.Join(lines, "; "), ""), action})
}

// warn adds a warning of a node's log, which says what is wrong and, after a semicolon, what to do.
func (e *examination) warn(check, warning string) {
	detail, action, _ := strings.Cut(warning, "; ")
	e.add(check, HealthWarn, detail, action)
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

// Examine checks the needs of a node with these flags, in the way that the node would use them. It changes
// nothing, but for a small file that it writes next to an SQLite database and removes.
func (s *Flags) Examine(ctx context.Context, d DoctorFlags, v Variables) []Finding {
	e := &examination{Flags: s, DoctorFlags: d, variables: v}
	for _, check := range []struct {
		name          string
		needsDatabase bool
		run           func(ctx context.Context, check string)
	}{
		{"configuration", false, e.checkConfiguration},
		{"database", false, e.checkDatabase},
		{"notifications", false, e.checkNotifications},
		{"rights", true, e.checkRights},
		{"schema", true, e.checkSchema},
		{"capabilities", true, e.checkCapabilities},
		{"set_aside", true, e.checkSetAside},
		{"alerts", true, e.checkAlerts},
		{"clock", true, e.checkClock},
		{"secrets", false, e.checkSecrets},
		{"managers", false, e.checkManagers},
		{"egress", false, e.checkEgress},
		{"aws", false, e.checkAWS},
		{"memory", false, e.checkMemory},
		{"files", false, e.checkFiles},
		{"time zones", false, e.checkZones},
	} {
		if check.needsDatabase && e.database == nil {
			e.skip(check.name, "the database was not reached")
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, checkTimeout)
		check.run(ctx, check.name)
		cancel()
	}
	if e.database != nil {
		_ = e.database.Close() // it was opened only to read
	}
	return e.findings
}

// checkConfiguration repeats serve --check, and warns of each variable that no flag reads.
func (e *examination) checkConfiguration(_ context.Context, check string) {
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

// withoutQuery removes the query of a URL, which may be secret.
func withoutQuery(target string) string {
	u, err := url.Parse(target)
	if err != nil {
		return "a URL that cannot be read"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
}

// checkSecrets checks that stored secrets can be read, and lists the names that jobs can refer to.
func (e *examination) checkSecrets(ctx context.Context, check string) {
	keys, err := e.Keys(ctx)
	switch {
	case err != nil:
		e.fail(check, err, "correct the keys; carillon secret key prints a new one")
	case e.database == nil:
		e.skip(check, "whether the keys open the stored secrets: the database was not reached")
	case !e.schema:
		e.skip(check, "whether the keys open the stored secrets: the database has no schema to read")
	default:
		missing, stored, err := e.database.MissingKeys(ctx, keys)
		switch {
		case err != nil:
			e.fail(check, err, "see the check of the database")
		case len(missing) > 0:
			e.fail(check, fmt.Errorf("the keys lack %[2]s; secrets stored: %[1]d", stored, strings.Join(missing, ", ")),
				"add the key to CARILLON_SECRET_KEYS or to the file of keys")
		case keys == nil:
			e.ok(check, "no keys and no stored secrets")
		default:
			e.ok(check, "the keys open all stored secrets: %d", stored)
		}
	}
	names := secretVariables(os.Environ())
	if len(names) == 0 {
		names = []string{"none"}
	}
	e.ok(check, "variables for env: references: %s", strings.Join(names, ", "))
	if err := e.secretDirFlag.check(e.ownFiles()); err != nil {
		e.fail(check, err, "the node does not start with it")
	}
	files, err := os.ReadDir(e.SecretDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.ok(check, "no directory %s for file: references", input.Echo(e.SecretDir))
	case err != nil:
		e.fail(check, err, "let this user read --secret-dir (CARILLON_SECRET_DIR)")
	default:
		e.ok(check, "entries for file: references in %s: %d", input.Echo(e.SecretDir), len(files))
	}
}

// checkManagers reads the secrets that --secret-reference names, as jobs would refer to them.
func (e *examination) checkManagers(ctx context.Context, check string) {
	managers, err := e.managers()
	if err != nil {
		e.skip(check, "their flags are invalid")
		return
	}
	if managers.Vault != nil && strings.HasPrefix(strings.ToLower(e.VaultAddress), "http:") {
		e.add(check, HealthWarn, "Vault is called in clear text", "give an https URL as --vault-address (CARILLON_VAULT_ADDRESS)")
	}
	if len(e.SecretReference) == 0 {
		e.ok(check, "no secret was read, give references with --secret-reference")
	}
	for _, text := range e.SecretReference {
		reference, err := target.ParseSecretReference(text)
		switch {
		case err != nil:
			e.fail(check, err, "correct --secret-reference")
			continue
		case managers.PerApp(reference.Source):
			e.skip(check, text+": a role of each app reads it; run a job of the app")
			continue
		}
		if err := managers.Probe(ctx, reference, time.Now()); err != nil {
			e.fail(check, fmt.Errorf("%s: %w", text, err), "check name, policy and role of the node, and the way to the manager")
			continue
		}
		e.ok(check, "%s: read", text)
	}
}

// secretVariables returns the names of the variables that jobs may refer to, never their values.
func secretVariables(environment []string) (names []string) {
	for _, pair := range environment {
		if name, value, _ := strings.Cut(pair, "="); strings.HasPrefix(name, target.SecretEnvPrefix) && value != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// exampleName is looked up if no target is given.
const exampleName = "example.com"

// checkEgress connects to targets as a webhook would, and requires that jobs cannot reach the
// machine's metadata service.
func (e *examination) checkEgress(ctx context.Context, check string) {
	egress := e.egress()
	if reached, err := egress.Connect(ctx, "http://169.254.169.254/latest/meta-data/"); err == nil {
		e.fail(check, fmt.Errorf("a job could read the metadata of this machine at %s", reached),
			"report this to the maintainers: no setting allows it")
	} else {
		e.ok(check, "the metadata of the machine is refused to jobs")
	}
	if len(e.EgressURL) == 0 {
		addresses, err := net.DefaultResolver.LookupHost(ctx, exampleName)
		if err != nil {
			e.add(check, HealthWarn, fmt.Sprintf("%s: %v; no target was called", exampleName, err),
				"give targets with --egress-url, or check the name servers of this machine")
			return
		}
		e.ok(check, "%s has addresses: %d; no target was called, give some with --egress-url", exampleName, len(addresses))
	}
	for _, target := range e.EgressURL {
		reached, err := egress.Connect(ctx, target)
		if err != nil {
			e.fail(check, fmt.Errorf("%s: %w", withoutQuery(target), err),
				"check name servers, routes, security group or firewall, --egress-private and --egress-deny")
			continue
		}
		e.ok(check, "%s: connected to %s", withoutQuery(target), reached)
	}
}

// checkAWS reports the node's identity at AWS, which targets of AWS and rds-iam need.
func (e *examination) checkAWS(ctx context.Context, check string) {
	needed := e.DatabaseAuth == rdsIAM
	found, err := platform.IdentifyAWS(ctx)
	detail := fmt.Sprintf("credentials of %s, region %q", found.Source, found.Region)
	switch {
	case found.Source == "" && needed && err == nil:
		e.fail(check, errors.New("no credentials, and rds-iam needs some"), "give the task or the instance a role")
	case found.Source == "" && needed:
		e.fail(check, err, "give the task or the instance a role")
	case found.Source == "":
		e.ok(check, "no credentials; only rds-iam and targets lambda, sqs and sns need some")
	case err != nil:
		e.add(check, HealthWarn, detail+": "+err.Error(),
			"check the credentials, and the way to the endpoint of STS; a token of RDS needs no call")
	default:
		e.ok(check, "%s, %s", found.ARN, detail)
	}
}

// checkMemory reports the memory limit that a node sets for itself.
func (e *examination) checkMemory(_ context.Context, check string) {
	limit, limited := platform.ContainerMemory("/")
	switch given := os.Getenv("GOMEMLIMIT"); {
	case given != "":
		e.ok(check, "GOMEMLIMIT is %s", input.Echo(given))
	case !limited:
		e.ok(check, "no limit on this machine or container")
	default:
		e.ok(check, "a node keeps below %d MiB of the %d MiB in %s", softLimit(limit)>>20, limit.Bytes>>20, limit.Source)
	}
}

// checkFiles checks that the limit of open files suffices for the workers.
func (e *examination) checkFiles(_ context.Context, check string) {
	files := limit.Files()
	if files == 0 {
		e.ok(check, "this machine does not tell how many may be open")
		return
	}
	shares := e.limitFlags.shares(files, cmp.Or(e.Workers, 1024))
	if shares.warning != "" {
		e.warn(check, shares.warning)
		return
	}
	e.ok(check, "%d may be open; connections to the API: %d, workers: %d", files, shares.api, shares.workers)
}

// checkZones reports the time zone data of a node, and whether they may be too old.
func (e *examination) checkZones(_ context.Context, check string) {
	warnings := zonesWarnings(time.Now(), hostZoneinfo)
	for _, warning := range warnings {
		e.warn(check, warning)
	}
	if len(warnings) == 0 {
		e.ok(check, "%s", DescribeZones())
	}
}
