package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
)

// The job that fires until the example can be applied.
const (
	helloApp = "dev"
	helloJob = "hello"
)

// prepare runs the command of --prepare, if there is one. Meanwhile a built-in job calls the receiver, so that
// the first fire does not wait for the build of the provider.
func (t terraformRun) prepare(ctx context.Context, s dispatcher.Store) (err error) {
	if t.Prepare == "" {
		return nil
	}
	token, err := t.token(ctx, s)
	if err != nil {
		return err
	}
	api, err := client.New(t.endpoint, token, client.Options{UserAgent: "carillon/" + version})
	if err != nil {
		return err
	}
	if err := hello(ctx, api, t.receiver); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, api.DeleteJob(ctx, helloApp, helloJob, client.Condition{}))
	}()
	t.out.say("preparing terraform and the provider; until then, the built-in job %s/%s fires every 2 s", helloApp, helloJob)
	command := exec.CommandContext(ctx, "sh", "-c", t.Prepare)
	command.Stderr = t.out.c.err
	printed, err := command.Output()
	if err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	if path := strings.TrimSpace(string(printed)); path != "" {
		t.Terraform = path
	}
	return nil
}

// hello declares the built-in job.
func hello(ctx context.Context, api *client.Client, receiver string) error {
	if _, err := api.PutApp(ctx, dispatcher.App{Name: helloApp, Enabled: true}, client.Condition{}); err != nil {
		return err
	}
	job := dispatcher.Job{App: helloApp, Name: helloJob, Enabled: true, Target: dispatcher.Target{Webhook: &dispatcher.Webhook{}}}
	job.Target.Webhook.SetDefaults()
	job.Target.Webhook.URL = receiver + "/hello"
	often := dispatcher.Trigger{Schedule: dispatcher.Schedule{Expression: "rate(2s)"}}
	often.SetDefaults()
	job.Triggers = map[string]dispatcher.Trigger{"often": often}
	_, err := api.PutJob(ctx, job, client.Condition{})
	return err
}
