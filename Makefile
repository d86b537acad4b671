# make run     build the server and start it on its defaults, 0.0.0.0:11300, with metrics on 127.0.0.1:11380
# make build   bin/trellisd and bin/trellis
# make test    what whoever changes something wants to know in minutes; gets what it compares with
# make proof   everything else that must hold; installs what it compares with
# make crash   a server with a binlog is killed CRASH_KILLS times
# make cluster three members meet kills, stops and partitions for CLUSTER (10m), and are upgraded from EARLIER, a
#              trellisd of an earlier version, if that is given
# make sim     a cluster in one process, with its own time, meets faults of SEED and of those that follow, RUNS of them, or for
#              TIME (1m); a seed that fails is played again by SEED=... RUNS=1
# make again   of SEED and those that follow, RUNS of them (100), each is played in two processes, whose traces are compared
# make mistakes plant mistakes in the program, one after the other, each of which make sim has to find
# make soak    everything at once for SOAK (10m), and then nothing may be left
# make scale   measure with very many jobs, connections, tubes: rows of a table
# make vuln    look for known vulnerabilities in what is used; needs the network
# make deb     a Debian package for ARCH, in bin/release
# make release archives for all systems and packages, in bin/release
# make try     build a package twice, install, use, upgrade and purge it; needs root on Debian
# make bench   the server side by side with beanstalkd, into bench/RESULTS.md; MATRIX=cluster: with a cluster of itself,
#              MATRIX=spill: with itself and --body-memory
# make micro   what the parts cost, without sockets
# make fmt     format the sources
# make clean   remove what make has made
#
# ARGS are further arguments of the server: make run ARGS='-p 11301'

GO          ?= go
# Built once, for this Go: "go run" asks the network about a version each time.
TOOLS       := .cache/tools/$(shell $(GO) env GOVERSION | tr ' ' -)
GOFUMPT      = $(TOOLS)/mvdan.cc/gofumpt@v0.12.0/gofumpt
STATICCHECK  = $(TOOLS)/honnef.co/go/tools/cmd/staticcheck@v0.8.2/staticcheck
GOVULNCHECK  = golang.org/x/vuln/cmd/govulncheck@v1.1.4
# Later ones take modules from a place that not every proxy reaches.
NFPM         = github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2
DOCKERLINTER = dockerlinter@1.2.2
# What charts and compositions are read by.
HELM         = $(TOOLS)/helm.sh/helm/v4/cmd/helm@v4.3.1/helm
COMPOSE      = $(TOOLS)/github.com/compose-spec/compose-go/v2/cmd@v2.16.2/cmd

DIRS     = $(wildcard bench binlog cmd codec engine reactor)
packages = $(addprefix ./,$(addsuffix /...,$(1)))
# What takes longest is tested first, so that nothing waits for it alone.
LONGEST  = $(addprefix trellis/,cmd/trellisd/faults cmd/trellisd/process reactor engine/internal/shard \
	cmd/trellisd/internal/cluster cmd/internal/console cmd/trellis)
