package terraform_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/test/need"
)

// policy is a rule for all that any module or example creates.
type policy struct {
	name string
	// problems names what breaks the rule in a state; a state without such resources has none.
	problems func(s state) []string
	// broken are states that the rule must refuse: edits of what a run has created, by what is wrong then.
	broken []broken
}

// broken sets attributes of one resource of a run.
type broken struct {
	name, dir, run, resource string // resource is a type
	set                      map[string]any
}

// commonPolicies hold for all modules. ecsPolicies and vmPolicies are in files of their own.
var commonPolicies = []policy{
	{
		name:     "no open ingress",
		problems: openIngress,
		broken: []broken{
			{
				"IPv4", "terraform/ecs", "everything", "aws_vpc_security_group_ingress_rule",
				map[string]any{"cidr_ipv4": "0.0.0.0/0"},
			},
			{
				"IPv6", "terraform/ecs", "everything", "aws_vpc_security_group_ingress_rule",
				map[string]any{"cidr_ipv6": "::/0"},
			},
			{"half of the world", "terraform/ecs", "everything", "aws_vpc_security_group_ingress_rule", map[string]any{"cidr_ipv4": "128.0.0.0/1"}},
			{
				"inline rules", "terraform/ecs", "everything", "aws_security_group",
				map[string]any{"ingress": []any{map[string]any{"cidr_blocks": []any{"0.0.0.0/0"}}}},
			},
		},
	},
	{
		name:     "descriptions of security groups that AWS accepts",
		problems: groupDescriptions,
		broken: []broken{
			{"an apostrophe", "terraform/ecs", "everything", "aws_security_group", map[string]any{"description": "the fleet's nodes"}},
			{
				"a rule", "terraform/ecs", "everything", "aws_vpc_security_group_egress_rule",
				map[string]any{"description": strings.Repeat("x", 256)},
			},
		},
	},
	{
		name:     "no * in IAM",
		problems: wildcards,
		broken: []broken{
			{"every action", "terraform/ecs", "everything", "aws_iam_role_policy", statement("*", "arn:aws:s3:::bucket")},
			{"every action of a service", "terraform/ecs", "everything", "aws_iam_role_policy", statement("ecs:*", "arn:aws:s3:::bucket")},
			{"every resource", "terraform/ecs", "everything", "aws_iam_role_policy", statement("ecs:StopTask", "*")},
			{
				"every region", "terraform/ecs", "everything", "aws_iam_role_policy",
				statement("rds-db:connect", "arn:aws:rds-db:*:123456789012:dbuser:db-A/carillon"),
			},
			{
				"every cluster", "terraform/ecs", "everything", "aws_iam_role_policy",
				statement("ecs:UpdateTaskProtection", "arn:aws:ecs:eu-central-1:123456789012:task/*"),
			},
			{
				"every secret", "terraform/ecs", "everything", "aws_iam_role_policy",
				statement("secretsmanager:GetSecretValue", "arn:aws:secretsmanager:eu-central-1:123456789012:secret:*"),
			},
			{
				"every parameter", "terraform/ecs", "everything", "aws_iam_role_policy",
				statement("ssm:GetParameter", "arn:aws:ssm:eu-central-1:123456789012:parameter/*"),
			},
		},
	},
	{
		name:     "nobody may be anybody",
		problems: strangers,
		broken: []broken{
			{"any principal", "terraform/ecs", "everything", "aws_iam_role", trust(`"*"`)},
			{"any account", "terraform/ecs", "everything", "aws_iam_role", trust(`{"AWS": "*"}`)},
			{"any service, in a list", "terraform/ecs", "everything", "aws_iam_role", trust(`{"Service": ["*"]}`)},
			{
				"a key for all", "terraform/ecs", "everything", "aws_kms_key",
				map[string]any{"policy": trust(`"*"`)["assume_role_policy"]},
			},
		},
	},
	{
		name:     "encrypted logs that expire",
		problems: plainLogs,
		broken: []broken{
			{"no key", "terraform/ecs", "everything", "aws_cloudwatch_log_group", map[string]any{"kms_key_id": nil}},
			{"for ever", "terraform/ecs", "everything", "aws_cloudwatch_log_group", map[string]any{"retention_in_days": 0.0}},
		},
	},
}

