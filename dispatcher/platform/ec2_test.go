package platform_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/platform"
	"github.com/carillon-dev/carillon/test/ec2"
)

// instance returns the client of a metadata service.
func instance(t *testing.T, of *ec2.Instance) platform.Instance {
	t.Helper()
	t.Cleanup(of.Close)
	return platform.NewInstance(aws.Config{ConfigSources: []any{endpoint(of.URL)}})
}

// endpoint is a source of the SDK's configuration, as the environment is.
type endpoint string

func (e endpoint) GetEC2IMDSEndpoint() (string, bool, error) { return string(e), true, nil }

// log is a log that several goroutines write.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// agent returns an agent with short intervals.
func agent(t *testing.T, of *ec2.Instance, group *ec2.AutoScaling, stop func(context.Context) error) (platform.Lifecycle, *log) {
	t.Helper()
	t.Cleanup(group.Close)
	written := &log{}
	return platform.Lifecycle{
		Instance: instance(t, of), ID: ec2.ID, Group: ec2.Group, Hook: ec2.Hook, Stop: stop,
		Log: slog.New(slog.NewTextHandler(written, nil)), Interval: time.Millisecond, Heartbeat: 5 * time.Millisecond, Retry: time.Millisecond,
		AutoScaling: autoscaling.New(autoscaling.Options{
			Region: "eu-central-1", BaseEndpoint: &group.URL, Retryer: aws.NopRetryer{},
			Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", ""),
		}),
	}, written
}

const spotNotice = `{"action": "terminate", "time": "2027-01-01T08:22:00Z"}`

