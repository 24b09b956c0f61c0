SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

FUZZTIME ?= 20s
CRASH_KILLS ?= 200

# The official TypeScript client, for cmd/gated-mcp/client_test.go.
CLIENT := cmd/gated-mcp/testdata/client
CLIENT_READY := $(CLIENT)/node_modules/.package-lock.json

STATICCHECK := bin/tools/staticcheck

# S3 servers for the tests and the demo, from the module under tools: one that locks, one that pretends to.
S3_SERVERS := bin/tools/s3demo bin/tools/s3pretender

# What tries the alerts: promtool and prometheus, where the machine has none those of Debian, unpacked and not installed,
# so that no service starts and nothing outside of bin changes.
PROMETHEUS := bin/tools/prometheus

SCRIPTS := .ci/run $(shell find . -name node_modules -prune -o -name '*.sh' -print)

.PHONY: build demo test client prometheus lint lint-go lint-mod lint-sh race crash fuzz bench clean help

build: ## bin/gated-mcp and bin/ledgerctl
	go build -trimpath -o bin/ ./cmd/gated-mcp ./cmd/ledgerctl

demo: build bin/tools/s3demo ## the main job on real input, told step by step
	go run ./internal/demo -bin bin

test: build client prometheus $(S3_SERVERS) ## everything, under the race detector; brings what it needs: S3 servers, the client's packages (node), prometheus (apt-get)
	go test -race ./...

client:
	@if command -v node >/dev/null && command -v npm >/dev/null; then \
		$(MAKE) --no-print-directory $(CLIENT_READY) || echo '*** npm ci failed: the test with the official client CANNOT RUN' >&2; \
	else \
		echo '*** no node or npm: the test with the official client is SKIPPED' >&2; \
	fi

$(CLIENT_READY): $(CLIENT)/package.json $(CLIENT)/package-lock.json $(CLIENT)/.npmrc
	npm ci --prefix $(CLIENT) --ignore-scripts --no-audit --no-fund
	touch $@

prometheus:
	@if command -v promtool >/dev/null && command -v prometheus >/dev/null || [ -x $(PROMETHEUS) ]; then exit; fi; \
	if command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; then \
		$(MAKE) --no-print-directory $(PROMETHEUS) && exit; \
	fi; \
	echo '*** no prometheus: its tests are SKIPPED' >&2

$(PROMETHEUS):
	@mkdir -p bin/tools
	@new=$$(mktemp -d bin/tools/new.XXXXXX); trap "rm -rf $$new" EXIT; chmod 755 $$new; \
	download() { (cd $$new && timeout 300 apt-get -o APT::Sandbox::User=root download prometheus) >/dev/null; }; \
	{ download || { [ "$$(id -u)" = 0 ] && timeout 120 apt-get update >/dev/null && download; }; } && \
	dpkg-deb -x $$new/prometheus_*.deb $$new && \
	mv $$new/usr/bin/promtool $$new/usr/bin/prometheus bin/tools/

lint: lint-go lint-mod lint-sh ## format, vet, staticcheck, other platforms, tidy modules, shell scripts

lint-go: $(STATICCHECK)
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "not gofmt-ed:" $$unformatted >&2; exit 1; }
	go vet ./...
	go -C tools vet ./cmd/...
	$(STATICCHECK) ./...
	GOOS=darwin CGO_ENABLED=0 go build ./...
	GOOS=windows CGO_ENABLED=0 go build ./...

lint-mod:
	go mod tidy -diff
	go -C tools mod tidy -diff

lint-sh:
	@if command -v shellcheck >/dev/null; then \
		echo shellcheck $(SCRIPTS); shellcheck $(SCRIPTS); \
	else \
		echo '*** no shellcheck: $(SCRIPTS) NOT CHECKED' >&2; \
	fi

$(STATICCHECK): tools/go.mod tools/go.sum
	go -C tools build -trimpath -o ../$@ honnef.co/go/tools/cmd/staticcheck

bin/tools/s3%: tools/cmd/s3%/main.go tools/go.mod tools/go.sum
	go -C tools build -trimpath -ldflags='-s -w' -o ../$@ ./cmd/s3$*

race: ## the concurrent rooms, race detector on, never cached
	go test -race -count=1 ./internal/durable/... ./ledger/store/... ./server/... ./cmd/gated-mcp/... ./anchor/...

crash: ## the crash tests at full weight: CRASH_KILLS=200 kills of a real server
	CRASH_KILLS=$(CRASH_KILLS) go test -count=1 -timeout 30m -run Crash ./ledger/store/... ./server/... ./cmd/gated-mcp

fuzz: ## each fuzz target for FUZZTIME=20s
	@go test -list '^Fuzz' ./... \
	| awk '/^Fuzz/ { names[++n] = $$1 } /^ok/ { for (i = 1; i <= n; i++) print $$2, names[i]; n = 0 }' \
	| while read -r package target; do \
		echo "== $$package $$target"; \
		go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$package" </dev/null; \
	done

bench: bin/tools/s3demo ## the figures, each against the limit measured in the same run
	go run ./bench

clean: ## what make brought or built
	rm -rf bin $(CLIENT)/node_modules

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-8s %s\n", $$1, $$2 }' Makefile
