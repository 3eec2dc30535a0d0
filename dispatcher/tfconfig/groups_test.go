package tfconfig_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/tfconfig"
)

// fleet is an app with endpoint groups, as a server has it.
func fleet(t *testing.T) tfconfig.Content {
	t.Helper()
	var app dispatcher.App
	app.SetDefaults()
	app.Name = "billing"
	declared := dispatcher.EndpointGroup{App: "billing", Name: "9-workers", Description: "pays ${bills}", Path: "/jobs", Strategy: "weighted",
		Auth: &dispatcher.Auth{Bearer: &dispatcher.BearerAuth{Token: dispatcher.Secret{Stored: true}}},
		Endpoints: map[string]dispatcher.StaticEndpoint{
			"a": {URL: "https://a.example.com", Weight: 3, Labels: dispatcher.Labels{"zone": "a"}},
			"b": {URL: "https://b.example.com", Backup: true},
		},
	}
	registering := dispatcher.EndpointGroup{App: "billing", Name: "fleet",
		Probe: dispatcher.Probe{IdlePath: "/free"},
		Registration: &dispatcher.Registration{
			Networks: []string{"10.0.0.0/16"}, Ports: []int{8080}, ExpireAfter: dispatcher.Duration(2 * time.Minute),
		},
	}
	job := dispatcher.Job{App: "billing", Name: "nightly"}
	job.SetDefaults()
	group := &dispatcher.GroupTarget{Name: "9-workers", Path: "/nightly"}
	group.SetDefaults()
	group.Strategy, group.HashKey = "consistent_hash", "{{.Trigger}}"
	job.Target.Group = group
	job, _, err := dispatcher.Apply(nil, job, dispatcher.Prior{}, nil, now)
	if err != nil {
		t.Fatal(err)
	}
	groups := []dispatcher.EndpointGroup{declared.Resolved(), registering.Resolved()}
	return tfconfig.Content{App: app, Jobs: []dispatcher.Job{job}, Groups: groups}
}

func TestGroupsAreWrittenCleanAndTheSame(t *testing.T) {
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

func TestCompareNamesWhatDiffersInGroups(t *testing.T) {
	t.Parallel()
	dir, _ := written(t, fleet(t))
	server := fleet(t)
	workers := &server.Groups[0]
	workers.Strategy = "random"
	workers.Endpoints["a"] = dispatcher.StaticEndpoint{URL: "https://a.example.com", Weight: 1, Labels: dispatcher.Labels{"zone": "z"}}
	workers.Endpoints["c"] = workers.Endpoints["b"]
	delete(workers.Endpoints, "b")
	server.Groups[1].Registration.Ports = []int{8080, 8081}
	server.Groups[1].Probe.Timeout *= 2
	server.Jobs[0].Target.Group.HashKey = ""
	server.Groups = append(server.Groups, dispatcher.EndpointGroup{App: "billing", Name: "old"})
	var got []string
	for _, d := range compare(t, dir, server) {
		got = append(got, string(d.Change)+" "+d.Name)
		for _, a := range d.Attributes {
			got = append(got, a.Path)
		}
	}
	want := []string{
		"changed billing/9-workers", `endpoint["a"].labels["zone"]`, `endpoint["a"].weight`, `endpoint["b"]`, `endpoint["c"]`, "strategy",
		"changed billing/fleet", "probe.timeout", "registration.ports", "only_on_server billing/old",
		"changed billing/nightly", "target.group.hash_key",
	}
	if !slices.Equal(got, want) {
		t.Errorf("differences\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestLintKnowsTheRulesOfGroups(t *testing.T) {
	t.Parallel()
	golden(t, filepath.Join("testdata", "lint_groups", "problems.txt"), lint(t, filepath.Join("testdata", "lint_groups")))
}

// What depends on values that are not known is not judged.
func TestLintOfGroupsLeavesOutWhatIsNotKnown(t *testing.T) {
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
    labels   = [endpoint.key]
    content { url = endpoint.value }
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
