package plan

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/provider/binding"
)

// A command shows the first warnings of a kind in full, and those that come true on an earlier day than
// these. The others share one title, and Terraform shows the first of them with the number of the others.
const (
	warningsInFull = 3
	detailsInFull  = 3 // of one kind within one job
)

// warning is one diagnostic about an app or a job.
type warning struct {
	kind, title string
	thing       string // name of the app or job
	key         string // distinguishes warnings of one kind about it; usually empty
	at          string // the pointer to its attribute; empty for the resource as a whole
	outside     bool   // not about the configuration, so Terraform shows no line of it
	detail      string
	short       string // replaces the detail where that is not shown in full; usually empty
	day         string // when it comes true, such as 2030-03-31; usually empty
	inFull      int    // how many of its kind are shown in full; 0 means warningsInFull
	more        string // what the title names in place of the thing, from the first warning that is not shown in full
}

// warn adds a warning, unless this Terraform command has already shown it.
func (p *Plan) warn(diags *diag.Diagnostics, w warning) {
	full, first := p.warned.first(w.kind, w.thing+" "+w.key, w.day, cmp.Or(w.inFull, warningsInFull))
	if !first {
		return
	}
	title, detail := w.title+": "+w.thing, w.detail
	if !full {
		title, detail = w.title+": "+w.more, w.thing+": "+cmp.Or(w.short, detail)
	}
	if w.at == "" && !w.outside {
		diags.AddWarning(title, detail)
		return
	}
	diags.AddAttributeWarning(p.paths.Of(w.at), title, detail)
}

// WarnOfMistakes adds warnings of probable mistakes in a job or an alert, one for each kind. more
// is the field of warning.
func (p *Plan) WarnOfMistakes(diags *diag.Diagnostics, app, name string, found []input.Problem, more string) {
	found = slices.Clone(found)
	slices.SortStableFunc(found, func(a, b input.Problem) int {
		return cmp.Or(cmp.Compare(a.Code, b.Code), cmp.Compare(timeIn(a), timeIn(b)))
	})
	for len(found) > 0 {
		n := slices.IndexFunc(found, func(p input.Problem) bool { return p.Code != found[0].Code })
		if n < 0 {
			n = len(found)
		}
		same := found[:n]
		found = found[n:]
		code, where := same[0].Code, ""
		day, _, _ := strings.Cut(timeIn(same[0]), "T")
		for _, p := range same {
			where += " " + p.Path // problems found in another place, as at apply, are new
		}
		p.warn(diags, warning{
			kind: code, title: cmp.Or(input.RowOf(code).Title, "Possible mistake"), thing: app + "/" + name,
			key: where, at: same[0].Path, detail: p.summed(same), day: day, more: more,
		})
	}
}

// summed lists problems of one code: the nearest ones in full, and the number of all.
func (p *Plan) summed(same []input.Problem) string {
	var lines []string
	for _, problem := range same[:min(len(same), detailsInFull)] {
		lines = append(lines, p.paths.Message(problem))
	}
	text := strings.Join(lines, "\n")
	if more := len(same) - len(lines); more > 0 {
		text += fmt.Sprintf("\nand %d more", more)
	}
	return binding.WithCode(text, same[0].Code)
}

