#!/bin/bash
# Tries a package as somebody would who sees it for the first time: on a root of
# its own it is installed, used, upgraded, removed and purged; once with systemd
# running there, and once without, where the server is started by hand with a
# socket passed to it.
#
#   try.sh OLD.deb NEW.deb CACHE
#
# CACHE keeps a bare Debian from one run to the next. It needs root, debootstrap,
# systemd-nspawn (packages debootstrap and systemd-container) and openssl.
set -euo pipefail
old=$1 new=$2 cache=$3 suite=${SUITE:-bookworm}
export LC_ALL=C

step() { echo "--- $*"; }
fail() { echo "FAILED: $*" >&2; exit 1; }

for tool in debootstrap systemd-nspawn nsenter perl openssl; do
    command -v $tool >/dev/null || fail "$tool is missing: apt-get install debootstrap systemd-container util-linux perl openssl"
done
[ "$(id -u)" = 0 ] || fail "this needs root"

bare=$cache/$suite.tar
if [ ! -f "$bare" ]; then
    step "making a bare Debian in $cache"
    mkdir -p "$cache"
    rm -rf "$bare.d"
    debootstrap --variant=minbase --include=systemd,adduser "$suite" "$bare.d" >"$cache/debootstrap.log"
    tar -C "$bare.d" -cf "$bare.part" .
    rm -rf "$bare.d"
    mv "$bare.part" "$bare"
fi

