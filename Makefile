# make run     build the server and start it on its defaults, 0.0.0.0:11300, with metrics on 127.0.0.1:11380
# make build   bin/trellisd and bin/trellis
# make test    everything that must hold; installs what it compares with
# make crash   a server with a binlog is killed CRASH_KILLS times
# make cluster three members meet kills, stops and partitions for CLUSTER (10m; a heal takes about two seconds)
# make soak    everything at once for SOAK (10m), and then nothing may be left
# make scale   measure with very many jobs, connections, tubes: rows of a table
# make vuln    look for known vulnerabilities in what is used; needs the network
# make deb     a Debian package for ARCH, in bin/release
# make release archives for all systems and packages, in bin/release
# make try     build a package twice, install, use, upgrade and purge it; needs root on Debian
# make bench   the server side by side with beanstalkd, into README.md; MATRIX=cluster: with a cluster of itself
# make micro   what the parts cost, without sockets
# make fmt     format the sources
# make clean   remove what make has made
#
# ARGS are further arguments of the server: make run ARGS='-p 11301'

GO          ?= go
GOFUMPT      = mvdan.cc/gofumpt@v0.12.0
STATICCHECK  = honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK  = golang.org/x/vuln/cmd/govulncheck@v1.1.4
# Later ones take modules from a place that not every proxy reaches.
NFPM         = github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2
DOCKERLINTER = dockerlinter@1.2.2

DIRS    = $(wildcard bench binlog cmd codec engine reactor)
SOURCES = go.mod go.sum $(shell find $(DIRS) -type f ! -path '*/testdata/*')

# Packages in which goroutines meet.
RACY = $(addprefix ./,$(addsuffix /...,$(filter-out codec,$(DIRS))))

TARGETS  = linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 freebsd/amd64 freebsd/arm64
# What make test builds for: every system, and a processor that tests do not run on. No file is for one processor alone.
CROSS    = linux/arm64 darwin/arm64 freebsd/amd64
FUZZTIME = 3s
CRASH_KILLS ?= 300
CLUSTER    ?= 10m
CLUSTER_TESTS = Cluster|WhenTheLeaderIsKilled|WipedNode|LeaderThatIsAlone|MembersChange|CatchesUpBySnapshot|FullDisksOfMembers|WithoutARound|BeforeItHasStored|OldReign|OfACluster
SOAK       ?= 10m
SCALE      ?= .
MATRIX     ?= standard
BENCH    = --matrix $(MATRIX) --markdown README.md

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

# Peers live here and not in the system, where installing some of them would start them.
CACHE     = $(CURDIR)/.cache
FIVEBEANS = $(CACHE)/fivebeans
AXE       = $(CACHE)/axe
export PATH := $(PATH):$(CACHE)/beanstalkd/usr/bin:$(CACHE)/prometheus/usr/bin:$(CACHE)/stunnel/usr/bin

.PHONY: always run build test crash cluster soak scale vuln deb release try bench micro fmt clean peers check cross unit race fuzz
.NOTPARALLEL:

run: bin/trellisd
	./bin/trellisd -V --http 127.0.0.1:11380 $(ARGS)

build: bin/trellisd bin/trellis

bin/%: $(SOURCES) bin/.ldflags
	CGO_ENABLED=0 $(GO) build -buildvcs=false -trimpath -ldflags '$(LDFLAGS)' -o $@ ./cmd/$*

# The commit may change without the sources.
bin/.ldflags: always
	@mkdir -p $(@D)
	@echo '$(LDFLAGS)' | cmp -s - $@ || echo '$(LDFLAGS)' >$@

test: peers build check cross unit race fuzz

check:
	$(GO) vet ./...
	@unformatted=$$($(GO) run $(GOFUMPT) -l $(DIRS)) && \
	if [ -n "$$unformatted" ]; then echo "not formatted, see make fmt:" $$unformatted; exit 1; fi
	$(GO) run $(STATICCHECK) ./...

cross:
	@for t in $(CROSS); do \
		echo "building for $$t"; \
		CGO_ENABLED=0 GOOS=$${t%/*} GOARCH=$${t#*/} $(GO) build ./... || exit 1; \
	done

unit race fuzz: export TRELLIS_NEED_PEERS = 1
unit race fuzz: export TRELLIS_FIVEBEANS = $(FIVEBEANS)
unit race fuzz: export TRELLIS_AXE = $(AXE)

# check vets. The limit of go test, 10 minutes for a package, is short on a machine that does
# much else.
TEST = $(GO) test -vet=off -count=1 -timeout 30m
unit:
	$(TEST) ./...

# What is tried at every byte and at every call in unit is tried at some of them here. The race
# detector has every process of a test end a second late, unless it is told otherwise.
race: export GORACE = atexit_sleep_ms=50
race:
	CGO_ENABLED=1 $(TEST) -short -race $(RACY)

