package tfconfig_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/tfconfig"
)

// fleet is an app with endpoint groups, as a server has it.
func fleet(t *testing.T) tfconfig.Content {
	t.Helper()
	var app access.App
	app.SetDefaults()
	app.Name = "billing"
	declared := target.EndpointGroup{App: "billing", Name: "9-workers",
		EndpointGroupSpec: target.EndpointGroupSpec{
			Description: "pays ${bills}", Path: "/jobs", Strategy: "weighted",
			DNS: map[string]target.DNSMembers{
				"pods":   {Hostname: "pods.internal", Port: 8080},
				"others": {Hostname: "_http._tcp.internal", Type: "SRV", Labels: input.Labels{"zone": "b"}},
			},
			HealthCheck: &target.HealthCheck{Interval: input.Duration(time.Minute)},
			Auth:        &target.Auth{Bearer: &target.BearerAuth{Token: target.Secret{Stored: true}}},
			Endpoints: map[string]target.StaticEndpoint{
				"a": {URL: "https://a.example.com", Weight: 3, Labels: input.Labels{"zone": "a"}},
				"b": {URL: "https://b.example.com", Backup: true},
			},
		},
	}
	registering := target.EndpointGroup{App: "billing", Name: "fleet",
		EndpointGroupSpec: target.EndpointGroupSpec{EjectAfter: target.DefaultEjectAfter,
			Probe: target.Probe{IdlePath: "/free"},
			Auth: &target.Auth{OAuth2: &target.OAuth2Auth{TokenURL: "https://login.example.com/token", ClientID: "billing",
				ClientAuth: target.ClientAuthPrivateKeyJWT, PrivateKey: &target.Secret{Reference: "file:billing/key.pem"},
				KeyID: "1", Algorithm: target.AlgorithmES256, Scopes: []string{"jobs", "fleet"}}},
			Registration: &target.Registration{
				Networks: []string{"10.0.0.0/16"}, Ports: []int{8080}, ExpireAfter: input.Duration(2 * time.Minute),
			}},
	}
	job := dispatcher.Job{App: "billing", Name: "nightly"}
	job.SetDefaults()
	group := &target.GroupTarget{Name: "9-workers", Path: "/nightly"}
	group.SetDefaults()
	group.Strategy, group.HashKey, group.EndpointConcurrency = "consistent_hash", "{{.Trigger}}", run.ConcurrencyQueue
	job.Target.Group = group
	job, _, err := dispatcher.Apply(nil, job, dispatcher.Prior{}, nil, now)
	if err != nil {
		t.Fatal(err)
	}
	executors := target.EndpointGroup{App: "billing", Name: "xxl", EndpointGroupSpec: target.EndpointGroupSpec{Kind: target.GroupXXLJob,
		XXLJobSettings: target.XXLJobSettings{AppName: "billing-executor", AccessToken: &target.Secret{Stored: true}}}}
	run := dispatcher.Job{App: "billing", Name: "of-xxl"}
	run.SetDefaults()
	run.Target.Group = &target.GroupTarget{Name: "xxl", XXLJob: &target.XXLJobRun{Handler: "demoJobHandler", Param: "${monthly}",
		ExecutorTimeout: input.Duration(time.Minute)}}
	run.Target.Group.SetDefaults()
	if run, _, err = dispatcher.Apply(nil, run, dispatcher.Prior{}, nil, now); err != nil {
		t.Fatal(err)
	}
	groups := []target.EndpointGroup{declared.Resolved(), registering.Resolved(), executors.Resolved()}
	return tfconfig.Content{App: app, Jobs: []dispatcher.Job{job, run}, Groups: groups}
}

func TestWrittenGroupsAreCleanAndEqual(t *testing.T) {
	t.Parallel()
	c := fleet(t)
	dir, text := written(t, c)
	golden(t, filepath.Join("testdata", "groups", "billing.tf"), text)
	if found := lint(t, dir); found != "" {
		t.Errorf("lint:\n%s", found)
	}
	if found := compare(t, dir, c); len(found) > 0 {
		t.Errorf("differences %+v, want none", found)
	}
}

