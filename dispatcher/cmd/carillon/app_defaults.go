package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// appDefaultsCommand prints or sets what the jobs of an app get where they leave it out.
type appDefaultsCommand struct {
	apiFlags
	App string `arg:"" help:"Name of the app."`
	Set string `placeholder:"FILE" help:"Set the defaults to the JSON in this file; - reads standard input. {} removes them. No stored job changes."`
}

// Run prints the defaults as JSON, after it has set them.
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

// read reads defaults as the API takes them.
func (d *appDefaultsCommand) read(c console) (*dispatcher.JobDefaults, error) {
	text, err := readInput(c, d.Set)
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
		return nil, &usageError{fmt.Errorf("--set %s: %w; take the JSON that carillon app defaults %s prints", d.Set, err, d.App)}
	}
	return defaults, nil
}
