// Command rollout repeatedly deploys one version of Carillon over the other, like an ECS service: new tasks
// before old ones, under 200 fires a second and long attempts, with task protection. Then it checks that each
// second of each trigger fired once, and that no deployment cut off a protected attempt.
//
// The target rollout of the Makefile runs it; docs/how-to/pause-and-drain.md explains the subject.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// options configure a run.
type options struct {
	rollouts  int
	desired   int // tasks of the service
	fires     int // per second
	longEvery time.Duration
	every     time.Duration // shortest pause between the starts of two rollouts
	scale     float64
	from      string // git ref of the older version; empty for this tree
	dir       string
	keep      bool
	protect   bool
	pace
}

// pace has the times of the service: those of the ECS module, multiplied by the scale.
type pace struct {
	stop     time.Duration // from SIGTERM to SIGKILL
	drain    time.Duration
	shortest time.Duration // shortest long attempt
	longest  time.Duration
	timeout  time.Duration // of the jobs with long attempts
	probe    time.Duration // interval of the health check
}

func main() {
	var o options
	flag.IntVar(&o.rollouts, "rollouts", 20, "how many times to deploy")
	flag.IntVar(&o.desired, "desired", 2, "tasks of the service")
	flag.IntVar(&o.fires, "fires", 200, "triggers that fire each second")
	flag.DurationVar(&o.longEvery, "long-every", 40*time.Second, "pause between long attempts; they take 85s on average")
	flag.DurationVar(&o.every, "every", 70*time.Second, "shortest time from the begin of a rollout to that of the next")
	flag.Float64Var(&o.scale, "scale", 1, "factor of all times of the service and of long attempts")
	flag.StringVar(&o.from, "from", "", "git ref of the older version; empty: the same sources under another version")
	flag.StringVar(&o.dir, "dir", "", "directory for logs; empty: a temporary one, kept if the run finds something")
	flag.BoolVar(&o.keep, "keep", false, "always keep the directory")
	flag.BoolVar(&o.protect, "protection", true, "let tasks ask for protection; without it, the run must find attempts that were cut off")
	short := flag.Bool("short", false, "two rollouts with a twentieth of all times")
	flag.Parse()
	if *short {
		o.rollouts, o.scale, o.every = 2, 0.05, 400*time.Second
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	if err := execute(ctx, o); err != nil {
		if !errors.Is(err, errVerdict) {
			fmt.Fprintln(os.Stderr, "rollout:", err)
		}
		os.Exit(1)
	}
}

// errVerdict means that the run found problems and printed them.
var errVerdict = errors.New("the run found problems")

// scaled returns a time of the module, scaled for this run.
func (o options) scaled(d time.Duration) time.Duration { return time.Duration(float64(d) * o.scale) }

func execute(ctx context.Context, o options) (err error) {
	if o.rollouts < 1 || o.desired < 1 || o.fires < 1 || o.scale <= 0 {
		return errors.New("-rollouts, -desired, -fires and -scale must be more than 0")
	}
	o.pace = pace{
		stop: o.scaled(120 * time.Second), drain: o.scaled(110 * time.Second),
		shortest: o.scaled(10 * time.Second), longest: o.scaled(5 * time.Minute), timeout: o.scaled(6 * time.Minute),
		probe: o.scaled(5 * time.Second),
	}
	o.longEvery, o.every = o.scaled(o.longEvery), o.scaled(o.every)
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "carillon-rollout-"); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(o.dir, 0o755); err != nil { //nolint:gosec // logs, for everyone
		return err
	}
	err = runIn(ctx, o)
	if err != nil || o.keep {
		fmt.Fprintln(os.Stderr, "the logs of the run are in", o.dir)
		return err
	}
	return os.RemoveAll(o.dir)
}

// runIn makes one run with its files in o.dir.
func runIn(ctx context.Context, o options) (err error) {
	versions, err := buildVersions(ctx, o)
	if err != nil {
		return err
	}
	w, err := newWorld(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	fmt.Printf("rollout: %d times %s -> %s, %d tasks, %d fires/s, long attempts of %s to %s every %s, drain %s, stop after %s\n",
		o.rollouts, versions[0].name, versions[1].name, o.desired, o.fires, o.shortest, o.longest, o.longEvery, o.drain, o.stop)
	service := newService(o, w)
	ticking, end := context.WithCancel(ctx)
	defer end()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		service.run(ticking)
	}()
	defer func() {
		end()
		<-stopped
		service.kill()
	}()
	begun := time.Now()
	if err := service.rollOver(ctx, versions, w.receiver); err != nil {
		return err
	}
	took := time.Since(begun)
	to := time.Now().Truncate(time.Second)
	w.receiver.hurry()
	if err := w.settle(ctx, to); err != nil {
		return err
	}
	return judge(ctx, o, w, service, to, took)
}

// version is a program to deploy.
type version struct{ name, program string }

// buildVersions builds the older and the newer version.
func buildVersions(ctx context.Context, o options) (both []version, err error) {
	for i, name := range []string{"1.0.0-old", "1.0.1-new"} {
		tree := ""
		if i == 0 && o.from != "" {
			if tree, err = checkOut(ctx, o); err != nil {
				return nil, err
			}
		}
		v := version{name: name, program: filepath.Join(o.dir, "carillon-"+name)}
		if err := buildVersion(ctx, tree, v); err != nil {
			return nil, err
		}
		both = append(both, v)
	}
	return both, nil
}
