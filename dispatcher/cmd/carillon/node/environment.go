package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/platform"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// mostECSStop is the longest time that ECS leaves a container between SIGTERM and SIGKILL.
const mostECSStop = 120 * time.Second

// warnOfEnvironment logs variables that a node ignores, and limits of ECS that it exceeds. lookUp is os.LookupEnv.
func (s *Flags) warnOfEnvironment(ctx context.Context, log *slog.Logger, lookUp func(string) (string, bool)) {
	if zone, set := lookUp("TZ"); set {
		log.InfoContext(ctx, "the variable TZ is ignored: each trigger names its time zone, and the log is in UTC", "tz", zone)
	}
	if _, onECS := lookUp("ECS_CONTAINER_METADATA_URI_V4"); onECS && s.DrainTimeout.Std() > mostECSStop-stopMargin {
		log.WarnContext(ctx, "ECS kills a container 120 s after SIGTERM at the latest, before this drain ends; set a shorter "+
			"--drain-timeout, or --task-protection", "drain_timeout", s.DrainTimeout.String(), "most", (mostECSStop - stopMargin).String())
	}
}

// checkListen refuses an address that net.Listen reads differently than it is written: without a
// port, with the name of a service, or with leading zeros.
func checkListen(address string) error {
	_, port, err := net.SplitHostPort(address)
	n, wrong := strconv.ParseUint(port, 10, 16)
	if err != nil || wrong != nil || strconv.FormatUint(n, 10) != port {
		return fmt.Errorf("--listen (CARILLON_LISTEN) %s is not HOST:PORT with a plain number from 0 to 65535 as port, such as 127.0.0.1:8080; "+
			"0 takes any free port", input.Echo(address))
	}
	return nil
}

// listenError distinguishes an invalid address from one that another process uses, because that process may end.
func listenError(address string, err error) error {
	named := fmt.Errorf("--listen (CARILLON_LISTEN) %s: %w", input.Echo(address), err)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w: another process listens there; end it, or choose another port", named)
	}
	return &InvalidError{named}
}

// checkNodeName checks a name that is stored and shown with every attempt.
func checkNodeName(name string) error {
	const most = 255
	if !utf8.ValidString(name) || utf8.RuneCountInString(name) > most || strings.ContainsFunc(name, func(r rune) bool {
		return !unicode.IsPrint(r)
	}) {
		return fmt.Errorf("--node-name (CARILLON_NODE_NAME) %s has more than %d characters, or one that cannot be printed",
			input.Echo(name), most)
	}
	return nil
}

// warnExposedFiles logs each file that other users of the machine can read although it contains data of jobs
// or the keys of their secrets. Group access to keys is no problem: containers give keys to a node that way.
func warnExposedFiles(ctx context.Context, log *slog.Logger, database, keys string) {
	for _, path := range db.ExposedFiles(database) {
		warnExposed(ctx, log, path, "database")
	}
	if info, err := os.Stat(keys); keys != "" && err == nil && info.Mode().Perm()&0o027 != 0 {
		warnExposed(ctx, log, keys, "keys of stored secrets")
	}
}

func warnExposed(ctx context.Context, log *slog.Logger, path, what string) {
	info, err := os.Stat(path)
	if err != nil {
		return // just removed
	}
	log.WarnContext(ctx, "file is open to other users", "path", path, "holds", what,
		"mode", fmt.Sprintf("%04o", info.Mode().Perm()), "action", "chmod 600 "+path)
}

// limitMemory makes the garbage collector keep this process below the memory of its container,
// where the kernel would kill it. A tenth is left for memory that the collector does not count.
// GOMEMLIMIT, if it is set, takes precedence.
func limitMemory(ctx context.Context, log *slog.Logger) {
	limit, ok := platform.ContainerMemory("/")
	if !ok || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	soft := softLimit(limit)
	debug.SetMemoryLimit(soft)
	log.InfoContext(ctx, "memory limit set", "bytes", soft, "container_bytes", limit.Bytes, "source", limit.Source)
}

// softLimit returns nine tenths of a limit.
func softLimit(limit platform.MemoryLimit) int64 { return limit.Bytes / 10 * 9 }