// TestPolicies applies each policy to each run of each module and example.
func TestPolicies(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	policies := slices.Concat(commonPolicies, ecsPolicies, vmPolicies)
	eachClient(t, func(t *testing.T, c client) {
		for _, dir := range folders(t) {
			t.Run(dir, func(t *testing.T) {
				t.Parallel()
				for name, r := range c.runs(t, dir) {
					for _, p := range policies {
						for _, problem := range p.problems(r.state) {
							t.Errorf("run %q: %s: %s", name, p.name, problem)
						}
					}
				}
			})
		}
	})
}

func TestPoliciesRefuseBrokenPlans(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	policies := slices.Concat(commonPolicies, ecsPolicies, vmPolicies)
	eachClient(t, func(t *testing.T, c client) {
		for _, p := range policies {
			if len(p.broken) == 0 {
				t.Errorf("%s: there is no plan that breaks it", p.name)
			}
			for _, b := range p.broken {
				t.Run(p.name+"/"+b.name, func(t *testing.T) {
					t.Parallel()
					s := c.state(t, b.dir, b.run).with(t, b.resource, b.set)
					if problems := p.problems(s); len(problems) == 0 {
						t.Errorf("%s with %v is accepted", b.resource, b.set)
					}
				})
			}
		}
	})
}

// with returns a copy of a state with attributes of the first resource of a type set. An attribute of JSON
// text, written as ATTRIBUTE.KEY, has that key set in each object of its array.
func (s state) with(t *testing.T, kind string, set map[string]any) state {
	t.Helper()
	at := slices.IndexFunc(s.resources, func(r resource) bool { return r.Type == kind && r.Mode == "managed" })
	if at < 0 {
		t.Fatalf("the run has created no %s", kind)
	}
	s.resources = slices.Clone(s.resources)
	values := map[string]any{}
	for name, value := range s.resources[at].Values {
		values[name] = value
	}
	for name, value := range set {
		attribute, key, nested := strings.Cut(name, ".")
		if !nested {
			values[name] = value
			continue
		}
		var objects []map[string]any
		if err := json.Unmarshal([]byte(s.resources[at].text(attribute)), &objects); err != nil {
			t.Fatalf("%s.%s: %v", kind, attribute, err)
		}
		for _, object := range objects {
			object[key] = value
		}
		text, err := json.Marshal(objects)
		if err != nil {
			t.Fatal(err)
		}
		values[attribute] = string(text)
	}
	s.resources[at].Values = values
	return s
}

// openIngress finds rules that let in more than a network of their own: addresses of less than 8 bits of
// IPv4 or 32 of IPv6.
func openIngress(s state) []string {
	var problems []string
	check := func(address string, cidrs ...any) {
		for _, cidr := range cidrs {
			text, _ := cidr.(string)
			var bits int
			if _, length, ok := strings.Cut(text, "/"); ok {
				_, _ = fmt.Sscan(length, &bits)
			}
			least := 8
			if strings.Contains(text, ":") {
				least = 32
			}
			if text != "" && bits < least {
				problems = append(problems, fmt.Sprintf("%s lets in %s", address, text))
			}
		}
	}
	list := func(values map[string]any, name string) []any { l, _ := values[name].([]any); return l }
	for _, r := range s.resources {
		switch {
		case r.Type == "aws_vpc_security_group_ingress_rule":
			check(r.Address, r.Values["cidr_ipv4"], r.Values["cidr_ipv6"])
		case r.Type == "aws_security_group_rule" && r.text("type") == "ingress":
			check(r.Address, slices.Concat(list(r.Values, "cidr_blocks"), list(r.Values, "ipv6_cidr_blocks"))...)
		case r.Type == "aws_security_group":
			for _, rule := range list(r.Values, "ingress") {
				if values, ok := rule.(map[string]any); ok {
					check(r.Address, slices.Concat(list(values, "cidr_blocks"), list(values, "ipv6_cidr_blocks"))...)
				}
			}
		}
	}
	return problems
}

// groupDescription is what EC2 allows in the description of a security group or of a rule; see
// AuthorizeSecurityGroupIngress in its API reference. A plan does not show that it refuses others.
var groupDescription = regexp.MustCompile(`^[a-zA-Z0-9. _\-:/()#,@\[\]+=&;{}!$*]{0,255}$`)

