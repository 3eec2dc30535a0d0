# Everything that people and machines run here. "make" alone lists the targets.

VERSION ?= $(or $(patsubst v%,%,$(shell git describe --tags --match 'v*' --dirty 2>/dev/null)),0.0.0-dev)

GOLANGCI_VERSION   := v2.15.0
GOTESTSUM_VERSION  := v1.13.0
ACTIONLINT_VERSION := v1.7.12
GOVULNCHECK_VERSION := v1.9.0

# One directory per version: a new version is a new path, so no old tool is ever run.
CACHE      := $(CURDIR)/.cache
GOLANGCI   := $(CACHE)/golangci-lint-$(GOLANGCI_VERSION)/golangci-lint
GOTESTSUM  := $(CACHE)/gotestsum-$(GOTESTSUM_VERSION)/gotestsum
ACTIONLINT := $(CACHE)/actionlint-$(ACTIONLINT_VERSION)/actionlint
GOVULNCHECK := $(CACHE)/govulncheck-$(GOVULNCHECK_VERSION)/govulncheck

# Only the race detector needs cgo. It is off for all other targets, so that building, testing and linting share
# one build cache.
export CGO_ENABLED := 0

# The settings of a node that is installed on this machine are not those of the tests.
export CARILLON_ENV_FILE :=

# The version is stamped, not read from git by the compiler: that would fail in a tarball, or in a checkout of
# another user.
GOBUILD := go build -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)'

BENCH     ?= .
BENCHTIME ?= 3s
BENCHPKGS ?= ./dispatcher/store/... ./dispatcher/schedule/...

.DEFAULT_GOAL := help

## help: list the targets
.PHONY: help
help:
	@awk -F ': ' '/^## / { sub(/^## /, ""); printf "  %-17s %s\n", $$1, $$2 }' Makefile

## dev: build, start everything on this machine and watch jobs of examples/quickstart fire
.PHONY: dev
dev: bin/carillon
	@exec bin/carillon dev --provider bin/terraform-provider-carillon --prepare '$(PREPARE)' $(ARGS)

# What "make dev" builds while the node already runs.
PREPARE = $(MAKE) --no-print-directory bin/terraform-provider-carillon >&2 && tools/terraform.sh

## build: bin/carillon and bin/terraform-provider-carillon
.PHONY: build
build:
	@echo "building bin/carillon and bin/terraform-provider-carillon $(VERSION)"
	@$(GOBUILD) -o bin/ ./dispatcher/cmd/carillon ./provider/cmd/terraform-provider-carillon

bin/carillon: FORCE
	@echo "building $@ $(VERSION)"
	@$(GOBUILD) -o $@ ./dispatcher/cmd/carillon

bin/terraform-provider-carillon: FORCE
	@echo "building $@ $(VERSION)"
	@$(GOBUILD) -o $@ ./provider/cmd/terraform-provider-carillon

bin/carillon-bench: FORCE
	@echo "building $@ $(VERSION)"
	@$(GOBUILD) -o $@ ./test/bench

## lambda-sample: bin/lambda/bootstrap, the sample function for AWS Lambda (provided.al2023, arm64)
.PHONY: lambda-sample
lambda-sample:
	GOOS=linux GOARCH=arm64 go build -trimpath -buildvcs=false -tags lambda.norpc -ldflags '-s -w' -o bin/lambda/bootstrap ./lambda/sample

# The program that runs steps; see tools/check/doc.go.
CHECK = GOTESTSUM=$(GOTESTSUM) go run ./tools/check

## test: what every change needs, in minutes; no kills, fleets, browsers or packages
.PHONY: test
test: $(GOTESTSUM)
	@$(CHECK) run test

## check: everything there is, in the order that finds a fault soonest; STEPS='kills fleets' picks
STEPS ?= all
.PHONY: check
check: $(GOTESTSUM)
	@$(CHECK) run $(STEPS)

## check-rota: what .ci/run takes of it for this commit; BASE=COMMIT is what the change is compared with
.PHONY: check-rota
check-rota: $(GOTESTSUM)
	@$(CHECK) run -base '$(BASE)' rota

## check-report: the steps that have been run on this machine, as a table
.PHONY: check-report
check-report:
	@$(CHECK) report

# By default it leaves out what "make test" does.
N     ?= 20
PKGS  ?= ./...
RUN   ?=
SHORT ?= true
## stress: tests over and over next to processes that spin, four for each processor; N=20 PKGS=./dispatcher/engine RUN=TestClaim SHORT=false
.PHONY: stress
stress:
	@tools/postgres.sh
	@export CARILLON_TERRAFORM && CARILLON_TERRAFORM=$$(tools/terraform.sh) && \
		$(CHECK) stress -n $(N) -run '$(RUN)' -short=$(SHORT) $(PKGS)

