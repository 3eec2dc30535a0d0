package terraform_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// container is what policies look at in the container definitions of a task.
type container struct {
	Name, Image, User      string
	Command                []string
	ReadonlyRootFilesystem bool
	Privileged             bool
	StopTimeout            int
	LinuxParameters        struct{ Capabilities struct{ Add, Drop []string } }
	HealthCheck            struct{ Command []string }
	LogConfiguration       struct {
		LogDriver string
		Options   map[string]string
	}
	Environment []struct{ Name, Value string }
	Secrets     []struct{ Name, ValueFrom string }
}

// containers returns the containers of a task definition.
func containers(r resource) ([]container, error) {
	var found []container
	if err := json.Unmarshal([]byte(r.text("container_definitions")), &found); err != nil {
		return nil, fmt.Errorf("%s: %w", r.Address, err)
	}
	return found, nil
}

func (c container) variable(name string) string {
	for _, v := range c.Environment {
		if v.Name == name {
			return v.Value
		}
	}
	return ""
}

// eachContainer is a policy on containers.
func eachContainer(problem func(c container) string) func(s state) []string {
	return func(s state) []string {
		var problems []string
		for _, r := range s.all("aws_ecs_task_definition") {
			found, err := containers(r)
			if err != nil || len(found) == 0 {
				problems = append(problems, fmt.Sprintf("%s has no containers: %v", r.Address, err))
			}
			for _, c := range found {
				if p := problem(c); p != "" {
					problems = append(problems, r.Address+": "+p)
				}
			}
		}
		return problems
	}
}

const (
	taskDefinition = "aws_ecs_task_definition"
	ecsDir         = "terraform/ecs"
	ecsRun         = "everything"
)

// breakTask breaks the containers of the fleet's task definition.
func breakTask(name, key string, value any) broken {
	return broken{name, ecsDir, ecsRun, taskDefinition, map[string]any{"container_definitions." + key: value}}
}

func breakECS(name, kind, attribute string, value any) broken {
	return broken{name, ecsDir, ecsRun, kind, map[string]any{attribute: value}}
}

func variables(pairs ...string) []map[string]string {
	var list []map[string]string
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, map[string]string{"name": pairs[i], "value": pairs[i+1]})
	}
	return list
}

var (
	digest    = regexp.MustCompile(`@sha256:[0-9a-f]{64}$`)
	plainText = regexp.MustCompile(`^SECRET_|PASSWORD$|SECRET_KEYS$|TOKEN$|://[^/@]*:[^/@]*@`)
)

