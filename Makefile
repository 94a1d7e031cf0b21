# The commands of this repository; `make help` lists them. Each calls a tool or a small script, and nothing else is hidden here.
# Needed on the machine: Go, git, make; a C compiler for `make test` (the race detector), npm for `make lint` and `make proto`.
# Everything else is pinned in tools/ and built into .watertight/.

SHELL := /bin/bash
.DEFAULT_GOAL := help

tools := .watertight/tools
buf := tools/node_modules/.bin/buf
# Every package of every module in go.work; the shell expands it, so that `make help` does not need Go.
packages := $$(go list -m -f '{{.Dir}}/...')

.PHONY: help up test chaos traces-test e2e prove screenshots bench bench-go images manifests certs lint lint-go lint-modules lint-shell proto proto-check tools tools-lint

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: ## start the whole shop on this machine; TRACES=1 with a Jaeger; ARGS="--fresh" and others go to `lab up`
	@scripts/need.sh go
	@go build -o .watertight/bin/lab ./lab/cmd/lab
	@.watertight/bin/lab up $(if $(filter-out 0,$(TRACES)),--traces) $(ARGS)

test: tools ## every test of every module, with the race detector and a real PostgreSQL; ends with the counts
	@scripts/need.sh cc
	@scripts/install-postgres.sh
	@scripts/install-chromium.sh
	@scripts/install-promtool.sh
	@scripts/test.sh $(packages)

chaos: ## kill, restart, freeze, cut and repeat everything under load, then check the books; CHAOS_SECONDS=75 CHAOS_SEED=N
	@scripts/need.sh go
	@scripts/install-postgres.sh
	@scripts/chaos.sh

screenshots: ## take the pictures in docs/screenshots anew, with Chromium and a shop under load
	@scripts/need.sh go
	@scripts/install-postgres.sh
	@scripts/install-chromium.sh
	SCREENSHOTS='$(CURDIR)/docs/screenshots' go test -count=1 -run='^TestScreenshots$$' ./test/browser

traces-test: ## an order in a real Jaeger; builds one first where there is none, which takes minutes
	@scripts/need.sh go
	@scripts/install-postgres.sh
	TRACES_TEST=1 go test -count=1 -timeout=40m -v ./test/traces

bench: ## every promise of speed against its peer or limit, in one table; ARGS="--quick --json --only relay,edge"
	@scripts/need.sh go
	@scripts/install-postgres.sh
	@go build -o .watertight/bin/bench ./test/bench
	@.watertight/bin/bench $(ARGS)

bench-go: ## the Go benchmarks of every package; ARGS="-bench=NAME -count=10" narrows and repeats
	@scripts/need.sh go
	go test -run='^$$' -bench=. -benchmem $(ARGS) $(packages)

images: ## container images into build/images, without Docker or a registry; ARCH=amd64 IMAGES="gateway recs" narrow it
	@scripts/need.sh go
	@scripts/images.sh

manifests: ## render k8s/{kind,minikube,prod} from the chart helm/watertight; `make test` fails when they differ
	@scripts/need.sh go
	@go run ./test/manifests/cmd/render

certs: ## print certificates for mutual TLS as Kubernetes Secrets: make -s certs | kubectl apply -f -
	@scripts/need.sh go
	@go run ./lab/cmd/lab certs $(ARGS)

cluster-up: ## a real one-node Kubernetes on this machine, as root on Linux, without Docker or a registry
	@scripts/cluster.sh up

cluster-down: ## remove that cluster, and all that it made
	@scripts/cluster.sh down

cluster-test: ## bring that cluster up, prove what it can do, take it down, and look for what is left
	@scripts/need.sh go
	@IMAGES="nats postgres" ARCH="$$(go env GOARCH)" scripts/images.sh
	@CLUSTER_TEST=1 go test -v -count=1 -timeout=40m -run '^TestCluster_' ./test/cluster

e2e: ## the tests on a real cluster, the one that kubectl points at; E2E=quick shortens them, ARGS="-run /^c" picks
	@scripts/need.sh go
	@scripts/e2e.sh

prove: ## the same in five minutes, on the shop that runs in that cluster; ARGS="--namespace N" and others go to `lab cluster`
	@scripts/need.sh go
	@go build -o .watertight/bin/lab ./lab/cmd/lab
	@.watertight/bin/lab cluster --prove $(ARGS)

kind-up: ## the shop on kind, images and all; needs docker, kind and kubectl
	@scripts/kind-up.sh

kind-down:
	kind delete cluster --name watertight

minikube-up: ## the shop on minikube, images and all; needs docker, minikube and kubectl
	@scripts/minikube-up.sh

minikube-down:
	minikube delete --profile watertight-minikube

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
