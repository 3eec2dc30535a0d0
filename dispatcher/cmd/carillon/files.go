package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/tfconfig"
)

// exportCommand writes an app as Terraform files.
type exportCommand struct {
	apiFlags
	App string `arg:"" help:"Name of the app."`
}

// Run prints the resources of the app, its calendars, its endpoint groups and its jobs, each with a block that imports it.
func (e *exportCommand) Run(ctx context.Context, c console, api *client.Client) error {
	content, err := contentOf(ctx, c, api, e.App)
	if err != nil {
		return err
	}
	return content.Write(c.out)
}

// contentOf reads an app with its calendars, endpoint groups and jobs.
func contentOf(ctx context.Context, c console, api *client.Client, name string) (tfconfig.Content, error) {
	app, err := api.App(ctx, name)
	if err != nil {
		return tfconfig.Content{}, err
	}
	calendars, err := listBy((*client.Client).Calendars).all(ctx, api, name)
	if err != nil {
		return tfconfig.Content{}, err
	}
	groups, err := listBy((*client.Client).Groups).all(ctx, api, name)
	if err != nil {
		return tfconfig.Content{}, err
	}
	read, n := newProgress(c, "jobs"), 0
	jobs, _, err := allPages(0, func(page input.Page) (client.List[dispatcher.Job], error) {
		list, err := api.Jobs(ctx, name, page)
		n += len(list.Items)
		read.say(n)
		return list, err
	})
	if err != nil {
		return tfconfig.Content{}, err
	}
	alerts, err := listBy((*client.Client).Alerts).all(ctx, api, name)
	return tfconfig.Content{App: app, Calendars: calendars, Groups: groups, Jobs: jobs, Alerts: alerts}, err
}

// diffCommand compares Terraform files with the server.
type diffCommand struct {
	apiFlags
	outputFlags
	Dir string `arg:"" optional:"" default:"." help:"Directory with Terraform files."`
}

// Run prints the differences. It fails if there are any.
func (d *diffCommand) Run(ctx context.Context, c console) error {
	module, err := tfconfig.Load(d.Dir)
	if err != nil {
		return &usageError{err}
	}
	for _, p := range module.Problems {
		if !p.Warning {
			return fmt.Errorf("%s; carillon lint lists all problems of the files", problemLine(p))
		}
	}
	api, err := d.ProvideClient(ctx)
	if err != nil {
		return err
	}
	server := map[string]tfconfig.Content{}
	for _, app := range module.Apps() {
		content, err := contentOf(ctx, c, api, app)
		if errors.Is(err, dispatcher.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		server[app] = content
	}
	found, err := module.Compare(server)
	if err != nil {
		return err
	}
	if err := d.print(c, found); err != nil {
		return err
	}
	differ := 0
	for _, one := range found {
		if one.Change != tfconfig.NotCompared {
			differ++
		}
	}
	if differ > 0 {
		return &negativeError{fmt.Errorf("files and server differ about %d of apps, calendars, endpoint groups, jobs and alerts", differ)}
	}
	return nil
}

// changeMarks begin the lines of differences, as in Terraform's output: the actions of an apply.
var changeMarks = map[tfconfig.Change]struct{ sign, words string }{
	tfconfig.OnlyInFiles:  {"+", "only in the files"},
	tfconfig.OnlyOnServer: {"-", "only on the server"},
	tfconfig.Changed:      {"~", "different"},
	tfconfig.NotCompared:  {"?", "not compared: the files do not fix its name, or whether it exists"},
}

func (d *diffCommand) print(c console, found []tfconfig.Difference) error {
	if d.Output != outputTable {
		return printList(d.outputFlags, c, found, "", nil)
	}
	for _, one := range found {
		name := strings.TrimPrefix(one.Type, "carillon_") + " " + one.Name
		if one.Name == "" {
			name = one.Resource
		}
		if one.File != "" {
			name = fmt.Sprintf("%s (%s:%d)", name, one.File, one.Line)
		}
		mark := changeMarks[one.Change]
		if _, err := fmt.Fprintf(c.out, "%s %s: %s\n", mark.sign, plain(name), mark.words); err != nil {
			return err
		}
		for _, a := range one.Attributes {
			if _, err := fmt.Fprintf(c.out, "    %s: server %s, files %s\n", plain(a.Path), shown(a.Server), shown(a.Files)); err != nil {
				return err
			}
		}
	}
	return nil
}

// shown formats a value for a line: as JSON, cut if it is long.
func shown(value any) string {
	if value == nil {
		return "none"
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	const most = 120
	if runes := []rune(string(text)); len(runes) > most {
		text = []byte(string(runes[:most]) + "…")
	}
	return plain(string(text))
}

// lintCommand checks Terraform files without a server.
type lintCommand struct {
	outputFlags
	Dir    []string `arg:"" optional:"" default:"." help:"Directories with Terraform files. Those below are checked, too, modules as they are called."`
	Strict bool     `help:"Fail for warnings, too."`
}

// Run prints one problem per line. It fails if it finds any.
func (l *lintCommand) Run(c console) error {
	modules, called := map[string]*tfconfig.Module{}, map[string]bool{}
	for _, dir := range l.Dir {
		dirs, err := directories(dir)
		if err != nil {
			return err
		}
		for _, one := range dirs {
			if modules[one], err = tfconfig.Load(one); err != nil {
				return &usageError{err}
			}
			maps.Copy(called, modules[one].Called)
		}
	}
	var found []tfconfig.Problem
	for _, dir := range slices.Sorted(maps.Keys(modules)) {
		if !called[dir] { // the problems of its callers include its own
			found = append(found, modules[dir].Lint(time.Now())...)
		}
	}
	if err := l.print(c, found); err != nil {
		return err
	}
	failures := 0
	for _, p := range found {
		if l.Strict || !p.Warning {
			failures++
		}
	}
	if failures > 0 {
		return &negativeError{fmt.Errorf("problems found: %d", failures)}
	}
	if l.Output == outputTable {
		fmt.Fprintf(c.err, "carillon: directories checked: %d; no problems\n", len(modules))
	}
	return nil
}

// directories returns the directories with Terraform files at or below dir.
func directories(dir string) ([]string, error) {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "read", Path: dir, Err: fmt.Errorf("it is a file; give its directory, which Terraform reads as a whole")}
	}
	if err != nil {
		return nil, &usageError{err}
	}
	found, err := tfconfig.Directories(dir)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%s: there are no Terraform files (*.tf)", dir)
	}
	if err != nil {
		return nil, &usageError{err}
	}
	return found, nil
}

func (l *lintCommand) print(c console, found []tfconfig.Problem) error {
	if l.Output != outputTable {
		return printList(l.outputFlags, c, found, "", nil)
	}
	for _, p := range found {
		if _, err := fmt.Fprintln(c.out, problemLine(p)); err != nil {
			return err
		}
	}
	return nil
}

// problemLine returns the line of output about a problem. In a module, its place alone would not show which call has it.
func problemLine(p tfconfig.Problem) string {
	words := p.Message
	if strings.HasPrefix(p.Resource, "module.") {
		words = p.Resource + ": " + words
	}
	if p.Warning {
		words = "warning: " + words
	}
	return fmt.Sprintf("%s:%d:%d: %s (%s)", plain(p.File), p.Line, p.Column, plain(words), p.Code)
}