var timePattern = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:]+`)

// timeIn returns the first time in a message, which determines the order of warnings.
func timeIn(p input.Problem) string { return timePattern.FindString(p.Message) }

// WarnOfJob adds warnings about a job's configuration, as far as it is known. e has expanded it.
func (p *Plan) WarnOfJob(ctx context.Context, diags *diag.Diagnostics, e *binding.Expander, job dispatcher.Job, now time.Time) {
	if !p.reads() || diags.HasError() || e.IsUnknown("/app") || e.IsUnknown("/name") {
		return
	}
	job.UpdatedAt = now.UTC() // as if it were declared now
	job.Triggers = maps.Clone(job.Triggers)
	for name, t := range job.Triggers {
		t.AnchorAt = now.UTC()
		job.Triggers[name] = t
	}
	found := append(job.Warn(p.calendarsAfter(ctx, job)), job.WarnOfNodes(p.fleetOf(ctx, job.App))...)
	p.WarnOfMistakes(diags, job.App, job.Name, e.AboutKnown(found), "more jobs")
	p.warnOfApp(diags, p.appOf(ctx, job.App))
}

// fleetOf returns a function that returns the nodes and the bounds of an app. Without permission to list nodes, it returns
// none; the API knows them at apply.
func (p *Plan) fleetOf(ctx context.Context, app string) func() ([]dispatcher.Node, *target.Bounds) {
	return func() ([]dispatcher.Node, *target.Bounds) {
		nodes := p.nodes.once("", func() []dispatcher.Node {
			list, _ := p.Nodes(ctx)
			return list.Items
		})
		return nodes, p.BoundsOf(ctx, app)
	}
}

// WarnOfStops warns if a job that was read, its triggers or its app are paused, or if no job of the
// app runs. Terraform manages no pauses, so an empty plan would hide that the job does not run.
func (p *Plan) WarnOfStops(ctx context.Context, diags *diag.Diagnostics, job dispatcher.Job) {
	p.WarnOfAppPauses(diags, job.Pauses)
	if w, paused := pauseWarning(job); paused {
		p.warn(diags, w)
	}
	p.warnOfApp(diags, p.appOf(ctx, job.App))
}

// WarnOfAppPauses warns of pauses of an app that hold jobs. It shows each pause once, however many jobs it holds.
func (p *Plan) WarnOfAppPauses(diags *diag.Diagnostics, pauses []dispatcher.AppPause) {
	for _, one := range pauses {
		thing := one.App
		if len(one.Labels) > 0 {
			thing += " " + one.Labels.String()
		}
		what, end := one.What(), "somebody ends the pause"
		if one.Until != nil {
			end = "then, unless somebody ends the pause before"
		}
		p.warn(diags, warning{
			kind: "app paused", title: "Paused", thing: thing, key: one.ID, outside: true, more: "more pauses",
			detail: fmt.Sprintf("%s are paused%s. None of their triggers runs until %s; Terraform does not.",
				strings.ToUpper(what[:1])+what[1:], by(one.PausedBy, &one.PausedAt, one.Until, one.Reason), end),
		})
	}
}

// pauseWarning describes by whom, since when and why a job, or some of its triggers, are paused.
func pauseWarning(job dispatcher.Job) (w warning, paused bool) {
	name := job.App + "/" + job.Name
	w = warning{kind: "paused", title: "Paused", thing: name, at: "/name", more: "more jobs"}
	if job.Paused {
		w.detail = fmt.Sprintf("Job %s is paused%s. None of its triggers runs until somebody resumes it; Terraform does not.",
			name, by(job.PausedBy, job.PausedAt, job.PausedUntil, job.PauseReason))
		return w, true
	}
	var lines []string
	for _, trigger := range slices.Sorted(maps.Keys(job.Triggers)) {
		if t := job.Triggers[trigger]; t.Paused {
			why := by(t.PausedBy, t.PausedAt, t.PausedUntil, t.PauseReason)
			lines = append(lines, fmt.Sprintf("Trigger %s of job %s is paused%s.", trigger, name, why))
		}
	}
	if len(lines) == 0 {
		return w, false
	}
	more := ""
	if n := len(lines) - detailsInFull; n > 0 {
		lines, more = lines[:detailsInFull], fmt.Sprintf(" So are %d more.", n)
	}
	w.detail = strings.Join(lines, "\n") + more + " It does not run until somebody resumes it; Terraform does not."
	return w, true
}

// by describes who did something, since and until when it is in effect, and why, as far as that is known.
func by(who string, since, until *time.Time, reason string) string {
	text := ""
	if who != "" {
		text += " by " + who
	}
	if since != nil {
		text += " since " + since.UTC().Format(time.RFC3339)
	}
	if until != nil {
		text += " until " + until.UTC().Format(time.RFC3339)
	}
	if reason != "" {
		text += ": " + input.Echo(reason)
	}
	return text
}

// warnOfApp warns that no job of an app runs, and why.
func (p *Plan) warnOfApp(diags *diag.Diagnostics, app *access.App) {
	if app == nil {
		return
	}
	w := warning{kind: "stopped", thing: app.Name, at: "/app", more: "more apps"}
	switch bounds := cmp.Or(app.Bounds, &target.Bounds{}); {
	case bounds.Suspended:
		w.title = "Suspended"
		w.detail = fmt.Sprintf("App %s is suspended%s. None of its jobs runs until an operator lifts the suspension.",
			app.Name, by(bounds.SuspendedBy, bounds.SuspendedAt, nil, bounds.SuspendedReason))
	case !app.Enabled:
		w.title = "Disabled"
		w.detail = fmt.Sprintf("App %s is disabled. None of its jobs runs until it is enabled.", app.Name)
	default:
		return
	}
	p.warn(diags, w)
}

// warnOfZones warns once if the dispatcher computes with other time zone data than this provider,
// whose plans predict fires. Other requests report an unreachable dispatcher.
func (p *Plan) warnOfZones(ctx context.Context, diags *diag.Diagnostics) {
	p.zones.Do(func() {
		server, err := p.Version(ctx)
		if ours := schedule.ZonesVersion(); err == nil && server.Zones != "" && server.Zones != ours {
			p.warn(diags, warning{
				kind: "zones", title: "Other time zone data", thing: p.Endpoint, outside: true, inFull: 1,
				detail: fmt.Sprintf("The dispatcher computes fires with release %s of the time zone database, and this provider with %s. "+
					"In zones with rules that differ, fires are not when this plan says. Use versions of both with the same release.",
					server.Zones, ours),
			})
		}
	})
}

// warned records the warnings that a Terraform command has shown, so that it shows each of them once.
//
// A command plans each change twice: when it plans, and again when it applies, in another provider process.
// The protocol does not distinguish the two, but they have the same parent process. So a process writes the
// warnings that it has shown to a file named after its parent, and the next process does not repeat them. A
// plan that is applied from a file belongs to two commands, and each of them shows the warnings.
//
// Without such a file, as in a debugger or if no file can be written, both processes show them.
type warned struct {
	file string // "" without a file

	mu      sync.Mutex
	keys    map[string]bool
	nearest map[string][]string // by kind, the sorted days of the nearest warnings that this process has shown in full
}

// newWarned reads the file of earlier processes of the command; "" means no file.
func newWarned(file string) *warned {
	w := &warned{file: file, keys: map[string]bool{}, nearest: map[string][]string{}}
	f, err := os.Open(file)
	if err != nil {
		return w
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		w.keys[lines.Text()] = true
	}
	return w
}

// first records a warning. first is true if no warning of that kind and key was shown before. full is then true
// if it is one of the first inFull of its kind, or comes true on an earlier day than one of the nearest inFull.
//
// Terraform plans one job after the other, and shows the provider's warnings about each. So the nearest
// warnings are known only at the end, but those that were nearer than all before them include them. first
// compares days, not times: otherwise jobs with different minutes of one night would all be shown in full.
func (w *warned) first(kind, key, day string, inFull int) (full, first bool) {
	sum := sha256.Sum256([]byte(kind + "\x00" + key))
	line := hex.EncodeToString(sum[:12])
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.keys[line] {
		return false, false
	}
	w.keys[line] = true
	w.leave(line)
	days := w.nearest[kind]
	if len(days) == inFull {
		if days[inFull-1] <= day {
			return false, true
		}
		days = days[:inFull-1]
	}
	at, _ := slices.BinarySearch(days, day)
	w.nearest[kind] = slices.Insert(days, at, day)
	return true, true
}

// leave writes a line for the next process. If that fails, the next process repeats the warning.
func (w *warned) leave(line string) {
	if w.file == "" {
		return
	}
	f, err := os.OpenFile(w.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	_, _ = f.WriteString(line + "\n")
	_ = f.Close()
}

// WarnedFile returns the file of this Terraform command; "" if the command is unknown. It also
// removes the files of commands that have ended.
func WarnedFile() string {
	// Terraform sets the variable for processes that it starts. A process that it finds running, as
	// in a debugger or a test, has another parent and serves many commands.
	if os.Getenv("TF_PLUGIN_MAGIC_COOKIE") == "" {
		return ""
	}
	name, err := commandFile(os.Getppid())
	cache, noCache := os.UserCacheDir()
	if err != nil || noCache != nil {
		return ""
	}
	dir := filepath.Join(cache, "terraform-provider-carillon")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return ""
	}
	if former, err := os.ReadDir(dir); err == nil {
		for _, entry := range former {
			if ended(entry.Name()) {
				_ = os.Remove(filepath.Join(dir, entry.Name()))
			}
		}
	}
	return filepath.Join(dir, name)
}

// commandFile returns the file name for a process. The process number alone would be reused.
func commandFile(pid int) (string, error) {
	started, err := startOf(pid)
	return fmt.Sprintf("told-%d-%s", pid, started), err
}

// ended reports whether the process of a file has ended.
func ended(file string) bool {
	var pid int
	if n, err := fmt.Sscanf(file, "told-%d-", &pid); n != 1 || err != nil {
		return false // not one of our files
	}
	running, err := commandFile(pid)
	return err != nil || running != file
}
