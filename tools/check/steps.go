package main

import (
	pathpkg "path"
	"slices"
	"strings"
)

// step is one part of "make check".
type step struct {
	name    string
	proves  string   // completes "the step shows that"
	paths   []string // files, or folders if they end in "/", with changes that concern the step
	minutes int      // on two quiet processors, for the budget of the rota
	always  bool     // .ci/run takes it every time
	nightly bool     // the rota never takes it, because it needs longer than a run may
	needs   []string // commands that find or install what the step needs
	env     []string
	prints  map[string]string // environment variables, and the commands that print their values
	command []string
	tests   []testRun // instead of a command
}

// testRun describes the tests that a step runs with "go test".
type testRun struct {
	module   string   // folder of a separate module; "" for the root
	marked   bool     // the tests that name the step by need.Step
	packages []string // or those of these packages
	flags    []string
}

// touchedBy reports whether a change of a file concerns the step.
func (s step) touchedBy(file string) bool {
	return slices.ContainsFunc(s.paths, func(path string) bool {
		direct, _ := pathpkg.Match(path, file) // a test reads all patterns
		return direct || path == everything || strings.HasSuffix(path, "/") && strings.HasPrefix(file, path)
	})
}

// everything is the path for steps that every change concerns.
const everything = ""

// domain returns the paths of the packages of the domain, which does no I/O.
func domain() []string {
	return []string{"dispatcher/*.go", "dispatcher/input/", "dispatcher/run/", "dispatcher/target/", "dispatcher/alert/",
		"dispatcher/access/", "dispatcher/repeat/", "dispatcher/view/"}
}

// Folders that concern several steps.
func firing() []string {
	return append(domain(), "dispatcher/engine/", "dispatcher/store/", "dispatcher/invoke/", "dispatcher/schedule/", "dispatcher/failpoint/",
		"dispatcher/backoff/", "dispatcher/cache/", "dispatcher/routing/", "dispatcher/dns/", "dispatcher/series/", "migrations/")
}

func nodes() []string {
	return append(domain(), "dispatcher/cmd/", "dispatcher/platform/", "dispatcher/tracing/", "dispatcher/secretmanager/",
		"dispatcher/limit/", "dispatcher/api/", "dispatcher/client/", "test/program/", "test/postgres/", "test/freeport/",
		"test/servers/", "test/oidctest/", "test/clientcert/", "test/ec2/")
}

// withTerraform finds a Terraform client, and withClients OpenTofu next to it; either may be built.
func withTerraform() map[string]string {
	return map[string]string{"CARILLON_TERRAFORM": "tools/terraform.sh"}
}

func withClients() map[string]string {
	return map[string]string{"CARILLON_TERRAFORM": "tools/terraform.sh", "CARILLON_TOFU": "tools/opentofu.sh"}
}

// steps is the table, in the order that finds a problem soonest.
func steps() []step {
	return slices.Concat(alwaysSteps(), testSteps(), faultSteps(), raceSteps())
}

// alwaysSteps returns the steps of every run of .ci/run.
func alwaysSteps() []step {
	return []step{
		{
			name: "lint", proves: "imports, words, sizes, workflows and scripts are as CONTRIBUTING says",
			paths: []string{everything}, always: true, needs: []string{"tools/need.sh shellcheck shellcheck"},
			command: []string{"make", "lint"},
		},
		{
			name: "test", proves: "the parts, the stores, API, console and provider keep their promises",
			paths: []string{everything}, always: true, needs: []string{"tools/postgres.sh"}, prints: withTerraform(),
			tests: []testRun{{packages: []string{"./..."}, flags: []string{"-short", "-p", "3", "-parallel", "6", "-timeout", "30m"}}},
		},
	}
}