# To make an input smaller that covers something new may take a minute, in which nothing else is tried.
# Before Go 1.27 the end of FUZZTIME may come as a failure, "context deadline exceeded":
# see go.dev/issue/75804. Inputs that fail say so.
fuzz:
	@targets=$$(grep -ro --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' $(DIRS) | sed 's|/[^/]*:func | |'); \
	if [ -z "$$targets" ]; then echo "there is nothing to fuzz"; exit 1; fi; \
	echo "$$targets" | while read -r dir name; do \
		echo "$(GO) test -fuzz $$name ./$$dir"; \
		out=$$($(GO) test -vet=off -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x ./$$dir 2>&1); status=$$?; \
		echo "$$out"; \
		if [ $$status = 0 ]; then continue; fi; \
		case "$$out" in *"Failing input"*) exit 1;; *"context deadline exceeded"*) ;; *) exit 1;; esac; \
	done

crash:
	CRASH_KILLS=$(CRASH_KILLS) $(GO) test -count=1 -timeout 0 -v -run KilledServer ./cmd/trellisd

cluster:
	CLUSTER=$(CLUSTER) $(GO) test -count=1 -timeout 0 -v -run '$(CLUSTER_TESTS)' ./cmd/trellisd

soak:
	SOAK=$(SOAK) $(GO) test -count=1 -timeout 0 -parallel 4 -v -run '^TestSoak$$' ./cmd/trellisd

# SCALE=waits measures one subject only, SCALE=waits/pause one part of it: see cmd/trellisd/scale_test.go.
scale:
	TRELLIS_SCALE=1 $(GO) test -count=1 -timeout 0 -v -run '^TestScale$$/$(SCALE)' ./cmd/trellisd

vuln:
	$(GO) run $(GOVULNCHECK) ./...

# What is missing comes from Debian's packages. Servers are only unpacked.
peers:
	@missing=; \
	command -v cc >/dev/null || missing="$$missing gcc libc6-dev"; \
	command -v node >/dev/null || missing="$$missing nodejs"; \
	command -v npm >/dev/null || missing="$$missing npm"; \
	command -v groff >/dev/null || missing="$$missing groff-base"; \
	command -v tmux >/dev/null || missing="$$missing tmux"; \
	command -v chromium >/dev/null || missing="$$missing chromium"; \
	ruby -e 'require "beaneater"' 2>/dev/null || missing="$$missing ruby ruby-beaneater"; \
	php -r 'require "Pheanstalk/autoload.php";' >/dev/null 2>&1 || missing="$$missing php-cli php-pda-pheanstalk"; \
	{ stunnel4 -version || ls /usr/lib/*/libwrap.so.0; } >/dev/null 2>&1 || missing="$$missing libwrap0"; \
	if [ -z "$$missing" ] && command -v beanstalkd >/dev/null && command -v prometheus >/dev/null && command -v stunnel4 >/dev/null; then exit 0; fi; \
	if ! command -v apt-get >/dev/null; then \
		echo "make test needs beanstalkd 1.12, Prometheus, stunnel4, Node, npm, Chromium, Ruby with beaneater, PHP with Pheanstalk, groff, tmux and a C compiler: install them"; exit 1; \
	fi; \
	if [ "$$(id -u)" = 0 ]; then \
		apt-get update && \
		if [ -n "$$missing" ]; then \
			DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $$missing; \
		fi || exit 1; \
	elif [ -n "$$missing" ]; then \
		echo "make test needs root, or first: apt-get install$$missing"; exit 1; \
	fi; \
	if ! command -v beanstalkd >/dev/null; then \
		mkdir -p $(CACHE)/beanstalkd && cd $(CACHE)/beanstalkd && \
		apt-get -o APT::Sandbox::User=root download beanstalkd && dpkg-deb -x beanstalkd_*.deb . && beanstalkd -v || exit 1; \
	fi; \
	if ! command -v prometheus >/dev/null; then \
		mkdir -p $(CACHE)/prometheus && cd $(CACHE)/prometheus && \
		apt-get -o APT::Sandbox::User=root download prometheus && dpkg-deb -x prometheus_*.deb . && promtool --version || exit 1; \
	fi; \
	if ! command -v stunnel4 >/dev/null; then \
		mkdir -p $(CACHE)/stunnel && cd $(CACHE)/stunnel && \
		apt-get -o APT::Sandbox::User=root download stunnel4 && dpkg-deb -x stunnel4_*.deb . && stunnel4 -version || exit 1; \
	fi
	@$(MAKE) --no-print-directory $(FIVEBEANS)/installed $(AXE)/installed

$(FIVEBEANS)/installed: $(addprefix cmd/trellisd/testdata/fivebeans/,package.json package-lock.json)
$(AXE)/installed: $(addprefix cmd/internal/console/testdata/axe/,package.json package-lock.json)
$(FIVEBEANS)/installed $(AXE)/installed:
	mkdir -p $(@D)
	cp $^ $(@D)
	cd $(@D) && npm ci --ignore-scripts --no-audit --no-fund
	touch $@

deb:
	$(release_env) $(RELEASE) bin/release deb $(ARCH)

release:
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

bench: peers build
	./bin/trellis bench compare $(BENCH)

micro:
	$(GO) test -run '^$$' -bench . -benchmem $(addprefix ./,$(addsuffix /...,$(DIRS)))

fmt:
	$(GO) run $(GOFUMPT) -w $(DIRS)

clean:
	rm -rf bin .cache
