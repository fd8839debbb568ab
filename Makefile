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

# Tests may install missing programs by apt-get: redis-server (unless Docker is available), chromium,
# prometheus, zsh, fish, and what the clients in other languages need. They report what they install.
# Plain `go test` never installs anything.
export SLIDEGATE_INSTALL ?= 1

# All tests of the packages in ONCE run under the race detector, and only there. In the packages in
# LOAD, they would take minutes. There, only the tests whose names end in UnderLoad run under the race
# detector, a second time and in short form. In these, many goroutines use the package at the same
# time. make race-full runs all tests of LOAD under the race detector.
ONCE = $(addprefix ./,$(wildcard httplimit goredisgate grpclimit otelgate login/loginhttp internal/connection internal/health internal/limiter internal/send internal/test/redistest $(addprefix cmd/slidegate/internal/,inspect logs page proxy proxyserver)))
LOAD = $(filter-out $(ONCE) ./cluster_test,$(sort $(patsubst %/,%,$(dir $(shell grep -rl --include='*_test.go' '^func Test.*UnderLoad\b' .)))))

# Without cgo there is no race detector, so all packages run without it. The attack simulation takes
# 45 s of CPU for a single page of docs, so it runs only nightly.
CGO    = $(shell $(GO) env CGO_ENABLED)
OTHERS = $(filter-out $(if $(filter 1,$(CGO)),$(shell $(GO) list $(ONCE))) $(shell $(GO) list ./bench/attack),$(shell $(GO) list $(ALL)))

# The servers for `make matrix`, and the targets that run on each. The servers run in Docker, from the
# official images. If UNPACKED is set, they run as processes, from that directory, into which
# .ci/servers unpacked them.
SERVERS ?= redis-6.0 redis-7.0 redis-8.0 redis-8.6 redis-8.8 redis-8.10 redis-8.12 valkey-8.0 valkey-8.1 valkey-9.1 valkey-9.2
TESTS   ?= test
image    = $(patsubst valkey-%,valkey/valkey:%-alpine,$(patsubst redis-%,redis:%-alpine,$(1)))
place    = $(if $(UNPACKED),SLIDEGATE_DOCKER=0 PATH="$(UNPACKED)/$(1):$$PATH",SLIDEGATE_DOCKER=1 SLIDEGATE_REDIS_IMAGE=$(image))

# The versions of go-redis to test: the oldest that goredisgate supports, which its go.mod requires, a
# later one, and the newest.
GO_REDIS ?= $(call oldest,go-redis/v9,goredisgate) v9.22.0 v9.23.0

# The versions of OpenTelemetry and gRPC to test: the oldest that otelgate and grpclimit support, and
# the newest.
OTEL ?= $(call oldest,otel,otelgate) latest
GRPC ?= $(call oldest,grpc,grpclimit) latest

# The version of a module that another module's go.mod requires.
oldest = $(shell sed -n 's|.*/$(1) \(v[^ ]*\).*|\1|p' $(2)/go.mod)

.PHONY: help check test full newest short cluster docker matrix go-redis adapters simulate race race-once race-load race-full lint vulnerabilities api regression fuzz bench site

help:
	@echo "make check   vet, and the short tests of all packages: run it before each commit"
	@echo "make test    the tests of all modules, on real Redis servers; JOBS=1 takes longer, and suits a slow machine"
	@echo "make matrix  all tests on each of SERVERS=\"$(SERVERS)\", in Docker"
	@echo "make go-redis  the tests of goredisgate and cluster_test on each of GO_REDIS=\"$(GO_REDIS)\""
	@echo "make adapters  the tests of otelgate on each of OTEL=\"$(OTEL)\", those of grpclimit on each of GRPC=\"$(GRPC)\""
	@echo "make simulate  compares docs/login-simulation.md with the simulated attacks, in 45 s"
	@echo "make short   the tests that depend most on the server, in a minute; make cluster does the same on a cluster"
	@echo "make docker  the tests of the image, and of how tests start and break servers in Docker"
	@echo "make race    packages with several goroutines, under the race detector (part of make test);"
	@echo "             from the largest, only tests named ...UnderLoad; make race-full runs all of them"
	@echo "make lint    formatting, vet and linters, on all modules; vet for 32-bit, arm64 and Windows; the workflows; Lua"
	@echo "make vulnerabilities  known vulnerabilities that the code can reach, by govulncheck"
	@echo "make api     what changed in the API since the last tag"
	@echo "make regression  whether a decision costs more than at the previous day's last commit"
	@echo "make fuzz    every fuzz target for FUZZTIME=$(FUZZTIME)"
	@echo "make bench   what a decision costs, compared with other libraries, scripts and floors"
	@echo "make site    README and docs as static HTML, by VitePress, and its check in Chromium (not part of make test)"
	@echo
	@echo "If there is neither Docker nor redis-server, these targets install redis-server by apt-get, as root."
	@echo "They also install chromium, prometheus, zsh, fish, python3-redis, nodejs, node-redis and esbuild, for"
	@echo "the tests of pages, metrics, completion and clients in other languages. SLIDEGATE_INSTALL=0 prevents this."