# Without kills, and without the faults that leave it to kills to start a node again: a hundred dead nodes would fill a picture.
PICTURED = freeze,partition,restart,suspend,responses,flap,clock,slow
## screenshots: take the pictures of the console in docs/images, after a short chaos run
.PHONY: screenshots
screenshots:
	@tools/need.sh chromium-headless-shell chromium-headless-shell
	@tools/postgres.sh
	@tools/networks.sh
	@go run ./test/chaos -seconds $(SECONDS) -kills none -faults $(PICTURED) -bounded 4 \
		-look 'go -C tools/browser test -count=1 -tags screenshots -run Screenshots .'

# The linter of a module of its own, which does not look for its settings further up.
LINTMODULE = $(GOLANGCI) run --allow-parallel-runners --config ../../.golangci.yml ./...
## lint: golangci-lint with the import rules, go vet, go.mod, workflows, scripts, words and sizes
.PHONY: lint
lint: $(GOLANGCI) $(ACTIONLINT)
	go vet ./...
	go vet -tags chaos ./dispatcher/... ./test/...
	GOOS=darwin go build ./dispatcher/cmd/carillon ./provider/...
	$(GOLANGCI) run --allow-parallel-runners ./...
	$(GOLANGCI) run --allow-parallel-runners --build-tags chaos ./dispatcher/failpoint/...
	go mod tidy -diff
	cd tools/browser && go vet ./... && go vet -tags screenshots ./... && go mod tidy -diff && $(LINTMODULE)
	cd tools/k8s && go vet ./... && go mod tidy -diff && $(LINTMODULE)
	cd tools/release && go vet ./... && go mod tidy -diff && $(LINTMODULE)
	$(ACTIONLINT) .github/workflows/*.yml
	@if command -v shellcheck >/dev/null; then shellcheck -S warning tools/*.sh .ci/run; fi
	tools/lint.sh
	go run ./tools/rooms

## vulnerabilities: look up known vulnerabilities in what the programs call; without the list of vuln.go.dev it says so and passes
.PHONY: vulnerabilities
vulnerabilities: $(GOVULNCHECK)
	@go mod verify
	@tools/vulnerabilities.sh $(GOVULNCHECK) ./...

## fmt: format the Go code as lint wants it
.PHONY: fmt
fmt: $(GOLANGCI)
	$(GOLANGCI) fmt

## zones: build the time zone data of the host into the program, if they are newer; RELEASED=2026-10-27, FROM=/usr/share/zoneinfo
.PHONY: zones
zones:
	go run ./tools/zones -from "$(or $(FROM),/usr/share/zoneinfo)" -released "$(RELEASED)"

## bench: carillon-bench in a PostgreSQL of its own, then plans of 1,000 jobs, some 15 minutes; ARGS='fire --seconds 60'
.PHONY: bench
bench: bin/carillon-bench bin/terraform-provider-carillon
	@tools/bench.sh bin/carillon-bench $(ARGS)
	$(if $(ARGS),,@CARILLON_TERRAFORM=$$(tools/terraform.sh) bin/carillon-bench terraform)

## size: what one node carries in the processor and memory of a small task; as root, some 20 minutes
.PHONY: size
size: bin/carillon bin/carillon-bench
	@tools/bench.sh bin/carillon-bench size --node $(CURDIR)/bin/carillon $(ARGS)

## bench-go: Go's benchmarks of schedules and calendars; BENCH=regexp picks, BENCHTIME=10s steadies
.PHONY: bench-go
bench-go:
	@tools/postgres.sh
	go test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -timeout 60m $(BENCHPKGS)

## chaos: kill, freeze, cut off and starve three nodes, spoil rows, move an app and restore old dumps, then check all; SECONDS=60, and half of it for dumps
SECONDS ?= 60
.PHONY: chaos
chaos:
	@tools/postgres.sh
	@tools/networks.sh
	@go run ./test/chaos -seconds $(SECONDS) $(ARGS)

## oncall: watch a healthy fleet that uses every policy and is to ring nothing; MINUTES=60, then each of forty faults alone
MINUTES ?= 60
.PHONY: oncall
oncall:
	@tools/postgres.sh
	@MINUTES=$(MINUTES) go test -count=1 -v -timeout 24h -run '^Test(HealthyFleetIsQuiet|EachFaultRingsAlone)$$' ./dispatcher/cmd/carillon

## chaos-mutants: break the product's guarantees one by one, and require that chaos notices each
.PHONY: chaos-mutants
chaos-mutants:
	@tools/postgres.sh
	@tools/networks.sh
	@go run ./test/chaos -mutants $(ARGS)

## rollout: deploy new tasks over old ones under load, as ECS does, some 25 minutes; ROLLOUTS=20, ARGS='-from v1.0.0'
ROLLOUTS ?= 20
.PHONY: rollout
rollout:
	@tools/postgres.sh
	@go run ./test/rollout -rollouts $(ROLLOUTS) $(ARGS)

## rollout-short: two rollouts with a twentieth of all times, under 90 s
.PHONY: rollout-short
rollout-short:
	@tools/postgres.sh
	@go run ./test/rollout -short $(ARGS)

## soak: a million triggers, a year of history and bad neighbours against a young database, some 20 minutes, then soak-tenants; ARGS='-turns 4'
.PHONY: soak
soak:
	@tools/postgres.sh
	@go run ./test/soak $(ARGS)
	@$(MAKE) soak-tenants ARGS=

## soak-tenants: an app's punctuality and secrets next to a hostile app on the same nodes, 12 minutes; ARGS='-seed 7'
.PHONY: soak-tenants
soak-tenants:
	@tools/postgres.sh
	@go run ./test/tenants $(ARGS)

## soak-short: both with 20,000 triggers, 100,000 runs and 30 s of hostility, under two minutes; it judges counts, not speed
.PHONY: soak-short
soak-short:
	@tools/postgres.sh
	@go run ./test/soak -short $(ARGS)
	@go run ./test/tenants -short

## simulate: ten node-years of faults in virtual time, and 100,000 fires over a failing store; SEED=n replays
SEED       ?= 1
NODE_YEARS ?= 10
FIRES      ?= 100000
.PHONY: simulate
simulate:
	@go test -count=1 -timeout 60m -v ./dispatcher/engine/simulate -seed $(SEED) -node-years $(NODE_YEARS) -fires $(FIRES)

## broken-servers: call each kind of broken server 1,000 times and report the cost; CALLS=n
CALLS ?= 1000
.PHONY: broken-servers
broken-servers:
	@CARILLON_BROKEN_SERVERS=$(CALLS) go test -count=1 -timeout 10m -v -run '^TestBrokenServers$$' ./dispatcher/invoke

## docs: write openapi.json from the code, the provider's pages from its schema and examples, and the hot statements into docs and testdata; make test checks them
.PHONY: docs
docs:
	go test -count=1 -run 'Pages' ./provider -update
	go test -count=1 -run 'PageShows|HotStatements' ./dispatcher/store -update
	go test -count=1 -run OpenAPIIsMade ./dispatcher/api -update

# PLATFORMS=linux/amd64 builds for these only.
RELEASE = go -C tools/release run .
BUILDFOR = -version '$(VERSION)' $(if $(PLATFORMS),-platforms $(PLATFORMS))

## rds-roots: renew the embedded root certificates of Amazon RDS; review the difference
.PHONY: rds-roots
rds-roots:
	tools/rds_roots.sh $(BUNDLES)

## image: the container image for amd64 and arm64 as an OCI layout, in dist/image; needs no Docker
.PHONY: image
image:
	@$(RELEASE) image $(BUILDFOR)

## packages: .deb and .rpm for amd64 and arm64, in dist/
.PHONY: packages
packages:
	@$(RELEASE) packages $(BUILDFOR)

## release-snapshot: all that a release holds, of this tree, in dist/
.PHONY: release-snapshot
release-snapshot:
	@$(RELEASE) snapshot $(BUILDFOR)

## tools: install the pinned linter and test runner into .cache/
.PHONY: tools
tools: $(GOLANGCI) $(GOTESTSUM) $(ACTIONLINT)

$(GOLANGCI):
	@echo "installing golangci-lint $(GOLANGCI_VERSION), once (some two minutes)"
	@GOBIN=$(@D) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

$(GOTESTSUM):
	@echo "installing gotestsum $(GOTESTSUM_VERSION), once"
	@GOBIN=$(@D) go install gotest.tools/gotestsum@$(GOTESTSUM_VERSION)

$(ACTIONLINT):
	@echo "installing actionlint $(ACTIONLINT_VERSION), once"
	@GOBIN=$(@D) go install github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT_VERSION)

$(GOVULNCHECK):
	@echo "installing govulncheck $(GOVULNCHECK_VERSION), once"
	@GOBIN=$(@D) go install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION)

## clean: remove bin/ and dist/; .cache/ (tools) and .carillon/ (data of "make dev") stay
.PHONY: clean
clean:
	rm -rf bin dist

.PHONY: FORCE
FORCE:
