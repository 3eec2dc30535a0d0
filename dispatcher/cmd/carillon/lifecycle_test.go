package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/test/ec2"
	"github.com/carillon-dev/carillon/test/program"
)

// fakeSystemctl returns an environment with a fake systemctl that records its arguments, and the
// file that it writes.
func fakeSystemctl(t *testing.T) (env, record string) {
	t.Helper()
	dir := t.TempDir()
	record = filepath.Join(dir, "record")
	script := "#!/bin/sh\necho \"$@\" >> " + record + "\n"
	if err := program.Write(filepath.Join(dir, "systemctl"), []byte(script)); err != nil {
		t.Fatal(err)
	}
	return "PATH=" + dir + ":" + os.Getenv("PATH"), record
}

func TestLifecycleAgentOfAnInstance(t *testing.T) {
	t.Parallel()
	const tag = "tags/instance/aws:autoscaling:groupName"
	for name, tt := range map[string]struct {
		args, env []string
		tag       string
		code      int
		stopped   string
		calls     []string
		says      string
	}{
		"by flags": {
			args: []string{"--hook=" + ec2.Hook, "--group=" + ec2.Group, "--unit=other.service"}, tag: "not this",
			stopped: "stop -- other.service\n", calls: []string{"CompleteLifecycleAction"}, says: "lifecycle action completed",
		},
		"by variables, with the group from the tags": {
			env: []string{"CARILLON_LIFECYCLE_HOOK=" + ec2.Hook}, tag: ec2.Group,
			stopped: "stop -- carillon.service\n", calls: []string{"CompleteLifecycleAction"}, says: "lifecycle action completed",
		},
		"of another group": {
			args:    []string{"--hook=" + ec2.Hook, "--group=other"},
			stopped: "stop -- carillon.service\n", calls: []string{"CompleteLifecycleAction error"}, says: "no lifecycle action waits",
		},
		"without a group": {args: []string{"--hook=" + ec2.Hook}, code: 2, says: "--group (CARILLON_LIFECYCLE_GROUP)"},
		"without a hook":  {args: []string{"--group=" + ec2.Group}, code: 2, says: "--hook"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			instance, group := ec2.NewInstance(), ec2.NewAutoScaling(true)
			defer instance.Close()
			defer group.Close()
			instance.Set("autoscaling/target-lifecycle-state", "Terminated")
			instance.Set(tag, tt.tag)
			path, record := fakeSystemctl(t)
			_, stderr, code := carillon(t, slices.Concat(ec2.Environment(instance, group), []string{path}, tt.env),
				append([]string{"lifecycle", "ec2"}, tt.args...)...)
			if code != tt.code || !strings.Contains(stderr, tt.says) {
				t.Errorf("exit code %d, want %d, and a message with %q:\n%s", code, tt.code, tt.says, stderr)
			}
			stopped, _ := os.ReadFile(record) // the file is missing if nothing was stopped
			if diff := cmp.Diff(tt.stopped, string(stopped)); diff != "" {
				t.Error("systemctl (-want +got):\n" + diff)
			}
			if diff := cmp.Diff(tt.calls, group.Calls()); diff != "" {
				t.Error("calls (-want +got):\n" + diff)
			}
		})
	}
}
