package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// appCommand shows apps, sets their bounds, and moves them between installations.
type appCommand struct {
	List     appListCommand     `cmd:"" aliases:"ls" help:"List apps." example:"carillon app list"`
	Show     appShowCommand     `cmd:"" aliases:"describe" help:"Show an app with its bounds and what it uses of them." example:"carillon app show billing"`
	Bounds   appBoundsCommand   `cmd:"" help:"Print or set the bounds of an app, as JSON." example:"carillon app bounds billing --set @bounds.json"`
	Defaults appDefaultsCommand `cmd:"" help:"Print or set what the jobs of an app get where they leave it out, as JSON." example:"carillon app defaults billing --set @defaults.json"`
	Suspend  appSuspendCommand  `cmd:"" help:"Stop an app until an operator resumes it." example:"carillon app suspend billing --reason \"floods a partner\""`
	Resume   appResumeCommand   `cmd:"" help:"Lift the suspension of an app." example:"carillon app resume billing"`
	Delete   deleteCommand      `cmd:"" hidden:""`

	Export appExportCommand `cmd:"" help:"Disable an app and print it for another installation." example:"carillon app export billing"`
	Import appImportCommand `cmd:"" help:"Create an app from what export printed." example:"carillon app import --disabled"`
}

type appExportCommand struct {
	apiFlags
	App     string         `arg:"" help:"Name of the app."`
	Timeout input.Duration `default:"2m" help:"How long runs in flight may take to end. After that the app is enabled again, as it was."`
}

