package tfconfig_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/tfconfig"
)

// never is an expression that never fires. Where lint finds it, it knows the value.
const never = `0 0 0 30 2 ?`

// jobModule is a module with one job.
const jobModule = `
variable "name" {}
variable "triggers" {
  type = map(object({
    expression = string
    timezone   = optional(string, "UTC")
  }))
  default = {}
}
resource "carillon_job" "j" {
  app  = "shop"
  name = var.name
  target {
    webhook { url = "https://example.com/" }
  }
  dynamic "trigger" {
    for_each = var.triggers
    content {
      name       = trigger.key
      expression = trigger.value.expression
      timezone   = trigger.value.timezone
    }
  }
}
output "name" { value = carillon_job.j.name }
output "expressions" { value = [for t in var.triggers : t.expression] }
`

// jobOf is a job with one trigger of an expression.
func jobOf(expression string) string {
	return fmt.Sprintf(`
resource "carillon_job" "j" {
  app  = "shop"
  name = "j"
  target {
    webhook { url = "https://example.com/" }
  }
  trigger {
    name       = "t"
    expression = %s
    timezone   = "UTC"
  }
}
`, expression)
}

func TestLintKnowsValues(t *testing.T) {
	t.Parallel()
	file := map[string]string{"e.yaml": "a:\n  e: " + never + "\n", "e.json": `{"e": "` + never + `"}`, "e.txt": never,
		"e.tftpl": "${join(\" \", parts)}"}
	for name, tt := range map[string]struct{ expression, more string }{
		"yamldecode":                      {`yamldecode(file("${path.module}/e.yaml")).a.e`, ""},
		"jsondecode":                      {`jsondecode(file("e.json")).e`, ""},
		"file":                            {`file("${path.root}/e.txt")`, ""},
		"an absolute path":                {`file("${path.cwd}/e.txt")`, ""},
		"fileexists":                      {`fileexists("e.txt") ? "` + never + `" : ""`, ""},
		"fileset":                         {`[for f in fileset(path.module, "*.txt") : file(f)][0]`, ""},
		"templatefile":                    {`templatefile("e.tftpl", { parts = ["0 0 0", "30 2 ?"] })`, ""},
		"try":                             {`try(local.a.missing, "` + never + `")`, "locals {\n a = {}\n}"},
		"can":                             {`can(local.a.missing) ? "" : "` + never + `"`, "locals {\n a = {}\n}"},
		"merge":                           {`merge({ e = "" }, { e = "` + never + `" }).e`, ""},
		"lookup":                          {`lookup({ a = "" }, "e", "` + never + `")`, ""},
		"coalesce":                        {`coalesce(null, "", "` + never + `")`, ""},
		"replace":                         {`replace("0 0 0 31 2 ?", "31", "30")`, ""},
		"replace by a regular expression": {`replace("0 0 0 31 2 ?", "/\\d1/", "30")`, ""},
		"length":                          {`"0 0 0 ${length(" ") + 29} ${length(["a", "b"])} ?"`, ""},
		"startswith":                      {`startswith("ab", "a") && endswith("ab", "b") && strcontains("ab", "ab") ? "` + never + `" : ""`, ""},
		"tomap":                           {`tomap({ a = "` + never + `" })["a"]`, ""},
		"a conversion":                    {`var.v["a"]`, "variable \"v\" {\n type = map(string)\n default = { a = \"" + never + "\" }\n}"},
		"an optional attribute": {`var.v.e`,
			"variable \"v\" {\n type = object({ e = optional(string, \"" + never + "\") })\n default = {}\n}"},
		"a default in place of null": {`var.v`, "variable \"v\" {\n default = \"" + never + "\"\n nullable = false\n}"},
		"a reference to a resource": {`"0 0 0 30 2 ${carillon_calendar.c["a"].name}"`,
			"resource \"carillon_calendar\" \"c\" {\n for_each = { a = \"?\" }\n app = \"shop\"\n name = each.value\n}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := maps.Clone(file)
			files["main.tf"] = jobOf(tt.expression) + tt.more
			if found := lint(t, directory(t, files)); !strings.Contains(found, "main.tf:10:18: carillon_job.j: error: ") ||
				!strings.Contains(found, "(cron_never)") {
				t.Errorf("found\n%swant cron_never", found)
			}
		})
	}
}

func TestLintIsSilentAboutUnknownValues(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ expression, more string }{
		"a missing file":                    {`file("e.txt")`, ""},
		"a data source":                     {`data.aws_ssm_parameter.e.value`, ""},
		"an attribute that the server sets": {`try(carillon_job.j.revision, "` + never + `")`, ""},
		"locals in a circle":                {"local.a", "locals {\n a = local.b\n b = local.a\n}"},
		"a variable that a plan needs":      {`try(var.v, "` + never + `")`, `variable "v" {}`},
		"a function of time":                {`timestamp()`, ""},
		"a module of a registry":            {`module.m.e`, "module \"m\" {\n source = \"example/jobs/carillon\"\n}"},
		"a value of another type":           {"var.v.e", "variable \"v\" {\n type = map(string)\n default = \"\"\n}"},
		"a module that calls itself":        {"module.m.e", "module \"m\" {\n source = \"./\"\n}\noutput \"e\" {\n value = module.m.e\n}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if found := lint(t, directory(t, map[string]string{"main.tf": jobOf(tt.expression) + tt.more})); found != "" {
				t.Errorf("found\n%swant nothing", found)
			}
		})
	}
}

