package node

import (
	"context"
	"errors"
	"net/http"
	"os"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher/platform"
)

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

// agent returns the address of the ECS agent; empty: no protection.
func (f protectionFlag) agent() string {
	if !f.TaskProtection {
		return ""
	}
	return os.Getenv(platform.ECSAgentVariable)
}

// protect gives the engine the protection of its task, if wanted. The protection ends with ctx; done waits
// for that.
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
