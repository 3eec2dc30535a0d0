package node

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"

	"github.com/carillon-dev/carillon/dispatcher/backoff"
	"github.com/carillon-dev/carillon/dispatcher/platform"
)

// EC2Agent is the agent of a termination lifecycle hook.
type EC2Agent struct {
	Hook  string `env:"CARILLON_LIFECYCLE_HOOK" required:"" placeholder:"NAME" help:"Name of the termination lifecycle hook."`
	Group string `env:"CARILLON_LIFECYCLE_GROUP" placeholder:"NAME" help:"Name of the autoscaling group. Default: from the instance's tags, if the launch template enables them in the metadata."`
	Unit  string `env:"CARILLON_LIFECYCLE_UNIT" default:"carillon.service" placeholder:"UNIT" help:"The node's unit of systemd, which is stopped."`
	logFlags
}

// Await waits until the instance is to end, stops the unit and completes the lifecycle action. A signal ends it
// at any time. The log goes to out.
func (l *EC2Agent) Await(ctx context.Context, out io.Writer) error {
	log := NewLogger(out, l.LogLevel, l.LogFormat)
	// One try for each request: the agent has its own retries, and logs each failure.
	aws, err := config.LoadDefaultConfig(ctx, config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }))
	if err != nil {
		return err
	}
	agent := platform.Lifecycle{
		Instance: platform.NewInstance(aws), Hook: l.Hook, Log: log,
		Stop: func(ctx context.Context) error { return platform.StopUnit(ctx, l.Unit) },
	}
	var region string
	err = backoff.Pauses{First: time.Second, Most: 30 * time.Second}.Repeat(ctx, func() (err error) {
		region, err = l.identify(ctx, &agent)
		return err
	}, func(f backoff.Failure) bool {
		if errors.Is(f.Err, errNoGroup) {
			return false
		}
		log.WarnContext(ctx, "the metadata of this instance cannot be read; trying again", "retry", f.Pause.String(), "err", f.Err)
		return true
	})
	switch {
	case errors.Is(err, errNoGroup):
		return &InvalidError{err}
	case err != nil:
		return nil //nolint:nilerr // ctx has ended
	}
	if aws.Region == "" {
		aws.Region = region
	}
	agent.AutoScaling = autoscaling.NewFromConfig(aws)
	log.InfoContext(ctx, "waiting for the end of this instance", "instance", agent.ID, "group", agent.Group, "hook", l.Hook, "unit", l.Unit)
	return agent.Run(ctx)
}

var errNoGroup = errors.New("--group (CARILLON_LIFECYCLE_GROUP): the instance's metadata does not name its autoscaling group; " +
	"give the name, or set instance_metadata_tags = \"enabled\" in the launch template")

// identify reads which instance this is, and its region.
func (l *EC2Agent) identify(ctx context.Context, agent *platform.Lifecycle) (region string, err error) {
	if region, err = agent.Instance.Region(ctx); err != nil {
		return "", err
	}
	if agent.ID, err = agent.Instance.ID(ctx); err != nil {
		return "", err
	}
	if agent.Group = l.Group; agent.Group != "" {
		return region, nil
	}
	agent.Group, err = agent.Instance.Group(ctx)
	if errors.Is(err, platform.ErrNoMetadata) {
		return "", errNoGroup
	}
	return region, err
}