# With the race detector, everything takes some eight times as long: make test looks for races only where most goroutines
# meet for what that costs. make race does all that make proof tries where goroutines of ours meet, in CROWDED, and has
# all else try as much as make test does, but for tests with one goroutine: those of the packages ALONE, but for those of
# shards in CREWS, and of the others the longest, SINGLE.
RACED    = binlog/replica binlog/replica/wire
ALONE    = codec engine engine/internal/shard engine/internal/queue binlog/replica/entry binlog/replica/offline binlog/replica/snapshot
CROWDED  = reactor binlog/replica binlog/replica/wire cmd/trellisd/internal/cluster cmd/trellisd/soak
without  = $(filter-out $(addprefix trellis/,$(1)),$(LONGEST) $(shell $(GO) list ./...))
SINGLE   = HostileServer|BookForgetsPages|ARareSizeComes|DamageOfAnIndexChanges
CREWS    = $(shell grep -lE 'newCrew|[.]Go.func|go func' engine/internal/shard/*_test.go)

TARGETS  = linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 freebsd/amd64 freebsd/arm64
# What make proof builds for: every system, and a processor that tests do not run on. No file is for one processor alone.
CROSS    = linux/arm64 darwin/arm64 freebsd/amd64
FUZZTIME = 3s
CRASH_KILLS ?= 300
CLUSTER    ?= 10m
EARLIER    ?=
SOAK       ?= 10m
SEED       ?= 0
RUNS       ?= 0
TIME       ?= 1m
SCALE      ?= .
MATRIX     ?= standard
BENCH    = --matrix $(MATRIX) --markdown bench/RESULTS.md

# The commit is known only in a clone.
COMMIT  = $(shell git rev-parse --short=12 HEAD 2>/dev/null)
DATE    = $(shell git log -1 --format=%cs 2>/dev/null)
LDFLAGS = $(if $(COMMIT),-X main.commit=$(COMMIT) -X main.date=$(DATE)) $(if $(VERSION),-X main.version=$(VERSION))

# What is given away says when its sources were committed, not when it was built.
RELEASE = cmd/trellisd/deploy/release.sh
ARCH   ?= $(shell $(GO) env GOARCH)
release_env = GO='$(GO)' NFPM='$(GO) run $(NFPM)' COMMIT=$(shell git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null) \
	SOURCE_DATE_EPOCH=$(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct 2>/dev/null),315532800) \
	VERSION=$(or $(VERSION),$(shell sed -n 's/^\tversion = "\(.*\)"$$/\1/p' cmd/trellisd/version.go))

# Peers live here and not in the system: see .ci/peers.
CACHE = $(CURDIR)/.cache
export PATH := $(PATH):$(CACHE)/beanstalkd/usr/bin:$(CACHE)/prometheus/usr/bin:$(CACHE)/stunnel/usr/bin:$(CACHE)/haproxy/usr/sbin

.PHONY: always run build test proof crash cluster sim again mistakes soak scale vuln deb changelog release try bench micro fmt clean peers-test peers-proof peers-bench check quick cross unit race fuzz
.NOTPARALLEL:

run: build
	./bin/trellisd -V --http 127.0.0.1:11380 $(ARGS)

build: bin/trellisd bin/trellis

# Go knows better than make whether a program is up to date.
bin/%: always
	CGO_ENABLED=0 $(GO) build -buildvcs=false -trimpath -ldflags '$(LDFLAGS)' -o $@ ./cmd/$*

$(TOOLS)/%:
	GOBIN='$(CURDIR)/$(@D)' $(GO) install $(*D)

# A test says by the build tag of its file that it is for make proof alone, or asks the constant
# proof how much it should try.
test: peers-test build check quick

proof: peers-proof build cross unit race fuzz

# No path of the clone is in what is built, so that a fresh one finds it in the cache.
check quick cross unit race fuzz: export GOFLAGS := $(shell $(GO) env GOFLAGS) -trimpath
check quick cross unit: export CGO_ENABLED = 0

check: $(GOFUMPT) $(STATICCHECK)
	$(GO) vet -tags proof ./...
	@unformatted=$$($(GOFUMPT) -l $(DIRS)) && \
	if [ -n "$$unformatted" ]; then echo "not formatted, see make fmt:" $$unformatted; exit 1; fi
	@long=$$(find $(DIRS) -name '*.go' ! -name '*_test.go' | xargs awk 'length($$0) > 120 { print FILENAME ":" FNR }') && \
	if [ -n "$$long" ]; then echo "longer than 120 columns:" $$long; exit 1; fi
	$(STATICCHECK) -tags proof ./...

# check vets. The limit of go test, 10 minutes for a package, is short on a machine that does
# much else.
TEST = $(GO) test -vet=off -count=1 -timeout 30m
# The race detector has every process of a test end a second late, unless it is told otherwise.
RACE = CGO_ENABLED=1 GORACE=atexit_sleep_ms=50 $(TEST) -race

# Tests that miss a peer or a program fail where it was to be there.
unit race fuzz: export TRELLIS_NEED_PEERS = 1
unit race fuzz: export TRELLIS_FIVEBEANS = $(CACHE)/fivebeans
unit race fuzz: export TRELLIS_AXE = $(CACHE)/axe
unit: export TRELLIS_HELM = $(CURDIR)/$(HELM)
unit: export TRELLIS_COMPOSE = $(CURDIR)/$(COMPOSE)
unit: $(HELM) $(COMPOSE)
quick: export TRELLIS_NEED_PEERS = $(shell PATH='$(PATH)' sh -c 'command -v beanstalkd' >/dev/null && echo 1)
quick unit: export TRELLIS_BIN = $(CURDIR)/bin
# Also where they are asked for alone, they test what the sources say.
quick unit: build

# Many tests wait for most of their time: three packages at once leave less of it unused.
quick:
	$(TEST) -p 3 $(call without,$(RACED))
	$(RACE) $(addprefix ./,$(RACED))

peers-test peers-proof peers-bench:
	@GO='$(GO)' .ci/peers $(@:peers-%=%) '$(CACHE)'

cross:
	@for t in $(CROSS); do \
		echo "building for $$t"; \
		GOOS=$${t%/*} GOARCH=$${t#*/} $(GO) build ./... || exit 1; \
	done