func TestCompareNamesDifferencesInGroups(t *testing.T) {
	t.Parallel()
	dir, _ := written(t, fleet(t))
	server := fleet(t)
	workers := &server.Groups[0]
	workers.Strategy = "random"
	workers.Endpoints["a"] = target.StaticEndpoint{URL: "https://a.example.com", Weight: 1, Labels: input.Labels{"zone": "z"}}
	workers.Endpoints["c"] = workers.Endpoints["b"]
	delete(workers.Endpoints, "b")
	workers.DNS["pods"] = target.DNSMembers{Hostname: "pods.internal", Port: 8081}.Resolved()
	workers.DNS["others"] = target.DNSMembers{Hostname: "_https._tcp.internal", Type: "SRV", Labels: input.Labels{"zone": "b"}}.Resolved()
	workers.HealthCheck.UnhealthyThreshold, workers.EjectAfter = 4, 7
	server.Groups[1].Registration.Ports = []int{8080, 8081}
	server.Groups[1].Probe.Timeout *= 2
	server.Jobs[0].Target.Group.HashKey, server.Jobs[0].Target.Group.EndpointConcurrency = "", run.ConcurrencyForbid
	server.Groups = append(server.Groups, target.EndpointGroup{App: "billing", Name: "old"})
	var got []string
	for _, d := range compare(t, dir, server) {
		got = append(got, string(d.Change)+" "+d.Name)
		for _, a := range d.Attributes {
			got = append(got, a.Path)
		}
	}
	want := []string{
		"changed billing/9-workers", `dns["others"].hostname`, `dns["pods"].port`, "eject_after",
		`endpoint["a"].labels["zone"]`, `endpoint["a"].weight`, `endpoint["b"]`, `endpoint["c"]`,
		"health_check.unhealthy_threshold", "strategy",
		"changed billing/fleet", "probe.timeout", "registration.ports", "only_on_server billing/old",
		"changed billing/nightly", "target.group.endpoint_concurrency", "target.group.hash_key",
	}
	if !slices.Equal(got, want) {
		t.Errorf("differences\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestLintKnowsTheRulesOfGroups(t *testing.T) {
	t.Parallel()
	golden(t, filepath.Join("testdata", "lint_groups", "problems.txt"), lint(t, filepath.Join("testdata", "lint_groups")))
}

// Values that depend on unknown ones are not judged.
func TestLintOfGroupsIgnoresUnknownValues(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := `
variable "v" {}
resource "carillon_endpoint_group" "g" {
  app      = "billing"
  name     = "workers"
  strategy = var.v
  dynamic "endpoint" {
    for_each = var.v
    content {
      name = endpoint.key
      url  = endpoint.value
    }
  }
  eject_after = var.v
  dynamic "dns" {
    for_each = var.v
    content {
      name     = dns.key
      hostname = dns.value
    }
  }
  dns {
    name     = "known"
    hostname = var.v
    type     = var.v
  }
  health_check {
    interval          = var.v
    healthy_threshold = var.v
  }
  registration {
    networks     = var.v
    ports        = [8080]
    heartbeat    = var.v
    expire_after = "10s"
  }
  auth {
    bearer {
      token { value = var.v }
    }
  }
}
`
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if found := lint(t, dir); found != "" {
		t.Errorf("found\n%swant nothing", found)
	}
}

// The requirements of client_auth are known only if it is known.
func TestLintLeavesOutCredentialsOfAnUnknownKind(t *testing.T) {
	t.Parallel()
	for of, want := range map[string]string{
		`client_auth = var.v`:                                       "",
		`client_auth = "post"`:                                      "client_secret",
		`client_auth = "private_key_jwt"`:                           "private_key",
		`client_secret { reference = var.v }`:                       "",
		`private_key { reference = "env:SECRET_BILLING_KEY" }`:      "private_key, key_id and algorithm are for client_auth private_key_jwt",
		"client_secret { value = \"a\" }\n scopes = []":             "scopes are an empty list",
		"client_secret { value = \"a\" }\n scopes = [\"a\", var.v]": "",
	} {
		dir := t.TempDir()
		text := fmt.Sprintf(`
variable "v" {}
resource "carillon_endpoint_group" "g" {
  app      = "billing"
  name     = "workers"
  auth {
    oauth2 {
      token_url = "https://login.example.com/token"
      client_id = "billing"
      %s
    }
  }
}
`, of)
		if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if found := lint(t, dir); !strings.Contains(found, want) || want == "" && found != "" {
			t.Errorf("%s: found %q, want %q", of, found, want)
		}
	}
}
