#!/bin/bash
# Builds what is given away, from the sources in the current directory. The same
# sources, revision and Go make the same files, byte by byte, wherever they are
# built: what is recorded of the time is the revision's.
#
#   release.sh DIR archive OS/ARCH...   trellis-VERSION-OS-ARCH.tar.gz
#   release.sh DIR deb ARCH...          trellis_VERSION_ARCH.deb
#
# make release and make deb call it. It takes from the environment: GO, VERSION,
# COMMIT, SOURCE_DATE_EPOCH (seconds since 1970), NFPM, and needs GNU tar.
set -euo pipefail
umask 022
export LC_ALL=C TZ=UTC SOURCE_DATE_EPOCH CGO_ENABLED=0
: "${GO:=go}" "${VERSION:?}" "${SOURCE_DATE_EPOCH:?}"
DATE=$(date -u -d "@$SOURCE_DATE_EPOCH" +%F)
DEPLOY=cmd/trellisd/deploy

# binaries OS ARCH DIR: the programs, and what they are made of
binaries() {
    local x="-s -w -X main.version=$VERSION"
    [ -z "${COMMIT:-}" ] || x="$x -X main.commit=$COMMIT -X main.date=$DATE"
    GOOS=$1 GOARCH=$2 "$GO" build -trimpath -buildvcs=false -ldflags "$x" -o "$3/" ./cmd/trellisd ./cmd/trellis
    (cd "$3" && "$GO" version -m trellisd trellis) >"$3/sbom.txt"
}

# documents DIR: manual pages and completions, which are the same everywhere
documents() {
    mkdir -p "$1/man" "$1/completion"
    "$GO" run ./cmd/trellisd/internal/manpage "$VERSION" "$DATE" >"$1/man/trellisd.8"
    local trellis=$1/trellis
    "$GO" build -tags manpages -ldflags "-X main.version=$VERSION" -o "$trellis" ./cmd/trellis
    "$trellis" manpages "$1/man"
    "$trellis" completion bash >"$1/completion/trellis.bash"
    "$trellis" completion zsh >"$1/completion/_trellis"
    "$trellis" completion fish >"$1/completion/trellis.fish"
    rm "$trellis"
}

# archive DIR OS ARCH
archive() {
    local name=trellis-$VERSION-$2-$3
    mkdir "$work/$name"
    binaries "$2" "$3" "$work/$name"
    cp -R "$work/documents/man" "$work/documents/completion" "$work/$name"
    cp --parents README.md cmd/doc/*.md bench/RESULTS.md "$work/$name"
    cp -R $DEPLOY/prometheus $DEPLOY/grafana $DEPLOY/systemd "$work/$name"
    cp -RL $DEPLOY/helm "$work/$name" # links of the chart lead to files beside it
    tar -C "$work" --sort=name --format=ustar --owner=0 --group=0 --numeric-owner --mode=go=rX,u+rw \
        --mtime="@$SOURCE_DATE_EPOCH" -cf - "$name" | gzip -9n >"$1/$name.tar.gz"
    echo "$1/$name.tar.gz"
}

# deb DIR ARCH
deb() {
    local root=$work/deb-$2
    mkdir -p "$root"
    binaries linux "$2" "$root"
    mkdir "$root/documents"
    cp --parents README.md cmd/doc/*.md bench/RESULTS.md "$root/documents"
    cp -R $DEPLOY/debian $DEPLOY/prometheus $DEPLOY/grafana $DEPLOY/systemd \
        "$work/documents/man" "$work/documents/completion" "$root"
    printf 'trellis (%s) unstable; urgency=medium\n\n  * Version %s.\n\n -- %s  %s\n' "$VERSION" "$VERSION" \
        "$(sed -n 's/^maintainer: *//p' $DEPLOY/debian/nfpm.yaml)" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" >"$root/changelog"
    gzip -9n "$root"/man/* "$root/changelog"
    find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    local out
    out=$(realpath "$1")
    (cd "$root" && ARCH=$2 ${NFPM:?} package -f debian/nfpm.yaml -p deb -t "$out" >/dev/null)
    echo "$1/trellis_${VERSION}_$2.deb"
}

dir=$1 kind=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$dir"
documents "$work/documents"
for target; do
    case $kind in
    archive) archive "$dir" "${target%/*}" "${target#*/}" ;;
    deb) deb "$dir" "$target" ;;
    esac
done
