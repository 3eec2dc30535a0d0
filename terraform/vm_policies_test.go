package terraform_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

// inVM breaks the launch template of terraform/vm or another of its resources.
func inVM(name, resource string, set map[string]any) broken {
	return broken{name, "terraform/vm", "defaults", resource, set}
}

func blockOf(values map[string]any) []any { return []any{values} }

// vmPolicies hold for what terraform/vm and the examples on machines create.
var vmPolicies = []policy{
	{
		name:     "metadata only with a token, and only on the machine",
		problems: openMetadata,
		broken: []broken{
			inVM("no token", "aws_launch_template", map[string]any{
				"metadata_options": blockOf(map[string]any{"http_tokens": "optional", "http_put_response_hop_limit": 1.0}),
			}),
			inVM("containers", "aws_launch_template", map[string]any{
				"metadata_options": blockOf(map[string]any{"http_tokens": "required", "http_put_response_hop_limit": 2.0}),
			}),
			{
				"no block", "examples/vm-single-sqlite", "single", "aws_instance", map[string]any{"metadata_options": []any{}},
			},
		},
	},
	{
		name:     "encrypted volumes",
		problems: plainVolumes,
		broken: []broken{
			inVM("root volume", "aws_launch_template", map[string]any{
				"block_device_mappings": blockOf(map[string]any{"ebs": blockOf(map[string]any{"encrypted": "false"})}),
			}),
			inVM("as the image has it", "aws_launch_template", map[string]any{"block_device_mappings": []any{}}),
			{
				"root volume of an instance", "examples/vm-single-sqlite", "single", "aws_instance",
				map[string]any{"root_block_device": blockOf(map[string]any{"encrypted": false})},
			},
			{"data volume", "examples/vm-single-sqlite", "single", "aws_ebs_volume", map[string]any{"encrypted": false}},
		},
	},
	{
		name:     "no public address",
		problems: publicAddresses,
		broken: []broken{
			inVM("asked for", "aws_launch_template", map[string]any{
				"network_interfaces": blockOf(map[string]any{"associate_public_ip_address": "true"}),
			}),
			inVM("left to the subnet", "aws_launch_template", map[string]any{"network_interfaces": []any{}}),
		},
	},
	{
		name:     "no secret in user data",
		problems: secretsInUserData,
		broken: []broken{
			inVM("key", "aws_launch_template", userData(`#cloud-config
				{"write_files": [{"path": "/etc/carillon/carillon.env", "content": "CARILLON_SECRET_KEYS=AAAA\n"}]}`)),
			inVM("secret of a target", "aws_launch_template", userData(`#cloud-config
				{"write_files": [{"path": "/etc/carillon/secrets.env", "content": "SECRET_CRM=hunter2\n"}]}`)),
			inVM("password in a URL", "aws_launch_template", userData(`#cloud-config
				{"runcmd": [["carillon", "serve", "--database", "postgres://carillon:hunter2@db/carillon"]]}`)),
			inVM("unreadable", "aws_launch_template", map[string]any{"user_data": "#!/bin/sh"}),
		},
	},
	{
		name:     "drain < stop < hook",
		problems: timeoutsApart,
		broken: []broken{
			inVM("hook", "aws_autoscaling_lifecycle_hook", map[string]any{
				"lifecycle_transition": "autoscaling:EC2_INSTANCE_TERMINATING", "heartbeat_timeout": 120.0,
			}),
			inVM("unit", "aws_launch_template", userData(`#cloud-config
				{"write_files": [
					{"path": "/etc/carillon/carillon.env", "content": "CARILLON_DRAIN_TIMEOUT=110s\nCARILLON_STOP_TIMEOUT=120s\n"},
					{"path": "/etc/systemd/system/carillon.service.d/10-terraform.conf", "content": "TimeoutStopSec=90\n"}]}`)),
			inVM("drain", "aws_launch_template", userData(`#cloud-config
				{"write_files": [
					{"path": "/etc/carillon/carillon.env", "content": "CARILLON_DRAIN_TIMEOUT=118s\nCARILLON_STOP_TIMEOUT=120s\n"},
					{"path": "/etc/systemd/system/carillon.service.d/10-terraform.conf", "content": "TimeoutStopSec=120\n"}]}`)),
		},
	},
	{
		name:     "new before old",
		problems: oldBeforeNew,
		broken: []broken{
			inVM("maintenance", "aws_autoscaling_group", map[string]any{
				"instance_maintenance_policy": blockOf(map[string]any{"min_healthy_percentage": 90.0}),
			}),
			inVM("refresh", "aws_autoscaling_group", map[string]any{
				"instance_refresh": blockOf(map[string]any{"preferences": blockOf(map[string]any{
					"min_healthy_percentage": 50.0, "auto_rollback": true,
				})}),
			}),
			inVM("no way back", "aws_autoscaling_group", map[string]any{
				"instance_refresh": blockOf(map[string]any{"preferences": blockOf(map[string]any{
					"min_healthy_percentage": 100.0, "auto_rollback": false,
				})}),
			}),
		},
	},
	{
		name:     "an instance enters the group when its node is ready",
		problems: unprovenInstances,
		broken: []broken{
			inVM("at the creation of the group", "aws_autoscaling_group", map[string]any{"initial_lifecycle_hook": []any{}}),
			inVM("afterwards", "aws_autoscaling_lifecycle_hook", map[string]any{
				"lifecycle_transition": "autoscaling:EC2_INSTANCE_LAUNCHING", "default_result": "CONTINUE",
			}),
		},
	},
}

