# `make test` needs Go and make. It finds or installs a Redis: see internal/test/redistest.

GO       ?= go
GOLANGCI ?= $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
FUZZTIME ?= 30s

# Tools that check the code, in addition to tests.
ACTIONLINT  = $(GO) run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
GOVULNCHECK = $(GO) run golang.org/x/vuln/cmd/govulncheck@v1.9.0

# All packages of the eight modules in go.work, the slowest first, and those that users import or
# run.
ALL   = ./cluster_test/... ./... ./cmd/slidegate/... ./goredisgate/... ./grpclimit/... ./otelgate/... ./examples/... ./bench/...
USERS = ./... ./cmd/slidegate/... ./goredisgate/... ./grpclimit/... ./otelgate/... ./examples/...

# The packages that run under the race detector: those that many goroutines use.
RACE  = ./... ./cmd/slidegate/internal/... ./goredisgate/... ./grpclimit/... ./otelgate/...

# The number of test binaries that run at a time. Many tests mostly wait. With P=1, tests take longer.
# This suits a machine on which containers start slowly.
P ?= 4

# The servers for `make matrix`, and the command that runs on each. The servers run in Docker, from
# the official images. If UNPACKED is set, they run as processes, from that directory, into which
# .ci/servers unpacked them.
SERVERS ?= redis-6.0 redis-7.0 redis-8.0 redis-8.6 redis-8.8 redis-8.10 redis-8.12 valkey-8.0 valkey-8.1 valkey-9.1 valkey-9.2
TESTS   ?= $(MAKE) --no-print-directory test
image    = $(patsubst valkey-%,valkey/valkey:%-alpine,$(patsubst redis-%,redis:%-alpine,$(1)))
place    = $(if $(UNPACKED),SLIDEGATE_DOCKER=0 PATH="$(UNPACKED)/$(1):$$PATH",SLIDEGATE_DOCKER=1 SLIDEGATE_REDIS_IMAGE=$(image))

# The versions of go-redis, OpenTelemetry and gRPC to test: the oldest that an adapter supports, which
# its go.mod requires, and the newest. Of go-redis also one in between.
GO_REDIS ?= $(call oldest,go-redis/v9,goredisgate) v9.22.0 v9.23.0
OTEL     ?= $(call oldest,otel,otelgate) latest
GRPC     ?= $(call oldest,grpc,grpclimit) latest

# The version of a module that another module's go.mod requires.
oldest = $(shell sed -n 's|.*/$(1) \(v[^ ]*\).*|\1|p' $(2)/go.mod)

.PHONY: help check test full race matrix versions lint vulnerabilities fuzz bench site

help:
	@echo "make check            vet, and the short tests of all modules: run it before each commit"
	@echo "make test             make full and make race; as root, apt-get installs programs that tests need"
	@echo "make full             all tests"
	@echo "make race             short tests under the race detector; with SHORT= all tests of these packages"
	@echo "make matrix           TESTS=\"make test\" on each of SERVERS, in Docker"
	@echo "make versions         the adapters' tests on each of GO_REDIS, OTEL and GRPC"
	@echo "make lint             formatting, linters, vet for all systems, the workflows, Lua"
	@echo "make vulnerabilities  known vulnerabilities that the code can reach, by govulncheck"
	@echo "make fuzz             every fuzz target for FUZZTIME=$(FUZZTIME)"
	@echo "make bench            what a decision costs, compared with other libraries, scripts and floors"
	@echo "make site             README and docs as static HTML, and its check in Chromium"

# Short tests need only a Redis, in Docker or on the PATH. They install nothing.
check:
	$(GO) vet $(ALL)
	$(GO) test -vet=off -short -p $(P) $(ALL)

# Tests may install missing programs by apt-get: redis-server (unless Docker is available), chromium,
# prometheus, lua5.1, and what the clients in other languages need. They report what they install. The
# first test gets a Redis, and prints its version. Many tests mostly wait, so those under the race
# detector run at the same time.
test: export SLIDEGATE_INSTALL ?= 1
test:
	$(GO) test -count=1 -v -run '^TestServer$$' ./internal/test/redistest
	@$(MAKE) --no-print-directory -j2 full race