func TestLintFollowsModules(t *testing.T) {
	t.Parallel()
	call := func(arguments string) string {
		return "module \"m\" {\n source = \"./job\"\n" + arguments + "\n}\n"
	}
	const triggers = " triggers = { t = { expression = \"" + never + "\" } }"
	const place = "job/main.tf:20:20: "
	for name, tt := range map[string]struct {
		main string
		more map[string]string
		want string // none if empty
	}{
		"a call":    {main: call(" name = \"a\"\n" + triggers), want: place + "module.m.carillon_job.j: error: "},
		"a default": {main: call(" name = \"a\"")},
		"for_each": {main: call(" for_each = toset([\"a\", \"b\"])\n name = each.key\n" + triggers),
			want: place + `module.m["a"].carillon_job.j: error: `},
		"count":       {main: call(" count = 1\n name = \"a\"\n" + triggers), want: place + "module.m[0].carillon_job.j: error: "},
		"no instance": {main: call(" count = 0\n name = \"a\"\n" + triggers)},
		"unknown for_each": {main: call(" for_each = var.nosuch\n name = each.key\n" + triggers),
			want: place + "module.m[?].carillon_job.j: error: "},
		"one of two by an unknown condition": {main: "module \"a\" {\n source = \"./job\"\n count = var.nosuch ? 1 : 0\n name = \"x\"\n}\n" +
			"module \"b\" {\n source = \"./job\"\n count = var.nosuch ? 0 : 1\n name = \"x\"\n}\n"},
		"two providers": {main: "module \"a\" {\n source = \"./job\"\n providers = { carillon = carillon.a }\n name = \"x\"\n}\n" +
			"module \"b\" {\n source = \"./job\"\n providers = { carillon = carillon.b }\n name = \"x\"\n}\n"},
		"one provider": {main: "module \"a\" {\n source = \"./job\"\n providers = { carillon = carillon.a }\n name = \"j\"\n}\n" +
			strings.Replace(jobOf(`"rate(5m)"`), "  app", "  provider = carillon.a\n  app", 1), want: "(hcl_twice)"},
		"unknown triggers": {main: call(" for_each = var.nosuch\n name = each.key\n triggers = each.value")},
		"a value of a file": {main: "locals {\n jobs = yamldecode(file(\"${path.module}/jobs.yaml\"))\n}\n" +
			call(" for_each = local.jobs\n name = each.key\n triggers = each.value.triggers"),
			more: map[string]string{"jobs.yaml": "a:\n  triggers: {}\nb:\n  triggers:\n    t:\n      expression: " + never + "\n"},
			want: place + `module.m["b"].carillon_job.j: error: `},
		"terraform.tfvars are of the root module only": {main: call(" name = \"a\""), more: map[string]string{
			"job/terraform.tfvars": "triggers = { t = { expression = \"" + never + "\" } }"}},
		"an output": {main: call(" name = \"a\"\n triggers = { t = { expression = \"0 0 0 30 2 ?\" } }") + jobOf("module.m.expressions[0]"),
			want: "main.tf:15:18: carillon_job.j: error: "},
		"outputs of for_each": {main: call(" for_each = { e = \"\" }\n name = \"30 2 ?\"") + jobOf(`"0 0 0 ${module.m["e"].name}"`),
			want: "main.tf:15:18: carillon_job.j: error: "},
		"outputs of count": {main: call(" count = 1\n name = \"30 2 ?\"") + jobOf(`"0 0 0 ${module.m[0].name}"`),
			want: "main.tf:15:18: carillon_job.j: error: "},
		"two modules that need each other's outputs": {main: "module \"a\" {\n source = \"./job\"\n name = \"a\"\n" +
			" triggers = { t = { expression = module.b.name } }\n}\nmodule \"b\" {\n source = \"./job\"\n name = \"" + never +
			"\"\n triggers = { t = { expression = module.a.name } }\n}", want: place + "module.a.carillon_job.j: error: "},
		"three levels": {main: "module \"team\" {\n source = \"./team\"\n}", more: map[string]string{
			"team/main.tf": "module \"m\" {\n source = \"../job\"\n name = \"a\"\n" + triggers + "\n}"},
			want: place + "module.team.module.m.carillon_job.j: error: "},
		"a file next to the module": {main: "module \"team\" {\n source = \"./team\"\n}", more: map[string]string{"team/e.txt": never,
			"team/main.tf": jobOf(`file("${path.module}/e.txt")`)}, want: "team/main.tf:10:18: module.team.carillon_job.j: error: "},
		"a job in both": {main: call(" name = \"j\"") + jobOf(`"rate(5m)"`),
			want: "job/main.tf:12:10: module.m.carillon_job.j: error: carillon_job.j declares \"shop/j\", too (hcl_twice)"},
		"a missing directory": {main: "module \"m\" {\n source = \"./jbo\"\n}",
			want: "main.tf:2:11: module.m: warning: module is not read: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{"main.tf": tt.main, "job/main.tf": jobModule}
			maps.Copy(files, tt.more)
			if found := lint(t, directory(t, files)); !strings.Contains(found, tt.want) || tt.want == "" && found != "" {
				t.Errorf("found\n%swant %q", found, tt.want)
			}
		})
	}
}

