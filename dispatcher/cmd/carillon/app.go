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
func (e *appExportCommand) Run(ctx context.Context, c console) error {
	api, err := e.client(ctx)
	if err != nil {
		return err
	}
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
		fmt.Fprintf(c.err, "%d runs wait for an attempt and move with it\n", n)
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
func (i *appImportCommand) Run(ctx context.Context, c console) error {
	api, err := i.client(ctx)
	if err != nil {
		return err
	}
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
func (d *appDefaultsCommand) Run(ctx context.Context, c console) error {
	api, err := d.client(ctx)
	if err != nil {
		return err
	}
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
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err = decoder.Decode(defaults); err == nil && decoder.More() {
		err = errors.New("there is more than one JSON value")
	}
	if err != nil {
		return nil, &usageError{fmt.Errorf("--set: %s: %w; take the JSON that carillon app defaults %s prints, "+
			"and write a file as @PATH", from, err, d.App)}
	}
	return defaults, nil
}
