package platform

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/carillon-dev/carillon/dispatcher/backoff"
)

// ErrNoMetadata means that the instance has no metadata under a path.
var ErrNoMetadata = errors.New("the metadata service has nothing there")

// Instance is the EC2 instance that the program runs on, as its metadata service reports it. It
// speaks only IMDSv2 and renews the session token.
type Instance struct{ client *imds.Client }

// NewInstance returns the instance. The configuration may set another address of the service, for
// example by AWS_EC2_METADATA_SERVICE_ENDPOINT.
func NewInstance(config aws.Config) Instance {
	return Instance{imds.NewFromConfig(config, func(o *imds.Options) {
		o.EnableFallback = aws.FalseTernary // never IMDSv1
		// Three tries, because the second one renews a refused token.
		o.Retryer = retry.NewStandard(func(r *retry.StandardOptions) {
			r.MaxAttempts = 3
			r.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 20 * time.Millisecond, nil })
		})
	})}
}

// metadataTimeout bounds one request to the metadata service, which is on this machine.
const metadataTimeout = 5 * time.Second

// Metadata returns the text under a path of latest/meta-data, or ErrNoMetadata.
func (i Instance) Metadata(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	out, err := i.client.GetMetadata(ctx, &imds.GetMetadataInput{Path: path})
	if response, is := errors.AsType[*smithyhttp.ResponseError](err); is && response.HTTPStatusCode() == http.StatusNotFound {
		return "", fmt.Errorf("instance metadata %s: %w", path, ErrNoMetadata)
	}
	if err != nil {
		return "", fmt.Errorf("instance metadata %s: %w", path, err)
	}
	defer out.Content.Close()
	text, err := io.ReadAll(io.LimitReader(out.Content, 64<<10))
	if err != nil {
		return "", fmt.Errorf("instance metadata %s: %w", path, err)
	}
	return strings.TrimSpace(string(text)), nil
}

// Region returns the region of the instance.
func (i Instance) Region(ctx context.Context) (string, error) {
	return i.Metadata(ctx, "placement/region")
}

// ID returns the id of the instance.
func (i Instance) ID(ctx context.Context) (string, error) { return i.Metadata(ctx, "instance-id") }

// Group returns the name of the autoscaling group. It is a tag, so the launch template must enable
// tags in the metadata.
func (i Instance) Group(ctx context.Context) (string, error) {
	return i.Metadata(ctx, "tags/instance/aws:autoscaling:groupName")
}

// Leaving returns why the instance is about to end, or "".
func (i Instance) Leaving(ctx context.Context) (reason string, err error) {
	state, stateErr := i.Metadata(ctx, "autoscaling/target-lifecycle-state")
	switch {
	case stateErr == nil && (state == "Terminated" || state == "Warmed:Terminated"):
		return "the autoscaling group terminates the instance", nil
	case errors.Is(stateErr, ErrNoMetadata): // not yet in its group
		stateErr = nil
	}
	notice, spotErr := i.Metadata(ctx, "spot/instance-action")
	switch {
	case spotErr == nil && notice != "":
		return "EC2 takes the spot instance back: " + notice, nil
	case errors.Is(spotErr, ErrNoMetadata):
		spotErr = nil
	}
	return "", errors.Join(stateErr, spotErr)
}