// protectionFlag is the protection of the node's ECS task.
type protectionFlag struct {
	TaskProtection bool `env:"CARILLON_TASK_PROTECTION" help:"Protect the ECS task of this node from scale-in and deployments while an attempt runs that may take longer than --drain-timeout."`
}

// check refuses protection outside of an ECS task.
func (f protectionFlag) check() error {
	if f.TaskProtection && os.Getenv(platform.ECSAgentVariable) == "" {
		return errors.New("--task-protection (CARILLON_TASK_PROTECTION): " + platform.ECSAgentVariable +
			" is not set; only a task of ECS can be protected, with an agent of version 1.65.0 or on Fargate 1.4.0 or newer; leave it out elsewhere")
	}
	return nil
}

// agent returns the address of the ECS agent; empty for no protection.
func (f protectionFlag) agent() string {
	if !f.TaskProtection {
		return ""
	}
	return os.Getenv(platform.ECSAgentVariable)
}

// protect lets the engine protect its task, if a flag asks for it. The protection ends with ctx;
// done waits for that.
func (o *Options) protect(ctx context.Context, metrics prometheus.Registerer) (done func()) {
	if o.ecsAgent == "" {
		return func() {}
	}
	protection := platform.NewTaskProtection(o.ecsAgent, &http.Client{}, o.Log, metrics)
	o.Engine.Protection = protection
	ctx, end := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { protection.Run(ctx) })
	return func() {
		end()
		running.Wait()
	}
}

// Variables are the environment variables of the flags: for each flag, the variables that set it.
type Variables [][]string

// VariablesOf reads the variables from the tags of a command's struct.
func VariablesOf(command reflect.Type) (names Variables) {
	for i := range command.NumField() {
		field := command.Field(i)
		if env := field.Tag.Get("env"); env != "" {
			names = append(names, strings.Split(env, ","))
		}
		if field.Type.Kind() == reflect.Struct {
			names = append(names, VariablesOf(field.Type)...)
		}
	}
	return names
}

// isSet reports whether a variable is set, or another one of the same flag.
func (v Variables) isSet(name string) bool {
	names := []string{name}
	for _, group := range v {
		if slices.Contains(group, name) {
			names = group
			break
		}
	}
	return slices.ContainsFunc(names, func(one string) bool {
		_, set := os.LookupEnv(one)
		return set
	})
}

// known returns the variables that flags read.
func (v Variables) known() []string {
	known := append(slices.Concat(v...), envFileVariable)
	slices.Sort(known)
	return slices.Compact(known) // several commands share a flag
}

// unknown returns the CARILLON_ variables of the environment that no flag reads.
func (v Variables) unknown() (names []string) {
	known := v.known()
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "CARILLON_") && !slices.Contains(known, name) {
			names = append(names, name)
		}
	}
	return names
}

// WarnUnknown logs each CARILLON_ variable that no flag reads. Otherwise a misspelt variable would
// silently leave a default in effect.
func (v Variables) WarnUnknown(ctx context.Context, log *slog.Logger) {
	for _, name := range v.unknown() {
		log.WarnContext(ctx, "unknown environment variable", "variable", name, "known", strings.Join(nearest(name, v.known()), ", "))
	}
}

// nearest returns the known names that share the longest prefix with name.
func nearest(name string, known []string) []string {
	var best []string
	length := len("CARILLON_")
	for _, k := range known {
		n := 0
		for n < min(len(name), len(k)) && name[n] == k[n] {
			n++
		}
		switch {
		case n > length:
			best, length = []string{k}, n
		case n == length && n > len("CARILLON_"):
			best = append(best, k)
		}
	}
	if best == nil {
		return known
	}
	return best
}

// credential is a file that a machine may have, and the variable that then refers to it.
type credential struct{ file, variable, instead string }

// Credentials are the credentials whose variables were set from files.
type Credentials []credential

// credentials are the passwords and keys of a machine. The variables named in instead take precedence.
var credentials = []credential{
	{"database-password", "CARILLON_DATABASE_PASSWORD_FILE", "CARILLON_DATABASE_PASSWORD"},
	{"secret-keys", "CARILLON_SECRET_KEYS_FILE", "CARILLON_SECRET_KEYS"},
	{"tls-cert", "CARILLON_TLS_CERT", ""},
	{"tls-key", "CARILLON_TLS_KEY", ""},
	{"vault-token", "CARILLON_VAULT_TOKEN_FILE", "CARILLON_VAULT_TOKEN"},
}