check:
	$(GO) vet $(ALL)
	$(GO) test -vet=off -short -p 6 $(ALL)

# The full tests and those under the race detector run at the same time, because many tests mostly
# wait. JOBS=1 runs them one after the other, with P test binaries at a time. This suits a machine on
# which containers start slowly.
JOBS ?= 2
P    ?= 2

# The first test gets a Redis, and prints its version.
test:
	$(GO) test -count=1 -v -run '^TestServer$$' ./internal/test/redistest
	@$(MAKE) --no-print-directory -j$(JOBS) full race newest

full:
	$(GO) test -vet=off -count=1 -timeout 15m -p $(if $(filter 1,$(JOBS)),$(P),3) $(OTHERS)

# The three tests whose outcome depends most on the version of go-redis, on its newest version.
newest:
	@.ci/with $(lastword $(GO_REDIS)) github.com/redis/go-redis/v9 -- $(GO) test -vet=off -count=1 -timeout 5m -run '^Test(Hooks|BrokenTogether|SentOnce)$$' ./goredisgate

# The tests of goredisgate and cluster_test, on each of GO_REDIS.
go-redis:
	@set -e; for v in $(GO_REDIS); do .ci/with $$v github.com/redis/go-redis/v9 -- $(GO) test -count=1 -timeout 15m -p 2 ./goredisgate ./cluster_test; done

# The tests of otelgate and grpclimit, on each of OTEL and GRPC.
adapters:
	@set -e; for v in $(OTEL); do .ci/with $$v $(addprefix go.opentelemetry.io/,otel otel/metric otel/sdk otel/sdk/metric otel/trace) -- $(GO) test -count=1 -timeout 5m ./otelgate; done
	@set -e; for v in $(GRPC); do .ci/with $$v google.golang.org/grpc -- $(GO) test -count=1 -timeout 5m ./grpclimit; done

# Checks all tables in docs/login-simulation.md.
simulate:
	$(GO) test -count=1 ./bench/attack

# Short tests of guarantees, scripts, histories, outages, replays on Redis, and ways to reach a server.
# It leaves out the longest tests of those that only test memory, client deadlines or many goroutines.
short:
	$(GO) test -count=1 -v -run '^TestServer$$' ./internal/test/redistest
	$(GO) test -vet=off -count=1 -short -timeout 5m -skip '^Test(JointAmidFaults|DeadlinesOfCallers|ConnectingTakesLonger|Flood|Fleet|Local.*|.*UnderLoad)$$|^TestTrouble$$/Fallback' ./window ./pace ./ar1 ./lua ./cmd/slidegate/internal/inspect ./cmd/slidegate/internal/replay
	$(GO) test -vet=off -count=1 -timeout 5m -run '^Test(PromotedByHand|TLS|RESP2|ACLOfOneServer|ACLWithoutProbes|Full)$$' ./cluster_test

# Short tests of ACL users and failovers, on a cluster and under Sentinel.
cluster:
	$(GO) test -vet=off -count=1 -v -timeout 5m -run '^Test(ACL|HostileEvents|GracefulFailover|Sentinel)$$|^TestFailover$$/^killed$$' ./cluster_test

# What can be tested only with Docker: the image, and how tests start servers in Docker and make them
# fail.
docker:
	$(GO) test -vet=off -count=1 -v -timeout 5m -run '^TestImage$$' ./cmd/slidegate
	$(GO) test -vet=off -count=1 -v -timeout 5m ./internal/test/redistest

# Runs the targets in TESTS on each server. It fails if a server has another version, or if Docker is
# needed but does not respond. `make -j2 -Orecurse matrix` tests two servers at a time, and keeps their
# output apart.
matrix: $(addprefix matrix-,$(SERVERS))

matrix-%:
	@echo "== $*"
	@SLIDEGATE_LONG=1 SLIDEGATE_SERVER=$* $(call place,$*) $(MAKE) --no-print-directory $(TESTS) JOBS=1

race:
ifeq ($(CGO),1)
	@$(MAKE) --no-print-directory race-once race-load
else
	@echo "No race detector: it needs cgo, and therefore a C compiler."
endif

race-once:
	$(GO) test -race -vet=off -count=1 -timeout 15m -p $(P) $(ONCE)

race-load:
	$(GO) test -race -vet=off -short -count=1 -timeout 15m -p $(P) -run 'UnderLoad$$' $(LOAD)

# All tests of LOAD, and of packages that race reaches only through others. It runs nightly. Under the
# race detector, a sync.Pool drops items at random and objects are larger, so the tests that count
# allocations and measure the heap are skipped.
race-full:
	$(GO) test -race -vet=off -count=1 -timeout 40m -p 2 -skip '^(TestAllocations|TestHeapOfLimiters)$$' $(LOAD) ./cmd/slidegate ./cmd/slidegate/internal/suggest

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

# Prints what changed in the API of each module since its last tag.
api:
	@.ci/api

# Checks whether a decision costs more than at the previous day's last commit.
regression:
	@.ci/regression

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
