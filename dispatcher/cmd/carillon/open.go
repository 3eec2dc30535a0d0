package main

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os/exec"
	"runtime"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/carillon-dev/carillon/dispatcher/run"
)

// openCommand shows a page of the console.
type openCommand struct {
	apiFlags
	Of string `arg:"" optional:"" name:"app[/job]|run" help:"The app, the job or the run, such as billing/invoices. Default: the first page."`
}

// Run prints the address of the page, and opens it on a terminal with a browser.
func (o *openCommand) Run(ctx context.Context, c console) error {
	to, err := o.connection(ctx)
	if err != nil {
		return &usageError{err}
	}
	api, err := to.newClient()
	if err != nil {
		return err
	}
	page := "runs/" + o.Of
	if !run.IsID(o.Of) {
		app, job, _, err := cutOf(o.Of, "APP[/JOB]")
		if err != nil {
			return err
		}
		page = strings.TrimSuffix("apps/"+url.PathEscape(app)+"/jobs/"+url.PathEscape(job), "/jobs/")
		page = strings.TrimSuffix(page, "apps/")
	}
	node, err := api.Version(ctx)
	if err != nil {
		return err
	}
	at := strings.TrimRight(cmp.Or(node.ConsoleURL, to.endpoint), "/") + "/console/" + page
	if _, err := fmt.Fprintln(c.out, plain(at)); err != nil || !isTerminal(c.out) {
		return err
	}
	browser := cmp.Or(map[string]string{"darwin": "open", "windows": "explorer"}[runtime.GOOS], "xdg-open")
	_ = exec.CommandContext(ctx, browser, at).Run() // without one, people click on what was printed
	return nil
}

// deleteCommand says how to delete a thing that is declared.
type deleteCommand struct {
	Name string `arg:"" optional:"" name:"app[/name]" help:"What to delete."`
}

// Run names both ways, and deletes nothing.
func (d *deleteCommand) Run(parsed *kong.Context) error {
	kind := parsed.Selected().Parent.Name
	name := cmp.Or(d.Name, map[bool]string{true: "APP", false: "APP/NAME"}[kind == "app"])
	route := "/v1/apps/" + strings.Replace(name, "/", "/"+kind+"s/", 1)
	return &usageError{fmt.Errorf("declared in Terraform: remove the carillon_%s block of %s and apply; if no configuration has it, send "+
		"DELETE %s with the header If-Match: *", kind, name, route)}
}