func groupDescriptions(s state) (problems []string) {
	for _, r := range s.resources {
		text := r.text("description")
		if strings.Contains(r.Type, "security_group") && r.Mode == "managed" && !groupDescription.MatchString(text) {
			problems = append(problems, fmt.Sprintf("%s is described as %q", r.Address, text))
		}
	}
	return problems
}

// statement is a policy with one statement.
func statement(action, resource string) map[string]any {
	text, _ := json.Marshal(map[string]any{
		"Statement": []any{map[string]any{"Effect": "Allow", "Action": []string{action}, "Resource": []string{resource}}},
	})
	return map[string]any{"policy": string(text)}
}

// ownParent allows "*" only next to a name that is given in full: for what AWS makes up, the ids of tasks and of
// autoscaling groups and the names of log streams, and for the secrets and parameters below a path.
var ownParent = regexp.MustCompile(`^arn:[^:*]+:(ecs:[^:*]+:\d{12}:task/[^/*]+/\*|logs:[^:*]+:\d{12}:log-group:[^:*]+:(log-stream:)?\*|` +
	`autoscaling:[^:*]+:\d{12}:autoScalingGroup:\*:autoScalingGroupName/[^/*]+|` +
	`secretsmanager:[^:*]+:\d{12}:secret:[^*]+/\*|ssm:[^:*]+:\d{12}:parameter/[^*]+/\*)$`)

// wildcards finds "*" in the policies of roles. ecr:GetAuthorizationToken knows no resources: AWS refuses
// anything but "*" there.
func wildcards(s state) []string {
	var problems []string
	for _, r := range s.resources {
		text := r.text("policy")
		if r.Mode != "managed" || !strings.HasPrefix(r.Type, "aws_iam_") || text == "" {
			continue
		}
		var document struct {
			Statement []struct {
				Effect           string
				Action, Resource texts
				NotAction        texts
				NotResource      texts
			}
		}
		if err := json.Unmarshal([]byte(text), &document); err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", r.Address, err))
			continue
		}
		for _, st := range document.Statement {
			if len(st.NotAction)+len(st.NotResource) > 0 {
				problems = append(problems, r.Address+" allows all but some")
			}
			for _, action := range st.Action {
				if strings.ContainsAny(action, "*?") {
					problems = append(problems, fmt.Sprintf("%s allows %s", r.Address, action))
				}
			}
			if slices.Equal(st.Action, texts{"ecr:GetAuthorizationToken"}) {
				continue
			}
			for _, on := range st.Resource {
				if strings.ContainsAny(on, "*?") && !ownParent.MatchString(on) {
					problems = append(problems, fmt.Sprintf("%s allows %v on %s", r.Address, st.Action, on))
				}
			}
		}
	}
	return problems
}

// trust is a policy that lets a principal take a role.
func trust(principal string) map[string]any {
	text := `{"Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": ` + principal + `}]}`
	return map[string]any{"assume_role_policy": text}
}

// strangers finds "*" as a principal in the policies of roles and keys.
func strangers(s state) []string {
	var problems []string
	for _, r := range s.resources {
		for _, attribute := range []string{"assume_role_policy", "policy"} {
			text := r.text(attribute)
			if r.Mode != "managed" || text == "" || text[0] != '{' {
				continue
			}
			var document struct {
				Statement []struct{ Principal json.RawMessage }
			}
			if err := json.Unmarshal([]byte(text), &document); err != nil {
				problems = append(problems, fmt.Sprintf("%s: %v", r.Address, err))
			}
			for _, st := range document.Statement {
				if strings.Contains(string(st.Principal), `"*"`) {
					problems = append(problems, r.Address+" is open to everybody")
				}
			}
		}
	}
	return problems
}

// texts is a string or a list of strings, as policies have both.
type texts []string

func (l *texts) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		*l = make(texts, 1)
		return json.Unmarshal(data, &(*l)[0])
	}
	return json.Unmarshal(data, (*[]string)(l))
}

// plainLogs finds log groups without a key of their own, or that keep logs for ever.
func plainLogs(s state) []string {
	var problems []string
	for _, r := range s.all("aws_cloudwatch_log_group") {
		if r.text("kms_key_id") == "" {
			problems = append(problems, r.Address+" is not encrypted with a key")
		}
		if days, _ := r.Values["retention_in_days"].(float64); days == 0 {
			problems = append(problems, r.Address+" keeps its logs for ever")
		}
	}
	return problems
}