// The data volume of the example outlives its machine, also if somebody destroys by mistake.
func TestDataVolumeCannotBeDestroyed(t *testing.T) {
	t.Parallel()
	for _, text := range read(t, "examples/vm-single-sqlite", "main.tf") {
		sections(text, owner, func(name []string, body string) {
			if name[2] == "aws_ebs_volume" && !strings.Contains(body, "prevent_destroy = true") {
				t.Errorf("%s.%s can be destroyed", name[2], name[3])
			}
		})
	}
}

func openMetadata(s state) (problems []string) {
	for _, r := range s.machines() {
		options := r.nested("metadata_options")
		if options.text("http_tokens") != "required" || options.value("http_put_response_hop_limit") != "1" {
			problems = append(problems, fmt.Sprintf("%s has %v", r.Address, options.Values))
		}
	}
	return problems
}

func plainVolumes(s state) (problems []string) {
	check := func(r resource) {
		if r.value("encrypted") != "true" {
			problems = append(problems, r.Address+" has a volume that is not encrypted")
		}
	}
	for _, r := range s.all("aws_launch_template") {
		check(r.nested("block_device_mappings", "ebs"))
	}
	for _, r := range s.all("aws_instance") {
		check(r.nested("root_block_device"))
	}
	for _, r := range s.all("aws_ebs_volume") {
		check(r)
	}
	return problems
}

func publicAddresses(s state) (problems []string) {
	for _, r := range s.machines() {
		at := r
		if r.Type == "aws_launch_template" {
			at = r.nested("network_interfaces")
		}
		if at.value("associate_public_ip_address") != "false" {
			problems = append(problems, r.Address+" has a public address")
		}
	}
	return problems
}

// secret finds variables whose values must come from Secrets Manager, and passwords in URLs.
var secret = regexp.MustCompile(`(?m)^(CARILLON_DATABASE_PASSWORD|CARILLON_SECRET_KEYS|SECRET_[A-Z0-9_]+)=|://[^/@\s"]*:[^/@\s"]*@`)

func secretsInUserData(s state) (problems []string) {
	m, err := machineOf(s)
	switch {
	case err != nil:
		return []string{err.Error()}
	case m == nil:
		return nil
	}
	for _, f := range m.Files {
		for _, found := range secret.FindAllString(f.Content, -1) {
			problems = append(problems, f.Path+" holds "+found)
		}
	}
	for _, c := range m.Commands {
		for _, found := range secret.FindAllString(strings.Join(c, "\n"), -1) {
			problems = append(problems, "a command holds "+found)
		}
	}
	return problems
}

func timeoutsApart(s state) (problems []string) {
	m, err := machineOf(s)
	if m == nil || err != nil {
		return nil // secretsInUserData says so
	}
	drain, err1 := time.ParseDuration(m.setting(envFile, "CARILLON_DRAIN_TIMEOUT"))
	stop, err2 := time.ParseDuration(m.setting(envFile, "CARILLON_STOP_TIMEOUT"))
	unit, err3 := time.ParseDuration(m.setting(dropIn, "TimeoutStopSec") + "s")
	if err1 != nil || err2 != nil || err3 != nil || drain > stop-5*time.Second || unit != stop {
		problems = append(problems, fmt.Sprintf("the node drains for %s and stops within %s; its unit waits for %s", drain, stop, unit))
	}
	for _, r := range s.all("aws_autoscaling_lifecycle_hook") {
		seconds, _ := r.Values["heartbeat_timeout"].(float64)
		hook := time.Duration(seconds) * time.Second
		if strings.HasSuffix(r.text("lifecycle_transition"), "TERMINATING") && hook < stop+30*time.Second {
			problems = append(problems, fmt.Sprintf("%s waits %s for a node that stops within %s", r.Address, hook, stop))
		}
	}
	return problems
}

func oldBeforeNew(s state) (problems []string) {
	for _, r := range s.all("aws_autoscaling_group") {
		refresh := r.nested("instance_refresh", "preferences")
		if r.nested("instance_maintenance_policy").value("min_healthy_percentage") != "100" ||
			refresh.value("min_healthy_percentage") != "100" || refresh.value("auto_rollback") != "true" {
			problems = append(problems, r.Address+" stops instances before others have taken their place, or cannot go back")
		}
	}
	return problems
}

func unprovenInstances(s state) (problems []string) {
	for _, group := range s.all("aws_autoscaling_group") {
		hooks := []resource{group.nested("initial_lifecycle_hook")}
		for _, r := range s.all("aws_autoscaling_lifecycle_hook") {
			if strings.HasSuffix(r.text("lifecycle_transition"), "LAUNCHING") {
				hooks = append(hooks, r)
			}
		}
		for _, r := range hooks {
			if r.value("default_result") != "ABANDON" {
				problems = append(problems, r.Address+" lets an instance in that has not said that it is ready")
			}
		}
	}
	return problems
}