// testSteps run tests that are too long for "make test".
func testSteps() []step {
	flags := []string{"-p", "2", "-parallel", "4", "-timeout", "120m"}
	marked := []testRun{{marked: true, flags: flags}}
	return []step{
		{
			name: "vulnerabilities", proves: "no dependency has a known vulnerability that the programs reach",
			paths: []string{"go.mod", "go.sum", "tools/vulnerabilities.sh"}, minutes: 1, command: []string{"make", "vulnerabilities"},
		},
		{
			name: "manifests", proves: "the manifests of Kubernetes fit its types and the program",
			paths: []string{"examples/kubernetes/", "tools/k8s/", "dispatcher/cmd/"}, minutes: 1,
			tests: []testRun{{module: "tools/k8s", packages: []string{"./..."}}},
		},
		{
			name: "processes", proves: "the programs do for their users what the pages say, from the first command to the last",
			paths: slices.Concat(nodes(), []string{"docs/", "examples/", "dispatcher/console/", "dispatcher/tfconfig/",
				"lambda/", "worker/", "test/xxljob/"}),
			needs: []string{"tools/postgres.sh", "tools/need.sh curl curl"}, prints: withTerraform(), minutes: 5, tests: marked,
		},
		{
			name: "provider", proves: "terraform plans, applies and refuses each resource as its page says",
			paths: append(domain(), "provider/", "dispatcher/api/", "dispatcher/client/", "dispatcher/tfconfig/", "dispatcher/store/",
				"examples/", "docs/provider/"),
			prints: withTerraform(), minutes: 2, tests: marked,
		},
		{
			name: "terraform", proves: "modules and stories work with Terraform and OpenTofu",
			paths: []string{"terraform/", "provider/", "examples/", "tools/opentofu/", "tools/opentofu.sh", "tools/terraform.sh"},
			needs: []string{"tools/need.sh shellcheck shellcheck", "tools/need.sh cloud-init cloud-init",
				"tools/need.sh systemd-analyze systemd", "tools/need.sh jq jq", "tools/need.sh bwrap bubblewrap"},
			prints: withClients(), minutes: 4, tests: marked,
		},
		{
			name: "databases", proves: "the whole conformance suite holds, behind a pooler and without what a database may lack, too",
			paths: append(domain(), "dispatcher/store/", "migrations/", "test/postgres/", "dispatcher/cmd/"),
			needs: []string{"tools/postgres.sh", "tools/need.sh pgbouncer pgbouncer"}, minutes: 5,
			tests: append(marked, testRun{packages: []string{"./dispatcher/store"}, flags: append(flags, "-run", "^Test(SQLite|PostgreSQL)$")}),
		},
		{
			name: "postgresql18", proves: "the conformance suite and the plans of the hot statements hold on PostgreSQL 18",
			paths:  []string{"dispatcher/store/", "migrations/", "test/postgres/", "tools/postgres18.sh"},
			prints: map[string]string{"CARILLON_POSTGRES": "tools/postgres18.sh"}, minutes: 3,
			tests: []testRun{{packages: []string{"./dispatcher/store"}, flags: append(flags, "-run",
				"^(TestPostgreSQL|TestHotStatementsLeave.*|TestHotStatementsKeep.*|TestLiveRunsAreFound.*)$")}},
		},
		{
			name: "capabilities", proves: "the whole conformance suite holds without each capability that a database may lack",
			paths: []string{"dispatcher/store/"}, nightly: true, needs: []string{"tools/postgres.sh"},
			env:   []string{"CARILLON_EACH_CAPABILITY=1"},
			tests: []testRun{{packages: []string{"./dispatcher/store"}, flags: append(flags, "-run", "^TestPostgreSQLWithoutEachCapability$")}},
		},
		{
			name: "packages", proves: "images, archives and packages hold what they must, and work on bare machines",
			paths: []string{"tools/release/", "test/release/", "Dockerfile", "docs/how-to/install-on-one-machine.md", "dispatcher/cmd/",
				"dispatcher/platform/", "go.mod"},
			needs: []string{"tools/need.sh bwrap bubblewrap", "tools/need.sh gpg gnupg", "tools/need.sh lintian lintian", "tools/need.sh rpm rpm",
				"tools/need.sh rpmlint rpmlint", "tools/need.sh mmdebstrap mmdebstrap", "tools/need.sh systemd-analyze systemd",
				"tools/need.sh systemd-nspawn systemd-container"},
			prints: withClients(), minutes: 3,
			tests: []testRun{{marked: true, flags: flags}, {module: "tools/release", packages: []string{"./..."}}},
		},
		{
			name: "browser", proves: "the console works in a browser, by every link and form, for people with other rights",
			paths: []string{"dispatcher/console/", "dispatcher/api/", "dispatcher/client/", "tools/browser/", "tools/axe.sh"},
			needs: []string{"tools/need.sh npm npm", "tools/need.sh chromium-headless-shell chromium-headless-shell"}, minutes: 6,
			tests: []testRun{{module: "tools/browser", packages: []string{"./..."}, flags: []string{"-timeout", "60m"}}},
		},
		{
			name: "scale", proves: "what a page, a poll and a round cost does not grow with jobs, runs and apps",
			paths: slices.Concat(firing(), []string{"dispatcher/api/", "dispatcher/console/", "test/crowd/", "test/bench/"}),
			needs: []string{"tools/postgres.sh"}, prints: withTerraform(),
			minutes: 4, tests: marked,
		},
	}
}