// ecsPolicies hold for what terraform/ecs creates.
var ecsPolicies = []policy{
	{
		name: "image by digest",
		problems: eachContainer(func(c container) string {
			if !digest.MatchString(c.Image) {
				return "the image is " + c.Image
			}
			return ""
		}),
		broken: []broken{
			breakTask("a tag", "image", "ghcr.io/carillon-dev/carillon:v1.0.0"),
			breakTask("no tag", "image", "ghcr.io/carillon-dev/carillon"),
		},
	},
	{
		name:     "read-only root, no rights",
		problems: eachContainer(rights),
		broken: []broken{
			breakTask("a root that can be written", "readonlyRootFilesystem", false),
			breakTask("as root", "user", "0"),
			breakTask("as the user of the image", "user", ""),
			breakTask("with capabilities", "linuxParameters", map[string]any{}),
			breakTask("privileged", "privileged", true),
		},
	},
	{
		name: "no secrets in plain text",
		problems: eachContainer(func(c container) string {
			for _, v := range c.Environment {
				if plainText.MatchString(v.Name) || plainText.MatchString(v.Value) {
					return v.Name + " is readable in the console of AWS"
				}
			}
			return ""
		}),
		broken: []broken{
			breakTask("the database's password", "environment", variables("CARILLON_DATABASE_PASSWORD", "hunter2")),
			breakTask("a password in a URL", "environment", variables("CARILLON_DATABASE", "postgres://carillon:hunter2@db/carillon")),
			breakTask("a target's", "environment", variables("SECRET_CRM", "hunter2")),
		},
	},
	{
		name:     "the drain ends before the stop",
		problems: drains,
		broken: []broken{
			breakTask("a drain up to the stop", "environment", variables("CARILLON_DRAIN_TIMEOUT", "120s", "CARILLON_STOP_TIMEOUT", "120s")),
			breakTask("no drain", "environment", variables("CARILLON_STOP_TIMEOUT", "120s")),
			breakTask("the default of ECS, 30 s", "stopTimeout", 30),
			breakTask("more than Fargate allows", "stopTimeout", 180),
			breakECS("a balancer that sends to a node that is gone", "aws_lb_target_group", "deregistration_delay", "300"),
		},
	},
	{
		name:     "logs in the log group, never waited for",
		problems: eachContainer(logging),
		broken: []broken{
			breakTask("no log", "logConfiguration", map[string]any{}),
			breakTask("a log that blocks", "logConfiguration", map[string]any{"logDriver": "awslogs", "options": map[string]any{}}),
		},
	},
	{
		name:     "new nodes before old ones, and back if they fail",
		problems: deployments,
		broken: []broken{
			breakECS("old ones stop first", "aws_ecs_service", "deployment_minimum_healthy_percent", 50.0),
			breakECS("no room for new ones", "aws_ecs_service", "deployment_maximum_percent", 100.0),
			breakECS("no circuit breaker", "aws_ecs_service", "deployment_circuit_breaker", []any{}),
			breakECS("no way back", "aws_ecs_service", "deployment_circuit_breaker", []any{map[string]any{"enable": true, "rollback": false}}),
			breakECS("one node", "aws_ecs_service", "desired_count", 1.0),
			breakECS("a shell", "aws_ecs_service", "enable_execute_command", true),
			breakECS("one zone", "aws_ecs_service", "network_configuration", []any{map[string]any{"subnets": []any{"subnet-a"}}}),
		},
	},
	{
		name:     "never fewer than two nodes",
		problems: scaling,
		broken: []broken{
			breakECS("scale to zero", "aws_appautoscaling_target", "min_capacity", 0.0),
			breakECS("one at night", "aws_appautoscaling_scheduled_action", "scalable_target_action", []any{map[string]any{"min_capacity": "1"}}),
		},
	},
	{
		name:     "load balancers are internal and speak TLS",
		problems: balancers,
		broken: []broken{
			breakECS("on the internet", "aws_lb", "internal", false),
			breakECS("invalid headers", "aws_lb", "drop_invalid_header_fields", false),
			breakECS("plain HTTP", "aws_lb_listener", "protocol", "HTTP"),
			breakECS("TLS 1.0", "aws_lb_listener", "ssl_policy", "ELBSecurityPolicy-2016-08"),
			breakECS("an unchecked node", "aws_lb_target_group", "health_check", []any{map[string]any{"path": "/livez"}}),
		},
	},
}

func rights(c container) string {
	switch {
	case !c.ReadonlyRootFilesystem:
		return c.Name + " can write to its root"
	case c.User == "" || strings.HasPrefix(c.User, "0"):
		return fmt.Sprintf("%s runs as %q", c.Name, c.User)
	case c.Privileged || len(c.LinuxParameters.Capabilities.Add) > 0:
		return c.Name + " has more rights than it needs"
	case !slices.Equal(c.LinuxParameters.Capabilities.Drop, []string{"ALL"}):
		return c.Name + " keeps capabilities"
	}
	return ""
}