unit:
	$(TEST) -tags proof -p 3 $(LONGEST) ./...

# All tests of processes take longer than everything else with the race detector: of those that make test leaves out,
# it sees the clients of members that are killed, stopped and restarted. What else happens to members happens in
# CROWDED, in one process.
race:
	$(RACE) -tags proof -p 3 $(addprefix ./,$(CROWDED))
	$(RACE) -p 3 -skip '$(SINGLE)' $(call without,$(ALONE) $(CROWDED))
	$(RACE) -tags proof -run 'DoNotNoticeA(Kill|Stop|Restart)$$' ./cmd/trellisd/faults
	$(RACE) -tags proof -run "$$(.ci/tests-of $(CREWS))" ./engine/internal/shard

fuzz:
	@GO='$(GO)' .ci/fuzz $(FUZZTIME) $(DIRS)

# Tests for as long as they take.
LONG = $(GO) test -tags proof -count=1 -timeout 0 -v

crash: export CRASH_KILLS := $(CRASH_KILLS)
crash:
	$(LONG) -run KilledServer ./cmd/trellisd/crash

cluster: export CLUSTER := $(CLUSTER)
cluster: export TRELLIS_EARLIER := $(abspath $(EARLIER))
cluster:
	$(LONG) ./cmd/trellisd/faults
	$(LONG) ./cmd/trellisd/cluster
	$(LONG) -run ClusterWhoseLeaderGoes ./cmd/trellisd/crash

# The last line is what all histories had; that of go test would stand behind it.
SIM = cmd/trellisd/faults
sim: build
	@CGO_ENABLED=0 $(GO) test -trimpath -c -o bin/sim.test ./$(SIM)
	@cd $(SIM) && TRELLIS_BIN='$(CURDIR)/bin' GOMAXPROCS=1 '$(CURDIR)/bin/sim.test' -test.run '^TestHistories$$' -test.timeout 0 \
		-seed $(SEED) -runs $(RUNS) -time $(TIME) >'$(CURDIR)/bin/sim.out'; code=$$?; sed '/^PASS$$/d; /^FAIL$$/d' '$(CURDIR)/bin/sim.out'; exit $$code