// StopUnit stops a unit of systemd and waits until it has ended.
func StopUnit(ctx context.Context, unit string) error {
	out, err := exec.CommandContext(ctx, "systemctl", "stop", "--", unit).CombinedOutput()
	if err != nil {
		return fmt.Errorf("systemctl stop %s: %w: %s", unit, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Lifecycle stops the node when its instance is about to end, and then completes the lifecycle action.
type Lifecycle struct {
	Instance Instance
	// Group, Hook and ID name the lifecycle action: autoscaling group, hook and instance.
	Group, Hook, ID string
	AutoScaling     *autoscaling.Client
	// Stop stops the node and waits until it has ended.
	Stop func(ctx context.Context) error
	Log  *slog.Logger
	// Interval is the pause between two polls of the metadata; default 5s.
	Interval time.Duration
	// Heartbeat is how often the node prolongs the lifecycle action while it stops; default 30s.
	// The hook's heartbeat timeout must be longer.
	Heartbeat time.Duration
	// Retry is the pause after the first failure, doubled up to 30 times as long; default 1s.
	Retry time.Duration
}

// autoscalingTimeout bounds one request to Auto Scaling.
const autoscalingTimeout = 10 * time.Second

// stopTries is how often the agent tries to stop the node. After that it lets the instance end,
// which stops the node anyway.
const stopTries = 5

// Run waits until the instance is about to end, stops the node and completes the lifecycle action.
// It also returns nil if ctx ends before that. An error means that the node could not be stopped.
func (l Lifecycle) Run(ctx context.Context) error {
	l.Interval, l.Heartbeat = cmp.Or(l.Interval, 5*time.Second), cmp.Or(l.Heartbeat, 30*time.Second)
	l.Retry = cmp.Or(l.Retry, time.Second)
	reason := l.awaitEnd(ctx)
	if reason == "" {
		return nil
	}
	l.Log.InfoContext(ctx, "stopping the node", "reason", reason, "instance", l.ID)
	stopErr := l.stop(ctx)
	switch {
	case ctx.Err() != nil:
		return nil //nolint:nilerr // the agent was stopped, and its systemctl with it
	case stopErr == nil:
		l.Log.InfoContext(ctx, "node stopped", "instance", l.ID)
	}
	l.complete(ctx)
	return stopErr
}

// awaitEnd returns why the instance is about to end, or "" if ctx has ended. It logs only the first error in a row.
func (l Lifecycle) awaitEnd(ctx context.Context) string {
	failing := false
	for {
		reason, err := l.Instance.Leaving(ctx)
		switch {
		case ctx.Err() != nil:
			return ""
		case reason != "":
			return reason
		case err != nil && !failing:
			l.Log.WarnContext(ctx, "instance metadata cannot be read; looking again", "interval", l.Interval.String(), "err", err)
		case err == nil && failing:
			l.Log.InfoContext(ctx, "instance metadata can be read again")
		}
		failing = err != nil
		if !backoff.Sleep(ctx, l.Interval) {
			return ""
		}
	}
}

// stop stops the node and prolongs the lifecycle action meanwhile.
func (l Lifecycle) stop(ctx context.Context) (err error) {
	beating, end := context.WithCancel(ctx)
	var heartbeats sync.WaitGroup
	heartbeats.Go(func() {
		for backoff.Sleep(beating, l.Heartbeat) {
			asking, cancel := context.WithTimeout(beating, autoscalingTimeout)
			_, err := l.AutoScaling.RecordLifecycleActionHeartbeat(asking, &autoscaling.RecordLifecycleActionHeartbeatInput{
				AutoScalingGroupName: &l.Group, LifecycleHookName: &l.Hook, InstanceId: &l.ID,
			})
			cancel()
			switch {
			case beating.Err() != nil:
			case noAction(err):
				// AWS may take a spot instance before the group knows of it.
				l.Log.DebugContext(beating, "no lifecycle action to prolong", "hook", l.Hook)
			case err != nil:
				l.Log.WarnContext(beating, "prolong the lifecycle action", "hook", l.Hook, "err", err)
			}
		}
	})
	defer heartbeats.Wait()
	defer end()
	return l.pauses().Repeat(ctx, func() error { return l.Stop(ctx) }, func(f backoff.Failure) bool {
		if ctx.Err() != nil {
			return false
		}
		l.Log.ErrorContext(ctx, "stop the node", "try", f.Tries, "of", stopTries, "err", f.Err)
		return f.Tries < stopTries
	})
}

func (l Lifecycle) pauses() backoff.Pauses { return backoff.Pauses{First: l.Retry, Most: 30 * l.Retry} }

// complete completes the lifecycle action. It retries until that succeeds or ctx ends; after that
// the hook's own timeout ends the wait.
func (l Lifecycle) complete(ctx context.Context) {
	_ = l.pauses().Repeat(ctx, func() error {
		asking, cancel := context.WithTimeout(ctx, autoscalingTimeout)
		defer cancel()
		_, err := l.AutoScaling.CompleteLifecycleAction(asking, &autoscaling.CompleteLifecycleActionInput{
			AutoScalingGroupName: &l.Group, LifecycleHookName: &l.Hook, InstanceId: &l.ID,
			LifecycleActionResult: aws.String("CONTINUE"),
		})
		switch {
		case err == nil:
			l.Log.InfoContext(ctx, "lifecycle action completed", "hook", l.Hook, "group", l.Group)
		case noAction(err):
			l.Log.InfoContext(ctx, "no lifecycle action waits", "hook", l.Hook, "group", l.Group)
			return nil
		}
		return err
	}, func(f backoff.Failure) bool {
		if ctx.Err() == nil {
			l.Log.ErrorContext(ctx, "complete the lifecycle action", "hook", l.Hook, "group", l.Group, "retry", f.Pause.String(), "err", f.Err)
		}
		return true
	})
}

// noAction reports whether the group waits for no lifecycle action: it has ended or never began.
func noAction(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && api.ErrorCode() == "ValidationError" && strings.Contains(api.ErrorMessage(), "No active Lifecycle Action")
}