// drains compares drains with the stop of the task and with the balancer.
func drains(s state) []string {
	var shortest time.Duration
	problems := eachContainer(func(c container) string {
		if !slices.Contains(c.Command, "serve") {
			return ""
		}
		drain, _ := time.ParseDuration(c.variable("CARILLON_DRAIN_TIMEOUT"))
		known, _ := time.ParseDuration(c.variable("CARILLON_STOP_TIMEOUT"))
		stop := time.Duration(c.StopTimeout) * time.Second
		if shortest == 0 || drain < shortest {
			shortest = drain
		}
		switch {
		case drain == 0 || drain > stop-5*time.Second:
			return fmt.Sprintf("the drain of %v does not end before the stop after %v", drain, stop)
		case known != stop:
			return fmt.Sprintf("the node takes %v for the stop, and the task has %v", known, stop)
		case stop > 2*time.Minute:
			return fmt.Sprintf("Fargate does not wait for %v", stop)
		}
		return ""
	})(s)
	for _, group := range s.all("aws_lb_target_group") {
		delay, err := time.ParseDuration(group.text("deregistration_delay") + "s")
		if err != nil || delay > shortest {
			problems = append(problems, fmt.Sprintf("%s sends for %v to a node that drains for %v", group.Address, delay, shortest))
		}
	}
	return problems
}

func logging(c container) string {
	if c.LogConfiguration.LogDriver != "awslogs" || c.LogConfiguration.Options["mode"] != "non-blocking" {
		return fmt.Sprintf("%s logs to %q, mode %q", c.Name, c.LogConfiguration.LogDriver, c.LogConfiguration.Options["mode"])
	}
	return ""
}

// first returns the attributes of the first block of a name.
func (r resource) first(block string) map[string]any {
	if list, _ := r.Values[block].([]any); len(list) > 0 {
		values, _ := list[0].(map[string]any)
		return values
	}
	return nil
}

// number returns an attribute that is a number; 0 if it is not set.
func (r resource) number(attribute string) float64 {
	value, _ := r.Values[attribute].(float64)
	return value
}

func deployments(s state) []string {
	var problems []string
	for _, r := range s.all("aws_ecs_service") {
		breaker := r.first("deployment_circuit_breaker")
		subnets, _ := r.first("network_configuration")["subnets"].([]any)
		for problem, is := range map[string]bool{
			"stops old nodes before new ones are healthy": r.number("deployment_minimum_healthy_percent") < 100,
			"has no room for new nodes":                   r.number("deployment_maximum_percent") < 200,
			"keeps a version that does not start":         breaker["enable"] != true || breaker["rollback"] != true,
			"begins with less than two nodes":             r.number("desired_count") < 2,
			"is in one zone":                              len(subnets) < 2,
			"lets people into its containers":             r.Values["enable_execute_command"] == true,
		} {
			if is {
				problems = append(problems, r.Address+" "+problem)
			}
		}
	}
	return problems
}

func scaling(s state) []string {
	var problems []string
	for _, r := range s.all("aws_appautoscaling_target") {
		if r.number("min_capacity") < 2 {
			problems = append(problems, r.Address+" allows less than two nodes")
		}
	}
	for _, r := range s.all("aws_appautoscaling_scheduled_action") {
		text, _ := r.first("scalable_target_action")["min_capacity"].(string)
		if least, err := strconv.Atoi(text); err != nil || least < 2 {
			problems = append(problems, r.Address+" allows less than two nodes")
		}
	}
	return problems
}

func balancers(s state) []string {
	var problems []string
	for _, r := range s.all("aws_lb") {
		if r.Values["internal"] != true || r.Values["drop_invalid_header_fields"] != true {
			problems = append(problems, r.Address+" is on the internet, or passes invalid headers on")
		}
	}
	for _, r := range s.all("aws_lb_listener") {
		if r.text("protocol") != "HTTPS" || !strings.HasPrefix(r.text("ssl_policy"), "ELBSecurityPolicy-TLS13-") {
			problems = append(problems, fmt.Sprintf("%s speaks %s by %s", r.Address, r.text("protocol"), r.text("ssl_policy")))
		}
	}
	for _, r := range s.all("aws_lb_target_group") {
		if path := r.first("health_check")["path"]; path != "/readyz" {
			problems = append(problems, fmt.Sprintf("%s checks %v", r.Address, path))
		}
	}
	return problems
}