again: build
	@CGO_ENABLED=0 $(GO) test -trimpath -c -o bin/sim.test ./$(SIM)
	@cd $(SIM) && TRELLIS_BIN='$(CURDIR)/bin' '$(CURDIR)/bin/sim.test' -test.run '^TestSeedsArePlayedAgain$$' -test.timeout 0 \
		-again -seed $(SEED:0=1) -runs $(RUNS:0=100)

mistakes:
	TRELLIS_MISTAKES=1 $(LONG) -run '^TestPlantedMistakesAreFound$$' ./$(SIM)

soak: export SOAK := $(SOAK)
soak:
	$(LONG) -p 2 -run '^TestSoak' ./cmd/trellisd/soak ./cmd/trellisd/crash

# SCALE=waits measures one subject only, SCALE=waits/pause one part of it: see cmd/trellisd/soak/scale_test.go.
scale:
	TRELLIS_SCALE=1 $(LONG) -run '^TestScale$$/$(SCALE)' ./cmd/trellisd/soak

vuln:
	$(GO) run $(GOVULNCHECK) ./...

deb:
	$(release_env) $(RELEASE) bin/release deb $(ARCH)

# A version that is given away has an entry in the list of changes.
changelog:
	@$(release_env) && grep -q "^## \\[$$VERSION\\] - " cmd/doc/CHANGELOG.md || \
		{ echo "cmd/doc/CHANGELOG.md has no entry of version $$VERSION"; exit 1; }

release: changelog
	rm -rf bin/release
	$(release_env) $(RELEASE) bin/release archive $(TARGETS)
	$(release_env) $(RELEASE) bin/release deb amd64 arm64
	cd bin/release && sha256sum trellis* >SHA256SUMS && cat SHA256SUMS

# The second copy of the sources lies elsewhere and is younger, which must not
# show in what is made of it.
try:
	rm -rf bin/try
	$(release_env) VERSION=0.0.1 $(RELEASE) bin/try deb $(ARCH)
	$(release_env) VERSION=0.0.2 $(RELEASE) bin/try deb $(ARCH)
	$(release_env) VERSION=0.0.2 $(RELEASE) bin/try archive linux/$(ARCH)
	mkdir bin/try/again
	cp -R go.mod go.sum README.md $(DIRS) bin/try/again
	cd bin/try/again && $(release_env) VERSION=0.0.2 $(RELEASE) out deb $(ARCH) && \
		$(release_env) VERSION=0.0.2 $(RELEASE) out archive linux/$(ARCH)
	cmp bin/try/trellis_0.0.2_$(ARCH).deb bin/try/again/out/trellis_0.0.2_$(ARCH).deb
	cmp bin/try/trellis-0.0.2-linux-$(ARCH).tar.gz bin/try/again/out/trellis-0.0.2-linux-$(ARCH).tar.gz
	rm -rf bin/try/again
	apt-get update
	DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends debootstrap systemd-container shellcheck openssl
	shellcheck $(addprefix cmd/trellisd/deploy/,release.sh $(addprefix debian/,try.sh postinst prerm postrm))
	npm install --prefix $(CACHE)/dockerlinter --ignore-scripts --no-audit --no-fund $(DOCKERLINTER)
	@found=$$($(CACHE)/dockerlinter/node_modules/.bin/dockerlinter --error -f cmd/trellisd/deploy/Dockerfile) && [ -z "$$found" ] || \
	{ echo "$$found"; exit 1; }
	cmd/trellisd/deploy/debian/try.sh bin/try/trellis_0.0.1_$(ARCH).deb bin/try/trellis_0.0.2_$(ARCH).deb $(CACHE)/debian

bench: peers-bench build
	./bin/trellis bench compare $(BENCH)
	$(GO) test -count=1 -run '^TestREADMEShowsRowsOfTheResults$$' ./cmd/doc -update

micro:
	$(GO) test -run '^$$' -bench . -benchmem $(call packages,$(DIRS))

fmt: $(GOFUMPT)
	$(GOFUMPT) -w $(DIRS)

clean:
	rm -rf bin .cache