func TestInstanceReportsWhyItLeaves(t *testing.T) {
	t.Parallel()
	const state, spot = "autoscaling/target-lifecycle-state", "spot/instance-action"
	for name, tt := range map[string]struct {
		set  map[string]string
		want string
	}{
		"in service":                    {nil, ""},
		"in no group":                   {map[string]string{state: ""}, ""},
		"in standby":                    {map[string]string{state: "Standby"}, ""},
		"detached":                      {map[string]string{state: "Detached"}, ""},
		"the group ends it":             {map[string]string{state: "Terminated"}, "the autoscaling group terminates"},
		"the group ends it, warm":       {map[string]string{state: "Warmed:Terminated"}, "the autoscaling group terminates"},
		"EC2 takes the spot instance":   {map[string]string{spot: spotNotice}, "spot instance back: " + spotNotice},
		"a spot instance in no group":   {map[string]string{state: "", spot: spotNotice}, "spot instance back"},
		"a spot instance about to stop": {map[string]string{spot: `{"action": "stop", "time": "2027-01-01T08:22:00Z"}`}, "spot instance back"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			of := ec2.NewInstance()
			for path, text := range tt.set {
				of.Set(path, text)
			}
			got, err := instance(t, of).Leaving(t.Context())
			if err != nil || !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestMetadataTakesANewTokenWhenItsOwnIsRefused(t *testing.T) {
	t.Parallel()
	of := ec2.NewInstance()
	i := instance(t, of)
	for range 3 {
		if id, err := i.ID(t.Context()); err != nil || id != ec2.ID {
			t.Fatalf("got %q, %v", id, err)
		}
	}
	if got := of.Tokens(); got != 1 {
		t.Errorf("three questions took %d tokens, want 1", got)
	}
	of.Revoke()
	if id, err := i.ID(t.Context()); err != nil || id != ec2.ID {
		t.Errorf("after the token was revoked: got %q, %v", id, err)
	}
	if got := of.Tokens(); got != 2 {
		t.Errorf("it took %d tokens, want a second one", got)
	}
}

func TestMetadataErrors(t *testing.T) {
	t.Parallel()
	of := ec2.NewInstance()
	i := instance(t, of)
	if _, err := i.Group(t.Context()); !errors.Is(err, platform.ErrNoMetadata) {
		t.Errorf("a group without tags in the metadata: got %v, want ErrNoMetadata", err)
	}
	of.Set("tags/instance/aws:autoscaling:groupName", ec2.Group)
	if group, err := i.Group(t.Context()); err != nil || group != ec2.Group {
		t.Errorf("a group by its tag: got %q, %v", group, err)
	}
	of.Fail(1000)
	if reason, err := i.Leaving(t.Context()); err == nil || errors.Is(err, platform.ErrNoMetadata) || reason != "" {
		t.Errorf("a service that fails: got %q, %v, want an error", reason, err)
	}
}

// The calls that an agent makes.
const (
	complete  = "CompleteLifecycleAction"
	heartbeat = "RecordLifecycleActionHeartbeat"
)

func TestAgentStopsTheNodeAndLetsTheGroupGoOn(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		spot      bool // a spot notice without a lifecycle action
		errors    []ec2.Error
		failStops int
		calls     []string
		fails     bool
		log       []string
	}{
		"at once": {
			calls: []string{complete}, log: []string{"autoscaling group terminates", "node stopped", "lifecycle action completed"},
		},
		"a spot notice": {
			spot: true, calls: []string{complete + " error"}, log: []string{"spot instance back", "no lifecycle action waits"},
		},
		"throttled": {
			errors: []ec2.Error{ec2.Throttled(), ec2.Throttled()},
			calls:  []string{complete + " error", complete + " error", complete}, log: []string{"Rate exceeded"},
		},
		"down for a while": {
			errors: []ec2.Error{ec2.Unavailable()}, calls: []string{complete + " error", complete}, log: []string{"ServiceUnavailable"},
		},
		"a right comes late": {
			errors: []ec2.Error{ec2.Denied()}, calls: []string{complete + " error", complete}, log: []string{"AccessDenied"},
		},
		"systemctl fails twice": {failStops: 2, calls: []string{complete}, log: []string{"Unit not found", "try=2", "node stopped"}},
		"systemctl always fails": {
			failStops: 1000, calls: []string{complete}, fails: true, log: []string{"try=5", "lifecycle action completed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			of, group := ec2.NewInstance(), ec2.NewAutoScaling(!tt.spot, tt.errors...)
			stops := 0
			a, written := agent(t, of, group, func(context.Context) error {
				if stops++; stops <= tt.failStops {
					return errors.New("Unit not found")
				}
				return nil
			})
			a.Heartbeat = time.Hour
			if tt.spot {
				of.Set("spot/instance-action", spotNotice)
			} else {
				of.Set("autoscaling/target-lifecycle-state", "Terminated")
			}
			if err := a.Run(t.Context()); (err != nil) != tt.fails {
				t.Errorf("got error %v, want one: %t", err, tt.fails)
			}
			if want := min(tt.failStops+1, 5); stops != want {
				t.Errorf("it stopped the node %d times, want %d", stops, want)
			}
			if diff := cmp.Diff(tt.calls, group.Calls()); diff != "" {
				t.Error("calls (-want +got):\n" + diff)
			}
			for _, want := range tt.log {
				if !strings.Contains(written.String(), want) {
					t.Errorf("the log does not say %q:\n%s", want, written)
				}
			}
		})
	}
}

// While the node drains, the action is prolonged even if single requests fail, and it is not completed.
func TestAgentProlongsTheActionWhileTheNodeStops(t *testing.T) {
	t.Parallel()
	of, group := ec2.NewInstance(), ec2.NewAutoScaling(true, ec2.Throttled())
	of.Set("autoscaling/target-lifecycle-state", "Terminated")
	a, written := agent(t, of, group, func(ctx context.Context) error {
		for len(group.Calls()) < 4 {
			select {
			case <-group.Called():
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if calls := group.Calls(); slices.Contains(calls, complete) {
			t.Errorf("completed before the node has stopped: %v", calls)
		}
		return nil
	})
	if err := a.Run(t.Context()); err != nil {
		t.Error(err)
	}
	calls := group.Calls()
	if calls[0] != heartbeat+" error" || calls[1] != heartbeat || calls[len(calls)-1] != complete {
		t.Errorf("got the calls %v, want heartbeats, the first of which fails, and then completion", calls)
	}
	if !strings.Contains(written.String(), "Rate exceeded") {
		t.Errorf("the log does not tell of the failed heartbeat:\n%s", written)
	}
}

// A metadata service that is down for a while is logged once, and the end of the instance is still noticed.
func TestAgentOutlivesItsMetadataService(t *testing.T) {
	t.Parallel()
	of, group := ec2.NewInstance(), ec2.NewAutoScaling(true)
	a, written := agent(t, of, group, func(context.Context) error { return nil })
	of.Fail(6)
	done := make(chan error, 1)
	go func() { done <- a.Run(t.Context()) }()
	for of.Failing() > 0 || of.Asked("spot/instance-action") < 3 {
		select {
		case <-of.Looked():
		case <-t.Context().Done():
			t.Fatal("it looks no longer")
		}
	}
	of.Set("autoscaling/target-lifecycle-state", "Terminated")
	if err := <-done; err != nil {
		t.Error(err)
	}
	down, up := strings.Count(written.String(), "cannot be read"), strings.Count(written.String(), "can be read again")
	if down != 1 || up != 1 {
		t.Errorf("it logged the failure %d times and its end %d times, want each once:\n%s", down, up, written)
	}
}

func TestAgentEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]func(of *ec2.Instance, group *ec2.AutoScaling, end func()){
		"while it waits": func(of *ec2.Instance, _ *ec2.AutoScaling, end func()) {
			<-of.Looked()
			end()
		},
		"while it retries": func(of *ec2.Instance, group *ec2.AutoScaling, end func()) {
			of.Set("autoscaling/target-lifecycle-state", "Terminated")
			<-group.Called()
			end()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			denied := slices.Repeat([]ec2.Error{ec2.Denied()}, 10_000)
			of, group := ec2.NewInstance(), ec2.NewAutoScaling(true, denied...)
			a, _ := agent(t, of, group, func(context.Context) error { return nil })
			ctx, end := context.WithCancel(t.Context())
			defer end()
			done := make(chan error, 1)
			go func() { done <- a.Run(ctx) }()
			script(of, group, end)
			if err := <-done; err != nil {
				t.Errorf("got %v, want no error", err)
			}
		})
	}
}
