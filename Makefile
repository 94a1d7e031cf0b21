# The commands of this repository; `make help` lists them. Each calls a tool or a small script, and nothing else is hidden here.
# Needed on the machine: Go, git, make; a C compiler for `make test` (the race detector), npm for `make lint` and `make proto`.
# Everything else is pinned in tools/ and built into .watertight/.

SHELL := /bin/bash
.DEFAULT_GOAL := help

tools := .watertight/tools
buf := tools/node_modules/.bin/buf
# Every package of every module in go.work; the shell expands it, so that `make help` does not need Go.
packages := $$(go list -m -f '{{.Dir}}/...')

.PHONY: help up test chaos bench bench-go lint lint-go lint-modules lint-shell proto proto-check tools tools-lint

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: ## start the whole shop on this machine; ARGS="--fresh" and others go to `lab up`
	@scripts/need.sh go
	@go build -o .watertight/bin/lab ./lab/cmd/lab
	@.watertight/bin/lab up $(ARGS)

test: tools ## every test of every module, with the race detector and a real PostgreSQL; ends with the counts
	@scripts/need.sh cc
	@scripts/install-postgres.sh
	@scripts/test.sh $(packages)

chaos: ## kill, freeze, cut and repeat everything under load, then check the books; CHAOS_SECONDS=75 CHAOS_SEED=N
	@scripts/need.sh go
	@scripts/install-postgres.sh
	@scripts/chaos.sh

bench: ## relay, PlaceOrder and bulkhead against their limits and peers, in one table; ARGS="--quick --json"
	@scripts/need.sh go
	@scripts/install-postgres.sh
	@go build -o .watertight/bin/bench ./test/bench
	@.watertight/bin/bench $(ARGS)

bench-go: ## the Go benchmarks of every package; ARGS="-bench=NAME -count=10" narrows and repeats
	@scripts/need.sh go
	go test -run='^$$' -bench=. -benchmem $(ARGS) $(packages)

lint: lint-go lint-modules lint-shell proto-check ## every check that runs no test

lint-go: tools-lint ## golangci-lint over every module (.golangci.yml)
	@$(tools)/golangci-lint run $(packages)

lint-modules: ## each module builds by itself (GOWORK=off), and its go.mod is tidy
	@scripts/need.sh go
	@scripts/lint-modules.sh

lint-shell: ## shellcheck over the scripts, where it is installed
	@scripts/lint-shell.sh

proto: tools $(buf) ## generate the Go code of the contracts, beside the .proto files
	@scripts/proto.sh generate

proto-check: tools $(buf) ## contracts: style, no breaking change, generated code up to date
	@scripts/proto.sh check

# go build leaves alone what is up to date, and knows it better than file times do.
tools:
	@scripts/need.sh go
	@GOWORK=off go build -C tools -buildvcs=false -o ../$(tools)/ tool

tools-lint:
	@scripts/need.sh go
	@GOWORK=off go build -C tools/lint -buildvcs=false -o ../../$(tools)/ tool

# The package that npm installs holds the program itself: no install script has to run.
$(buf): tools/package-lock.json
	@scripts/need.sh npm
	@cd tools && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@