// faultSteps break what a machine, a network or a database can break.
func faultSteps() []step {
	flags := []string{"-p", "1", "-parallel", "6", "-timeout", "60m"} // most of them wait
	marked := []testRun{{marked: true, flags: flags}}
	return []step{
		{
			name: "kills", proves: "nodes that are killed, frozen and starved, and databases that fall away, lose and double no fire",
			paths: slices.Concat(firing(), nodes()), needs: []string{"tools/postgres.sh"}, prints: withTerraform(),
			minutes: 3, tests: marked,
		},
		{
			name: "fleets", proves: "nodes, workers and executors share fires, and those that die lose none",
			paths: slices.Concat(firing(), nodes(), []string{"worker/", "test/xxljob/"}), needs: []string{"tools/postgres.sh"},
			minutes: 2, tests: marked,
		},
		{
			name: "simulate", proves: "years of faults in virtual time leave no fire unexplained",
			paths: []string{"dispatcher/engine/", "dispatcher/store/", "dispatcher/schedule/", "dispatcher/verify/"}, minutes: 2,
			command: []string{"make", "simulate", "FIRES=20000"},
		},
		{
			name: "chaos", proves: "three nodes under all faults at once keep the guarantees",
			paths: slices.Concat(firing(), nodes(), []string{"test/chaos/", "tools/networks.sh"}), needs: []string{"tools/postgres.sh"},
			minutes: 4, command: []string{"make", "chaos", "SECONDS=75"},
		},
		{
			name: "oncall", proves: "no alert, rule or page rings in minutes of a healthy fleet that uses every policy",
			paths: slices.Concat(firing(), nodes(), []string{"examples/prometheus/", "tools/promtool.sh"}),
			needs: []string{"tools/postgres.sh"}, minutes: 4, tests: marked,
		},
		{
			name: "oncall-faults", proves: "each of forty faults, alone on a healthy fleet, rings what names it and nothing else",
			paths: []string{"examples/prometheus/"}, nightly: true, needs: []string{"tools/postgres.sh"}, tests: marked,
		},
		{
			name: "chaos-mutants", proves: "chaos notices each guarantee that is broken on purpose",
			paths: []string{"test/chaos/"}, nightly: true, needs: []string{"tools/postgres.sh"}, command: []string{"make", "chaos-mutants"},
		},
		{
			name: "rollout", proves: "new tasks replace old ones under load without a fire lost, late or double",
			paths: slices.Concat(firing(), nodes(), []string{"test/rollout/"}), needs: []string{"tools/postgres.sh"}, minutes: 2,
			command: []string{"make", "rollout-short"},
		},
		{
			name: "soak", proves: "age, size and hostile neighbours do not change what a statement costs",
			paths: slices.Concat(firing(), []string{"test/soak/", "test/tenants/"}), needs: []string{"tools/postgres.sh"}, minutes: 3,
			command: []string{"make", "soak-short"},
		},
	}
}

// raceSteps run the packages with concurrent goroutines under the race detector. SQLite is excluded: it is C
// translated to Go and starts no goroutines, so its tests would only take twice as long. One PostgreSQL is enough for
// the conformance suite: the others use a pooler or lack a capability, and SQLite runs the same code with one writer.
func raceSteps() []step {
	race := func(name string, minutes int, flags []string, folders ...string) step {
		s := step{
			name: name, proves: "the race detector sees nothing in " + strings.Join(folders, " "), paths: folders, minutes: minutes,
			needs: []string{"tools/need.sh gcc gcc libc6-dev", "tools/postgres.sh"}, env: []string{"CGO_ENABLED=1"},
		}
		run := testRun{flags: append([]string{"-race", "-gcflags=modernc.org/...=-race=false", "-p", "2", "-parallel", "3",
			"-timeout", "60m"}, flags...)}
		for _, folder := range folders {
			run.packages = append(run.packages, "./"+folder+"...")
		}
		s.tests = []testRun{run}
		return s
	}
	// A full simulation would take an hour under the detector.
	engine := race("race-engine", 4, []string{"-skip", "^TestSimulation$"}, "dispatcher/engine/")
	engine.tests = append(engine.tests, testRun{packages: []string{"./dispatcher/engine/simulate"},
		flags: []string{"-race", "-gcflags=modernc.org/...=-race=false", "-short", "-run", "^TestSimulation$"}})
	return []step{
		engine,
		// Memory bounds do not hold under the detector, which makes pools drop some of their items at random.
		race("race-api", 4, []string{"-skip", "^Test(DecodingAllocatesInProportionToTheBody|NoRouteTakesMuchMemoryForABody)$"},
			"dispatcher/api/", "dispatcher/limit/", "dispatcher/client/"),
		race("race-console", 3, nil, "dispatcher/console/"),
		race("race-invoke", 3, nil, "dispatcher/invoke/", "dispatcher/dns/", "dispatcher/secretmanager/", "dispatcher/tracing/",
			"dispatcher/platform/"),
		race("race-store", 8, []string{"-skip", "^Test(SQLite|PooledPostgreSQL|PostgreSQLWithout.*|PagesOn.*)$"}, "dispatcher/store/"),
	}
}