// called is an app as a server has it after an apply of testdata/modules.
func called(t *testing.T) tfconfig.Content {
	t.Helper()
	var app access.App
	app.SetDefaults()
	app.Name, app.Defaults = "shop", &dispatcher.JobDefaults{Timezone: "Europe/Berlin"}
	c := tfconfig.Content{App: app}
	for name, triggers := range map[string]map[string]string{
		"clean": {"hourly": "0 0 * * * ?", "weekly": "0 0 3 ? * SUN"}, "load": {}, "nightly": {"a": "@daily"},
		"report-sales": {"daily": "0 30 7 * * ?"}, "report-stock": {"daily": "0 0 8 * * ?"},
		"shard-0": {"often": "rate(5m)"}, "shard-1": {"often": "rate(5m)"}, "purge": {"t": "0 0 4 * * ?"},
	} {
		job := dispatcher.Job{App: "shop", Name: name}
		job.SetDefaults()
		webhook := target.Webhook{}
		webhook.SetDefaults()
		if webhook.URL = "https://example.com/" + name; name == "load" {
			webhook.Timeout = input.Duration(time.Minute)
		}
		job.Target.Webhook = &webhook
		job.Triggers = map[string]dispatcher.Trigger{}
		for key, expression := range triggers {
			var trigger dispatcher.Trigger
			trigger.SetDefaults()
			trigger.Expression, trigger.Timezone = expression, "Europe/Berlin"
			if strings.HasPrefix(name, "shard") {
				trigger.Enabled, trigger.Timezone = false, ""
				job.OnSuccess = &dispatcher.Follow{Jobs: []string{"nightly"}, Payload: dispatcher.FollowOwn}
			}
			job.Triggers[key] = trigger
		}
		job, _, err := dispatcher.Apply(nil, job, dispatcher.Prior{}, nil, now)
		if err != nil {
			t.Fatal(err)
		}
		c.Jobs = append(c.Jobs, job)
	}
	for _, name := range []string{"shard-0-missed", "shard-1-missed"} {
		a := alert.Alert{App: "shop", Name: name}
		a.SetDefaults()
		a.Jobs, a.Missed = []string{strings.TrimSuffix(name, "-missed")}, true
		a.Destination.Webhook = &target.AlertWebhook{}
		a.Destination.Webhook.SetDefaults()
		a.Destination.Webhook.URL = "https://oncall.example.com/"
		c.Alerts = append(c.Alerts, a)
	}
	return c
}

func TestCompareFollowsModules(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("testdata", "modules")
	if found := lint(t, dir); found != "" {
		t.Errorf("lint found\n%swant nothing", found)
	}
	if found := compare(t, dir, called(t)); len(found) > 0 {
		t.Errorf("differences %+v, want none", found)
	}
	server := called(t)
	for _, job := range server.Jobs {
		for name, trigger := range job.Triggers {
			trigger.Expression = "0 0 9 * * ?"
			job.Triggers[name] = trigger
		}
	}
	var got []string
	for _, d := range compare(t, dir, server) {
		for _, a := range d.Attributes {
			got = append(got, fmt.Sprint(d.Resource, " ", d.Name, " ", a.Path, ": ", a.Files))
		}
	}
	want := []string{
		`carillon_job.yaml["clean"] shop/clean trigger["hourly"].expression: 0 0 * * * ?`,
		`carillon_job.yaml["clean"] shop/clean trigger["weekly"].expression: 0 0 3 ? * SUN`,
		`module.nightly.carillon_job.j shop/nightly trigger["a"].expression: @daily`,
		`module.team.module.purge.carillon_job.j shop/purge trigger["t"].expression: 0 0 4 * * ?`,
		`module.reports["sales"].carillon_job.j shop/report-sales trigger["daily"].expression: 0 30 7 * * ?`,
		`module.reports["stock"].carillon_job.j shop/report-stock trigger["daily"].expression: 0 0 8 * * ?`,
		`module.shards[0].carillon_job.j shop/shard-0 trigger["often"].expression: rate(5m)`,
		`module.shards[1].carillon_job.j shop/shard-1 trigger["often"].expression: rate(5m)`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("differences\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
