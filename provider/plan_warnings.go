package provider

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/provider/binding"
)

// In full are the first warnings of a kind that a command shows, and those that come true on an earlier day than these. The
// others share one title, and Terraform shows the first of these with the number of the others.
const (
	warningsInFull = 3
	changesInFull  = 20
	detailsInFull  = 3 // of one kind within one job
)

// warning is one diagnostic about a thing: an app or a job.
type warning struct {
	kind, title string
	thing       string // its name
	key         string // tells it from others of its kind about the thing; usually empty
	at          path.Path
	detail      string
	day         string // when it comes true, such as 2030-03-31; usually empty
	inFull      int    // how many of its kind are shown in full
}

// warn adds a warning, unless this command of Terraform has shown it before. more is what the title names
// in place of the thing from the warning on that is no longer shown in full.
func (c *connection) warn(diags *diag.Diagnostics, w warning, more string) {
	full, first := c.told.first(w.kind, w.thing+" "+w.key, w.day, w.inFull)
	if !first {
		return
	}
	title, detail := w.title+": "+w.thing, w.detail
	if !full {
		title, detail = w.title+": "+more, w.thing+": "+detail
	}
	if w.at.Equal(path.Empty()) {
		diags.AddWarning(title, detail)
		return
	}
	diags.AddAttributeWarning(w.at, title, detail)
}

// warnOfMistakes adds what is allowed in a job or an alert but probably a mistake, one warning for each kind. more is as warn has it.
func (c *connection) warnOfMistakes(diags *diag.Diagnostics, app, name string, found []input.Problem, more string) {
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
		for _, p := range same {
			where += " " + p.Path // what is found in another place, as at apply, was not told before
		}
		c.warn(diags, warning{
			kind: code, title: cmp.Or(input.RowOf(code).Title, "Possible mistake"), thing: app + "/" + name,
			key: where, at: paths().Of(same[0].Path), detail: summed(same), day: dayIn(same[0]), inFull: warningsInFull,
		}, more)
	}
}

// summed lists problems of one code: the nearest ones in full, and how many there are.
func summed(same []input.Problem) string {
	var lines []string
	for _, p := range same[:min(len(same), detailsInFull)] {
		lines = append(lines, paths().Message(p))
	}
	text := strings.Join(lines, "\n")
	if more := len(same) - len(lines); more > 0 {
		text += fmt.Sprintf("\nand %d more", more)
	}
	return binding.WithCode(text, same[0].Code)
}

var timePattern = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:]+`)

// timeIn returns the first time in a message, which orders warnings by when they come true.
func timeIn(p input.Problem) string { return timePattern.FindString(p.Message) }

// dayIn returns its day.
func dayIn(p input.Problem) string {
	day, _, _ := strings.Cut(timeIn(p), "T")
	return day
}

// warnOfConfig adds warnings of what a job's configuration says, as far as it is known.
func (r *jobResource) warnOfConfig(ctx context.Context, diags *diag.Diagnostics, config binding.Values, e *binding.Expander,
	job dispatcher.Job) {
	if r.conn == nil || diags.HasError() || config["app"].IsUnknown() || config["name"].IsUnknown() {
		return
	}
	r.conn.warnOfMistakes(diags, job.App, job.Name, e.AboutKnown(r.warnings(job, r.conn.calendarsAfter(ctx, job))), "more jobs")
	r.conn.warnOfApp(diags, r.conn.appOf(ctx, job.App))
}