// credentialsDirectory names the directory with the systemd credentials of a unit.
const credentialsDirectory = "CREDENTIALS_DIRECTORY"

// LoadCredentials sets the variables of the files that this process can read, and returns them. A
// node under systemd reads copies, which its unit loads as carillon_NAME. Commands of root read the
// directory "credentials" next to the settings.
func (v Variables) LoadCredentials() (found Credentials, err error) {
	for _, c := range credentials {
		if v.isSet(c.variable) || c.instead != "" && v.isSet(c.instead) {
			continue
		}
		var paths []string
		if dir := os.Getenv(credentialsDirectory); dir != "" {
			paths = append(paths, filepath.Join(dir, "carillon_"+c.file))
		}
		if settings, _ := envFilePath(); settings != "" {
			paths = append(paths, filepath.Join(filepath.Dir(settings), "credentials", c.file))
		}
		readable := slices.IndexFunc(paths, canRead)
		if readable < 0 {
			continue
		}
		c.file = paths[readable]
		if err := os.Setenv(c.variable, c.file); err != nil {
			return nil, fmt.Errorf("%s: %w", c.variable, err)
		}
		found = append(found, c)
	}
	return found, nil
}

func canRead(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	return f.Close() == nil
}

// Explain adds to an error where the values of its flags come from, because no user has set them.
func (found Credentials) Explain(err error) error {
	for _, c := range found {
		flag := "--" + strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(c.variable, "CARILLON_")), "_", "-")
		if strings.Contains(err.Error(), flag) {
			err = fmt.Errorf("%w\n%s is set, because %s exists", err, flag, c.file)
		}
	}
	return err
}

// hostZoneinfo is the path of the time zone database on Debian, Red Hat, Alpine and macOS.
const hostZoneinfo = "/usr/share/zoneinfo"

// newerOnHost returns the release of the host's data if they are newer than those in use, or "".
func newerOnHost(dir string) string {
	release, _, err := schedule.ReleaseOf(os.DirFS(dir))
	if err != nil || release <= schedule.CurrentZones().Release() {
		return "" // most images have no zone data
	}
	return release
}

// DescribeZones returns the release in use and its date.
func DescribeZones() string {
	zones := schedule.CurrentZones()
	return fmt.Sprintf("time zone data %s of %s", zones.Release(), zones.Released().Format(time.DateOnly))
}

// zonesWarnings returns why the data in use may be too old and, after a semicolon, what to do. An update of the
// installation's data is for all nodes.
func zonesWarnings(now time.Time, host string) (all []string) {
	if schedule.Following() {
		if now.After(schedule.CurrentZones().OutdatedBy()) {
			all = append(all, fmt.Sprintf("%s, which the installation has for its nodes, are more than %d days old, so governments may have "+
				"changed rules since; run carillon zones use with a newer release", DescribeZones(), schedule.ZonesWarning/(24*time.Hour)))
		}
		return all
	}
	if newer := newerOnHost(host); newer != "" {
		all = append(all, fmt.Sprintf("%s are older than the host's %s; start with --zoneinfo %s, or upgrade", DescribeZones(), newer, host))
	}
	if now.After(schedule.CurrentZones().OutdatedBy()) {
		all = append(all, fmt.Sprintf("%s are more than %d days old, so governments may have changed rules since; upgrade, "+
			"or start with --zoneinfo and a newer release", DescribeZones(), schedule.ZonesWarning/(24*time.Hour)))
	}
	return all
}

// registerZones adds the metrics of time zone data.
func registerZones(metrics prometheus.Registerer) {
	metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "carillon_zones_release_timestamp_seconds", Help: "The day of the release of the time zone data in use, in Unix seconds.",
	}, func() float64 { return float64(schedule.CurrentZones().Released().Unix()) }))
	metrics.MustRegister(oneIf(func() bool { return newerOnHost(hostZoneinfo) != "" },
		"carillon_zones_older_than_host", "Whether the host has newer time zone data than the node uses: 1 or 0."))
}

// oneIf returns a gauge that is 1 while holds returns true, and 0 otherwise.
func oneIf(holds func() bool, name, help string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
		if holds() {
			return 1
		}
		return 0
	})
}