# The last three tests are those whose outcome depends most on the version of go-redis, on its newest
# version.
full:
	$(GO) test -vet=off -count=1 -timeout 15m -p $(P) $(ALL)
	@.ci/with $(lastword $(GO_REDIS)) github.com/redis/go-redis/v9 -- $(GO) test -vet=off -count=1 -timeout 5m -run '^Test(Hooks|BrokenTogether|SentOnce)$$' ./goredisgate

SHORT ?= -short
race:
	@[ "$$($(GO) env CGO_ENABLED)" = 1 ] || echo "No race detector: it needs cgo, and therefore a C compiler."
	[ "$$($(GO) env CGO_ENABLED)" = 0 ] || $(GO) test -race -vet=off $(SHORT) -count=1 -timeout 40m -p 2 $(RACE)

# Runs TESTS on each server. It fails if a server has another version, or if Docker is needed but does
# not respond. `make -j2 -Orecurse matrix` tests two servers at a time, and keeps their output apart.
matrix: $(addprefix matrix-,$(SERVERS))

matrix-%:
	@echo "== $*"
	@set -e; export SLIDEGATE_LONG=1 SLIDEGATE_SERVER=$* $(call place,$*); $(GO) test -count=1 -v -run '^TestServer$$' ./internal/test/redistest; $(TESTS)

# The tests of goredisgate and cluster_test on each version of go-redis, and those of otelgate and
# grpclimit on theirs.
versions:
	@set -e; for v in $(GO_REDIS); do .ci/with $$v github.com/redis/go-redis/v9 -- $(GO) test -count=1 -timeout 15m -p 2 ./goredisgate ./cluster_test; done
	@set -e; for v in $(OTEL); do .ci/with $$v $(addprefix go.opentelemetry.io/,otel otel/metric otel/sdk otel/sdk/metric otel/trace) -- $(GO) test -count=1 -timeout 5m ./otelgate; done
	@set -e; for v in $(GRPC); do .ci/with $$v google.golang.org/grpc -- $(GO) test -count=1 -timeout 5m ./grpclimit; done

# GOWORK=off reveals requirements that are missing from the libraries' go.mod. For the other modules,
# this check is possible only once the libraries are tagged.
lint:
	$(GOLANGCI) run $(ALL)
	GOWORK=off $(GO) vet ./...
	GOARCH=386 $(GO) vet $(ALL)
	GOOS=windows $(GO) vet $(USERS) ./cluster_test/...
	GOARCH=arm64 $(GO) vet $(ALL)
	$(ACTIONLINT) -shellcheck=
	@for tool in luacheck luac5.1; do command -v $$tool >/dev/null || { echo "make lint needs $$tool: apt-get install lua-check lua5.1"; exit 1; }; done
	luacheck --codes --no-color lua/*.lua
	$(GO) test -count=1 -run '^TestLiveNames$$' ./lua

# Reports known vulnerabilities that the code or the tests of a module can reach. VULNDB is the
# database. grpclimit requires an old gRPC, which a program replaces with its own, so this uses the
# latest.
VULNDB ?= https://vuln.go.dev
vulnerabilities:
	@.ci/with latest google.golang.org/grpc -- sh -ec 'for dir in $(sort $(dir $(shell git ls-files go.mod "*/go.mod"))); do \
		echo "== $$dir"; \
		$(GOVULNCHECK) -C $$dir -db $(VULNDB) -test ./...; \
	done'

fuzz:
	@set -e; for pkg in $$($(GO) list $(ALL)); do \
		names=$$($(GO) test -list '^Fuzz' $$pkg); \
		for name in $$(echo "$$names" | grep '^Fuzz' || true); do \
			echo "$$pkg $$name"; \
			$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) $$pkg; \
		done; \
	done

bench:
	cd bench && $(GO) run . $(BENCHFLAGS)

# Installs the packages in site/package-lock.json, builds site/.vitepress/dist, and opens each page in
# CHROMIUM.
CHROMIUM ?= $(shell which chromium chromium-browser google-chrome 2>/dev/null | head -n 1)
site:
	@command -v npm >/dev/null && [ -n "$(CHROMIUM)" ] || { echo "make site needs Node 18 or later with npm, and Chromium: apt-get install npm chromium, or set CHROMIUM to the path of a Chrome"; exit 1; }
	cd site && npm ci --ignore-scripts --no-audit --no-fund
	cd site && npx vitepress build && node check.js "$(CHROMIUM)"