// Run disables the app, waits until its runs have ended, and prints it. If that fails, it enables the app again.
func (e *appExportCommand) Run(ctx context.Context, c console, api *client.Client) error {
	app, err := api.App(ctx, e.App)
	if err != nil {
		return err
	}
	export, err := e.disabled(ctx, api, app)
	if err == nil {
		export.App.Enabled = app.Enabled // as it should be after the import
		err = printJSON(c.out, export)
	}
	if err != nil && app.Enabled {
		return errors.Join(err, e.enable(context.WithoutCancel(ctx), api))
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(c.err, "app %s is disabled here, and goes on where the output is imported; leave it disabled, then delete it\n", e.App)
	if n := len(export.Waiting); n > 0 {
		fmt.Fprintf(c.err, "runs that wait for an attempt and move with it: %d\n", n)
	}
	for _, secret := range storedSecrets(export) {
		fmt.Fprintf(c.err, "%s: the value of the secret is left out: replace \"stored\": true by \"value\": \"...\"\n", secret)
	}
	return nil
}

// storedSecrets returns the secrets with values that an export omits: the owner of each, and the place.
func storedSecrets(export access.Export) (all []string) {
	add := func(owner, name string, secrets map[string]target.Secret) {
		for path, secret := range secrets {
			if secret.Stored {
				all = append(all, owner+" "+name+" at "+strings.TrimPrefix(path, "/"))
			}
		}
	}
	for _, one := range export.Jobs {
		add("job", one.Job.Name, target.Secrets(one.Job))
	}
	for _, group := range export.Groups {
		add("group", group.Name, target.Secrets(group))
	}
	for _, alert := range export.Alerts {
		add("alert", alert.Name, target.Secrets(alert))
	}
	slices.Sort(all)
	return all
}

func (e *appExportCommand) disabled(ctx context.Context, api *client.Client, app access.App) (access.Export, error) {
	if app.Enabled {
		if _, err := api.PatchApp(ctx, e.App, false, client.Condition{}); err != nil {
			return access.Export{}, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, e.Timeout.Std())
	defer cancel()
	var why error // why the app cannot be exported yet
	for {
		export, err := api.ExportApp(ctx, e.App)
		switch {
		case errors.Is(err, dispatcher.ErrConflict):
			why = err
		case err == nil || ctx.Err() == nil:
			return export, err
		}
		select {
		case <-ctx.Done():
			return export, fmt.Errorf("gave up after %s: %w", e.Timeout, cmp.Or(why, err))
		case <-time.After(100*time.Millisecond + rand.N(100*time.Millisecond)):
		}
	}
}

// enable undoes disabled. The request or the response of disabled may have been lost.
func (e *appExportCommand) enable(ctx context.Context, api *client.Client) error {
	app, err := api.App(ctx, e.App)
	if err == nil && !app.Enabled {
		_, err = api.PatchApp(ctx, e.App, true, client.Condition{})
	}
	if err != nil {
		return fmt.Errorf("app %s may still be disabled, so enable it: %w", e.App, err)
	}
	return nil
}

type appImportCommand struct {
	apiFlags
	Disabled bool `help:"Leave the app disabled. Its fires are then late, or misfires, until it is enabled."`
}

// Run reads an export from standard input and creates its app.
func (i *appImportCommand) Run(ctx context.Context, c console, api *client.Client) error {
	text, err := io.ReadAll(c.in)
	if err != nil {
		return err
	}
	var export map[string]json.RawMessage
	var app map[string]any
	if err = json.Unmarshal(text, &export); err == nil {
		err = json.Unmarshal(export["app"], &app)
	}
	name, _ := app["name"].(string)
	if err != nil || name == "" {
		return &usageError{errors.New("standard input is not what carillon app export printed: it names no app")}
	}
	if i.Disabled {
		app["enabled"] = false
		if export["app"], err = json.Marshal(app); err == nil {
			text, err = json.Marshal(export)
		}
		if err != nil {
			return err
		}
	}
	imported, err := api.ImportApp(ctx, name, text)
	if err != nil {
		return err
	}
	state := "disabled"
	if imported.Enabled {
		state = "enabled"
	}
	_, err = fmt.Fprintf(c.out, "app %s is imported, and %s\n", imported.Name, state)
	return err
}

// appDefaultsCommand prints or sets the defaults of an app's jobs.
type appDefaultsCommand struct {
	apiFlags
	App string `arg:"" help:"Name of the app."`
	Set string `placeholder:"JSON|@FILE|-" help:"Set the defaults to this JSON, that of a file, or that of standard input. {} removes them. No stored job changes."`
}

// Run sets the defaults if flags say so, and prints them as JSON.
func (d *appDefaultsCommand) Run(ctx context.Context, c console, api *client.Client) error {
	app, err := api.App(ctx, d.App)
	if err == nil && d.Set != "" {
		if app.Defaults, err = d.read(c); err == nil {
			app, err = api.PutApp(ctx, app, client.Condition{Revision: app.Revision})
		}
	}
	if err != nil {
		return err
	}
	if app.Defaults == nil {
		app.Defaults = &dispatcher.JobDefaults{}
	}
	return printJSON(c.out, app.Defaults)
}

// read decodes defaults as the API does.
func (d *appDefaultsCommand) read(c console) (*dispatcher.JobDefaults, error) {
	text, from, err := readJSON(c, d.Set)
	if err != nil {
		return nil, err
	}
	var given struct{ Retry json.RawMessage }
	defaults := &dispatcher.JobDefaults{}
	if json.Unmarshal(text, &given) == nil && len(given.Retry) > 0 {
		defaults.Retry = &run.Retry{}
		defaults.Retry.SetDefaults()
	}
	return defaults, decodeSet(text, from, fmt.Sprintf("carillon app defaults %s", d.App), defaults)
}

type appListCommand struct {
	apiFlags
	outputFlags
}

func (l *appListCommand) Run(ctx context.Context, c console, api *client.Client) error {
	all, _, err := allPages(0, func(page input.Page) (client.List[access.App], error) { return api.Apps(ctx, page) })
	if err != nil {
		return err
	}
	return printList(l.outputFlags, c, all, "APP\tSTATE\tRETENTION\tDESCRIPTION", func(app access.App) []any {
		return []any{app.Name, stateOfApp(app), app.Retention, app.Description}
	})
}

// stateOfApp says whether nodes run the app.
func stateOfApp(app access.App) stateCell {
	switch {
	case app.Bounds != nil && app.Bounds.Suspended:
		return "suspended by an operator"
	case app.Enabled:
		return "enabled"
	}
	return "disabled by its owner"
}

type appShowCommand struct {
	apiFlags
	outputFlags
	App string `arg:"" help:"Name of the app."`
}

// Run prints the app, the usage of its quotas, and the jobs outside its bounds.
func (s *appShowCommand) Run(ctx context.Context, c console, api *client.Client) error {
	app, err := api.App(ctx, s.App)
	if err != nil {
		return err
	}
	if app.Bounds == nil || app.Usage == nil {
		return fmt.Errorf("the node at %s shows no bounds of app %s; it runs an older version", s.Endpoint, s.App)
	}
	if s.Output != outputTable {
		return printObject(s.outputFlags, c, app, nil)
	}
	breaks, err := outside(ctx, api, app)
	if err != nil {
		return err
	}
	var shown lines
	for _, line := range appLines(app) {
		shown.add(line[0], line[1])
	}
	for _, pause := range app.Pauses {
		shown.add("pause "+pause.ID, pause.String())
	}
	if err := shown.show(c); err != nil {
		return err
	}
	sayBreaks(c.out, breaks)
	return nil
}

// appLines returns the lines about an app, as name and value.
func appLines(app access.App) [][2]string {
	b, used := app.Bounds, app.Usage
	state := string(stateOfApp(app))
	// A missing list is the default; an empty one allows nothing.
	list := func(entries []string, otherwise string) string {
		if entries == nil {
			return otherwise
		}
		return cmp.Or(strings.Join(entries, ", "), "none")
	}
	var ports []string
	if b.Egress.Ports != nil {
		ports = strings.Fields(strings.Trim(fmt.Sprint(b.Egress.Ports), "[]"))
	}
	var signed []string
	for _, s := range b.SignAsNode {
		signed = append(signed, s.Service+" to "+strings.Join(s.Hosts, ", "))
	}
	q := b.Quotas
	lines := [][2]string{
		{"app", app.Name}, {"state", state}, {"reason", b.SuspendedReason}, {"suspended", suspendedBy(b.Suspension)},
		{"retention", fmt.Sprintf("%s, at most %s", app.Retention, q.Retention)},
		{"aws external id", app.AWSExternalID},
		{"weight", fmt.Sprint(b.Weight)},
		{"jobs", fmt.Sprintf("%d of %d", used.Jobs, q.Jobs)},
		{"triggers", fmt.Sprintf("%d of %d", used.Triggers, q.Triggers)},
		{"bytes of responses and inputs", fmt.Sprintf("%d of %d", used.BytesKept, q.BytesKept)},
		{"waiting runs", fmt.Sprintf("at most %d", q.WaitingRuns)},
		{"runs that follow one", fmt.Sprintf("at most %d, %d after one another", q.ChainRuns, q.ChainDepth)},
		{"manual runs per minute", fmt.Sprintf("at most %d", q.ManualRunsPerMinute)},
		{"requests per minute", fmt.Sprintf("at most %d", q.RequestsPerMinute)},
		{"secrets", list(b.Secrets, "none")},
		{"hosts", list(b.Egress.Hosts, "any")}, {"ports", list(ports, "any")},
		{"networks", list(b.Egress.Networks, "public, and what --egress-private of the nodes lists")},
		{"functions", list(b.Lambda.Functions, "none")}, {"roles", list(b.Lambda.Roles, "none")},
		{"queues", list(b.SQS.Queues, "none")}, {"roles for queues", list(b.SQS.Roles, "none")},
		{"topics", list(b.SNS.Topics, "none")}, {"roles for topics", list(b.SNS.Roles, "none")},
		{"signs as the node", list(signed, "none")},
	}
	return lines
}

// suspendedBy describes who suspended an app, and when; empty if it is not suspended.
func suspendedBy(s target.Suspension) string {
	if s.SuspendedAt == nil {
		return ""
	}
	return fmt.Sprintf("by %s at %s", s.SuspendedBy, input.FormatInstant(*s.SuspendedAt))
}

// outside finds the jobs, with their endpoint groups, and the alerts of an app that break its bounds.
func outside(ctx context.Context, api *client.Client, app access.App) (*access.Breaks, error) {
	const page = 100
	bounds, breaks := app.Bounds.WithDefaults(app.Name), &access.Breaks{}
	groups := map[string]error{} // their problems
	for cursor := ""; ; {
		of, err := api.Groups(ctx, app.Name, input.Page{Limit: page, Cursor: cursor})
		if err != nil {
			return nil, err
		}
		for _, group := range of.Items {
			groups[group.Name] = bounds.CheckGroupOfJob(group)
		}
		if cursor = of.Next; cursor == "" {
			break
		}
	}
	alerts, err := api.Alerts(ctx, app.Name, input.Page{Limit: alert.Max})
	if err != nil {
		return nil, err
	}
	for _, alert := range alerts.Items {
		breaks.AddAlert(alert, bounds)
	}
	for cursor := ""; ; {
		jobs, err := api.Jobs(ctx, app.Name, input.Page{Limit: page, Cursor: cursor})
		if err != nil {
			return nil, err
		}
		for _, job := range jobs.Items {
			var problems input.Problems
			for _, warning := range job.Warnings {
				if strings.HasPrefix(warning.Code, "bound_") {
					problems = append(problems, warning)
				}
			}
			problems.AddError("", groups[job.Target.GroupName()])
			breaks.Add(job.Name, problems)
		}
		if cursor = jobs.Next; cursor == "" {
			return breaks, nil
		}
	}
}

// sayBreaks prints the jobs and alerts outside the bounds of their app.
func sayBreaks(w io.Writer, breaks *access.Breaks) {
	if breaks.None() {
		return
	}
	say := func(name string, problems []input.Problem) {
		for _, problem := range problems {
			fmt.Fprintf(w, "  %s: %s\n", plain(name), plain(problem.Message))
		}
	}
	if breaks.Count > 0 {
		fmt.Fprintf(w, "\nJobs outside the bounds: %d. Their attempts fail with class bounds:\n", breaks.Count)
	}
	for _, job := range breaks.Jobs {
		say(job.Job, job.Problems)
	}
	if n := len(breaks.Alerts); n > 0 {
		fmt.Fprintf(w, "\nAlerts outside the bounds: %d. Their notifications fail with class bounds:\n", n)
	}
	for _, alert := range breaks.Alerts {
		say(alert.Alert, alert.Problems)
	}
}

type appBoundsCommand struct {
	apiFlags
	App string `arg:"" help:"Name of the app."`
	Set string `placeholder:"JSON|@FILE|-" help:"Set the bounds to this JSON, that of a file, or that of standard input. Bounds that it leaves out get their defaults."`
}

// Run sets the bounds if flags say so, and prints them as JSON.
func (b *appBoundsCommand) Run(ctx context.Context, c console, api *client.Client) error {
	app, err := b.app(ctx, c, api)
	if err != nil {
		return err
	}
	sayBreaks(c.err, app.Breaks)
	return printJSON(c.out, app.Bounds)
}

func (b *appBoundsCommand) app(ctx context.Context, c console, api *client.Client) (app access.App, err error) {
	if b.Set == "" {
		return api.App(ctx, b.App)
	}
	var bounds target.Bounds
	text, from, err := readJSON(c, b.Set)
	if err == nil {
		err = decodeSet(text, from, fmt.Sprintf("carillon app bounds %s", b.App), &bounds)
	}
	if err != nil {
		return app, err
	}
	return api.SetBounds(ctx, b.App, func(old *target.Bounds) { *old = bounds })
}

// decodeSet decodes the text of --set as the API does. printed is the command that prints such JSON.
func decodeSet(text []byte, from, printed string, into any) error {
	if err := decodeStrictly(text, into); err != nil {
		return &usageError{fmt.Errorf("--set: %s: %w; take the JSON that %s prints, and write a file as @PATH",
			from, err, printed)}
	}
	return nil
}

func decodeStrictly(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	if err == nil && decoder.More() {
		err = errors.New("there is more than one JSON value")
	}
	return err
}

type appSuspendCommand struct {
	apiFlags
	App    string `arg:"" help:"Name of the app."`
	Reason string `required:"" help:"Why; the app's owner sees it."`
}

func (s *appSuspendCommand) Run(ctx context.Context, c console) error {
	return s.suspend(ctx, c, s.App, true, s.Reason)
}

type appResumeCommand struct {
	apiFlags
	App string `arg:"" help:"Name of the app."`
}

func (r *appResumeCommand) Run(ctx context.Context, c console) error {
	return r.suspend(ctx, c, r.App, false, "")
}

func (a apiFlags) suspend(ctx context.Context, c console, name string, suspended bool, reason string) error {
	api, err := a.ProvideClient(ctx)
	if err != nil {
		return err
	}
	app, err := api.SetBounds(ctx, name, func(b *target.Bounds) { b.Suspended, b.SuspendedReason = suspended, reason })
	if err != nil {
		return err
	}
	switch {
	case suspended:
		_, err = fmt.Fprintf(c.out, "app %s is suspended: nodes begin no attempt for it; attempts in flight end\n", name)
	case app.Enabled:
		_, err = fmt.Fprintf(c.out, "app %s goes on; fires that were missed follow the misfire_policy of their triggers\n", name)
	default:
		_, err = fmt.Fprintf(c.out, "app %s is not suspended any more, and stays disabled by its owner\n", name)
	}
	return err
}
