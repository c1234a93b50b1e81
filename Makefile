# Bare `make` lists the targets.
.DEFAULT_GOAL := help
.NOTPARALLEL:

GO         ?= go
FUZZTIME   ?= 30s
BENCHFLAGS ?=

# The modules of go.work are built together: the pattern work names all their
# packages. The other modules, which are not for users, are built alone.
ALONE = GOWORK=off $(GO)
APART = $(filter-out $(shell sed -n 's|^[[:space:]]*\./||p' go.work),$(patsubst ./%/go.mod,%,$(shell find . -mindepth 2 -name go.mod \
	-not -path './tools/*' -not -path '*/.*' -not -path '*/testdata/*')))

# Linters and benchstat are in a separate module, so that users of the
# library never download them.
TOOL = env GOWORK=off $(GO) tool -modfile=tools/go.mod

# Every file that git tracks or would track; outside git, every file that is not hidden.
FILES = { git ls-files -co --exclude-standard 2>/dev/null || find . -type f -not -path '*/.*'; }

# Go files that exist and are not generated.
GOFILES = $(FILES) | grep '\.go$$' | xargs grep -sL '^// Code generated .* DO NOT EDIT'

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Lint, the tests, the programs that tests build and the separate modules share one
# compilation: with the race detector and without debug information. A second one would
# take as long again. The longest tests run first, and the separate modules run
# at the same time, while tests wait for servers. Tests are not vetted, because lint does that.
# Lint compiles nearly everything: GOGC spends memory to save a sixth of that time.
# At exit a program under the race detector waits for further races, by default one
# second, in each package and in each program that a test runs: atexit_sleep_ms shortens it.
ONCE = -race -gcflags=all=-dwarf=false -ldflags=-w

.PHONY: test
test: export GOFLAGS := $(shell $(GO) env GOFLAGS) $(ONCE)
test: export GORACE := atexit_sleep_ms=50 $(GORACE)
test: deps lint ## everything a change must pass: lint, all tests under the race detector, the separate modules
	@apart=$$(mktemp); trap 'rm -f "$$apart"' EXIT; failed=0; \
	GO="$(GO)" nice scripts/test-apart.sh $(APART) >"$$apart" 2>&1 & beside=$$!; \
	$(GO) test -vet=off -count=1 -parallel 4 -timeout 9m ./redisstore work || failed=1; \
	wait $$beside || failed=1; \
	cat "$$apart"; exit $$failed

.PHONY: deps
deps: ## install the Debian packages the tests need, where that is possible
	@scripts/install-test-deps.sh

.PHONY: lint
lint: ## go vet, staticcheck, gofumpt, subjects of commits
	@scripts/lint-subjects.sh
	GOGC=400 $(GO) vet work
	GOGC=400 $$($(TOOL) -n staticcheck) work # needs the workspace, which go tool does not support
	@bad=$$($(GOFILES) | xargs $(TOOL) gofumpt -l) || exit 1; \
	if [ -n "$$bad" ]; then \
		echo "not formatted:"; echo "$$bad" | sed 's/^/  /'; \
		echo "to fix: make fmt"; exit 1; \
	fi

.PHONY: fmt
fmt: ## format every Go file
	@$(GOFILES) | xargs $(TOOL) gofumpt -l -w

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (30s) each
	@set -e; for p in $$($(GO) list work); do \
		names=$$($(GO) test -list '^Fuzz' $$p); \
		for f in $$(echo "$$names" | grep '^Fuzz'); do \
			echo "== $$p $$f"; \
			$(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$p; \
		done; \
	done

.PHONY: soak
soak: ## the long runs: big counts without the race detector, then a minute per fuzz target
	SLUICE_SOAK=1 $(GO) test -count=1 -timeout 60m -skip '^TestSoak$$' work
	SLUICE_SOAK=1 $(GO) test -race -count=1 -timeout 60m -v -run '^TestSoak$$' ./cmd/sluice # everything at once, 30 minutes or SLUICE_SOAK_TIME
	SLUICE_SOAK=1 $(GO) test -count=1 -timeout 60m -v -run '^TestSoak$$' ./cmd/sluice
	$(MAKE) fuzz FUZZTIME=60s

# Not part of test: building the reference takes about 40 s on two idle cores
# and its downloads as long again, Caddy minutes, and npm is needed.
.PHONY: interop
interop: ## compare Sluice with Envoy's rate limit service, and test with its clients, Caddy and an ACME CA; needs npm
	cd cmd/interop/acme && $(ALONE) vet ./... && $(ALONE) test -count=1 -timeout 5m ./...
	cd cmd/interop && $(ALONE) vet ./... && $(ALONE) test -count=1 -timeout 20m ./...

.PHONY: bench
bench: ## side-by-side measurements; flags go in BENCHFLAGS
	cd cmd/bench && $(ALONE) run . $(BENCHFLAGS)

.PHONY: benchstat
benchstat: ## compare outputs of go test -bench: RESULTS='old new'
	@$(TOOL) benchstat $(RESULTS)

.PHONY: demo
demo: ## run the demo of the limiter
	$(GO) run ./cmd/sluice demo

.PHONY: tidy
tidy: ## tidy every go.mod
	@GO=$(GO) scripts/tidy.sh

.PHONY: check
check: ## fail if go.mod files are untidy, generated files are stale or functions are dead
	@GO=$(GO) scripts/tidy.sh -diff
	@GO=$(GO) DEADCODE="$$($(TOOL) -n deadcode)" scripts/deadcode.sh
	@set -e; tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	sums() { $(FILES) | sort | xargs cksum 2>/dev/null || true; }; \
	sums >"$$tmp/before"; $(GO) generate work; sums >"$$tmp/after"; \
	if ! diff "$$tmp/before" "$$tmp/after"; then \
		echo "generated files were stale and are now fresh: commit them"; exit 1; \
	fi

.PHONY: release
release: ## commit and tag a release, and install it from a copy: VERSION=v0.1.0 NEXT=v0.2.0; pushes nothing
	@GO=$(GO) scripts/release.sh $(VERSION) $(NEXT)

.PHONY: clean
clean: ## remove build outputs and profiles
	rm -rf bin dist
	rm -f sluice cmd/bench/bench coverage.*
	find . -name .git -prune -o -type f \( -name '*.test' -o -name '*.prof' \) -exec rm {} +