work=$(mktemp -d)
leader='' # the first process of the container, if there is one
hand=''   # the server that was started by hand
cleanup() {
    [ -z "$leader" ] || kill -KILL "$leader" 2>/dev/null || true
    [ -z "$hand" ] || kill -KILL "$hand" 2>/dev/null || true
    wait
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT

# fresh NAME: a root directory as Debian leaves it
fresh() {
    root=$work/$1
    mkdir "$root"
    tar -C "$root" -xf "$bare"
    mkdir "$root/packages"
    cp "$old" "$root/packages/old.deb"
    cp "$new" "$root/packages/new.deb"
    files >"$work/before"
}

# files lists what a package could leave behind.
files() {
    find "$root" -xdev \( -path "$root/var/lib/dpkg" -o -path "$root/var/log" -o -path "$root/var/cache" -o -path "$root/run" \
        -o -path "$root/tmp" -o -path "$root/var/tmp" -o -path "$root/var/lib/systemd" -o -path "$root/etc/machine-id" \
        -o -path "$root/proc" -o -path "$root/sys" -o -path "$root/dev" \
        -o -name '*-' -o -path "$root/etc/.pwd.lock" -o -path "$root/etc/.updated" -o -path "$root/var/.updated" \) -prune -o -print |
        sort
}

# inside COMMAND...: run it inside
inside() {
    set -- env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
    if [ -n "$leader" ]; then
        nsenter -t "$leader" -a -- "$@"
    else
        chroot "$root" "$@"
    fi
}

# says TEXT COMMAND...: the command's output holds the text
says() {
    local text=$1 out
    shift
    out=$("$@" 2>&1) || true
    [[ $out == *"$text"* ]] || fail "$*: said: $out; wanted: $text"
}

# running: the service serves
running() { inside systemctl is-active --quiet trellisd.service || fail "the service is $(inside systemctl is-active trellisd.service)"; }

# talk PORT LINES: what the server on this port answers to lines
talk() { inside bash -c "exec 3<>/dev/tcp/127.0.0.1/$1 && printf '$2' >&3 && cat <&3"; }

purged() {
    files >"$work/after"
    diff "$work/before" "$work/after" || fail "purging has left something behind, or taken it along"
    ! inside getent passwd trellis || fail "the user is still there"
}

step "with systemd: install"
fresh systemd
systemd-nspawn --quiet -D "$root" --private-network --register=no --keep-unit --boot --console=pipe </dev/null >"$work/console" 2>&1 &
nspawn=$!
for _ in $(seq 300); do
    leader=$(pgrep -P "$nspawn" || true)
    [ -n "$leader" ] && inside systemctl is-system-running 2>/dev/null | grep -qE 'running|degraded' && break
    sleep 0.1
done
[ -n "$leader" ] || fail "no container: $(cat "$work/console")"
inside dpkg -i /packages/old.deb >"$work/log" 2>&1 || fail "installing: $(cat "$work/log")"
running
says enabled inside systemctl is-enabled trellisd.service
says disabled inside systemctl is-enabled trellisd.socket
says ok inside bash -c 'exec 3<>/dev/tcp/127.0.0.1/11380 && printf "GET /readyz HTTP/1.0\r\n\r\n" >&3 && cat <&3'
says "trellis " inside stat -c '%U ' /proc/"$(inside systemctl show -P MainPID trellisd)"/status
inside trellis ping
says "INSERTED 1" talk 11300 'put 5 0 60 5\r\nhello\r\nquit\r\n'
says beanstalkd_jobs_total inside bash -c 'exec 3<>/dev/tcp/127.0.0.1/11380 && printf "GET /metrics HTTP/1.0\r\n\r\n" >&3 && cat <&3'
says 750 inside stat -c %a /var/lib/trellis

step "with systemd: tokens"
says "root trellis 750" inside stat -c '%U %G %a' /etc/trellis
# shellcheck disable=SC2016 # the shell inside expands it
inside sh -c 'echo "me $(trellis token new /root/me.token) all *" >/etc/trellis/auth'
inside cp /etc/default/trellisd /root/trellisd.default
inside sed -i 's|-V"$|-V --auth-file /etc/trellis/auth"|' /etc/default/trellisd
inside systemctl restart trellisd.service
inside trellis ping --token-file /root/me.token
says "wants a token" inside trellis ping
before=$(inside systemctl show -P MainPID trellisd)
inside sh -c 'echo oops >>/etc/trellis/auth'
! inside systemctl reload trellisd.service 2>/dev/null || fail "a reload that cannot succeed does"
running
# shellcheck disable=SC2016 # the shell inside expands it
inside sh -c 'echo "you $(trellis token new /root/you.token) all *" >/etc/trellis/auth'
inside systemctl reload trellisd.service
for _ in $(seq 100); do
    inside trellis ping --token-file /root/you.token 2>/dev/null && break
    sleep 0.1
done
says "auth-file  loaded" inside trellis reload --token-file /root/you.token
[ "$(inside systemctl show -P MainPID trellisd)" = "$before" ] || fail "a reload is a restart"
inside mv /root/trellisd.default /etc/default/trellisd
inside systemctl restart trellisd.service
inside rm /etc/trellis/auth /root/me.token /root/you.token

step "with systemd: TLS, and what the service may do"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=try -addext subjectAltName=IP:127.0.0.1 \
    -keyout "$root/etc/trellis/server.key" -out "$root/etc/trellis/server.pem" 2>"$work/log" || fail "a certificate: $(cat "$work/log")"
inside chown root:trellis /etc/trellis/server.key
inside chmod 640 /etc/trellis/server.key
inside cp /etc/default/trellisd /root/trellisd.default
inside sed -i 's|-V"$|-V --tls-listen 127.0.0.1 --tls-cert /etc/trellis/server.pem --tls-key /etc/trellis/server.key"|' /etc/default/trellisd
inside systemctl restart trellisd.service
inside trellis ping --tls --ca /etc/trellis/server.pem
inside trellis ping
inside mv /root/trellisd.default /etc/default/trellisd
inside systemctl restart trellisd.service
inside rm /etc/trellis/server.key /etc/trellis/server.pem
inside systemd-analyze security --no-pager --threshold=15 trellisd.service >"$work/log" || fail "the service may do too much: $(cat "$work/log")"
tail -n 1 "$work/log"

step "with systemd: upgrade"
inside sh -c 'echo "# mine" >>/etc/default/trellisd'
before=$(inside systemctl show -P MainPID trellisd)
inside dpkg -i /packages/new.deb >"$work/log" 2>&1 || fail "upgrading: $(cat "$work/log")"
running
[ "$(inside systemctl show -P MainPID trellisd)" != "$before" ] || fail "the old server still runs"
says "# mine" inside cat /etc/default/trellisd
says "FOUND 1 5" talk 11300 'peek 1\r\nquit\r\n'

step "with systemd: socket activation"
inside systemctl stop trellisd.service
inside systemctl enable --now trellisd.socket 2>/dev/null
says inactive inside systemctl is-active trellisd.service
inside trellis ping
running
inside systemctl restart trellisd.service
inside trellis ping

step "with systemd: remove and purge"
inside dpkg -r trellis >"$work/log" 2>&1 || fail "removing: $(cat "$work/log")"
! inside systemctl is-active --quiet trellisd.service || fail "the service still runs"
inside test -f /etc/default/trellisd || fail "removing has taken the configuration along"
inside test -d /var/lib/trellis || fail "removing has taken the jobs along"
inside dpkg -i /packages/new.deb >"$work/log" 2>&1 || fail "installing again: $(cat "$work/log")"
inside trellis ping
says "FOUND 1 5" talk 11300 'peek 1\r\nquit\r\n'
inside dpkg -P trellis >"$work/log" 2>&1 || fail "purging: $(cat "$work/log")"
purged
kill -KILL "$leader"
wait "$nspawn" 2>/dev/null || true
leader=''

step "without systemd: install, and start by hand with a socket"
fresh plain
inside dpkg -i /packages/new.deb >"$work/log" 2>&1 || fail "installing: $(cat "$work/log")"
port=$(perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1:0")->sockport')
perl -MIO::Socket::INET -MPOSIX -e '
    my ($port, $root, @command) = @ARGV;
    $^F = 9; # what is opened from now on stays open
    my $s = IO::Socket::INET->new(Listen => 128, LocalAddr => "127.0.0.1:$port", ReuseAddr => 1) or die $!;
    POSIX::dup2(fileno($s), 3) unless fileno($s) == 3;
    $ENV{LISTEN_FDS} = 1;
    $ENV{LISTEN_PID} = $$;
    exec "chroot", "--userspec=trellis:trellis", $root, @command;
' "$port" "$root" /usr/bin/trellisd -b /var/lib/trellis -V 2>"$work/log" &
hand=$!
for _ in $(seq 100); do
    inside trellis ping -a "127.0.0.1:$port" 2>/dev/null && break
    sleep 0.1
done
inside trellis ping -a "127.0.0.1:$port" || fail "no answer: $(cat "$work/log")"
says "INSERTED 1" talk "$port" 'put 5 0 60 5\r\nhello\r\nquit\r\n'
kill "$hand"
wait "$hand" || fail "stopping: exit status $?: $(cat "$work/log")"
hand=''

step "without systemd: manual pages, remove and purge"
inside sh -c 'test -s /usr/share/man/man8/trellisd.8.gz && test -s /usr/share/man/man1/trellis.1.gz' ||
    fail "no manual pages"
inside sh -c 'test -s /usr/share/doc/trellis/sbom.txt && test -s /usr/share/doc/trellis/cmd/doc/SECURITY.md' ||
    fail "nothing that the package can be checked by"
says "complete" inside cat /usr/share/bash-completion/completions/trellis
inside dpkg -r trellis >"$work/log" 2>&1 || fail "removing: $(cat "$work/log")"
inside dpkg -P trellis >"$work/log" 2>&1 || fail "purging: $(cat "$work/log")"
purged
echo "all went well"
