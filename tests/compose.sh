#!/usr/bin/env bash
# docker-compose.yml with the real docker daemon and compose, also where no image can be pulled: then images under the
# same names are made here, from Debian's packages (debootstrap), the cached mongod and the npm package of mongosh.
# By hand, as root; not part of CI. Stand-ins are only made for names that docker does not have and cannot pull.
#
#   tests/compose.sh          up, a driver's round trip over both shards, restart of the router, down
#   tests/compose.sh clean    removes the stand-in images again
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cache=${POINTSMAN_CACHE:-$HOME/.cache/pointsman}
project=pointsman-compose-test
port=${POINTSMAN_PORT:-27117}
export POINTSMAN_PORT=$port
work=$(mktemp -d)
started_docker=""

say() { printf 'compose: %s\n' "$*" >&2; }
compose() { if docker compose version >/dev/null 2>&1; then docker compose -p "$project" "$@"; else docker-compose -p "$project" "$@"; fi; }

finish() {
    local status=$?
    [ "$status" = 0 ] || compose logs --tail 40 2>/dev/null || true
    compose down --volumes --remove-orphans >/dev/null 2>&1 || true
    if [ -n "$started_docker" ]; then kill "$started_docker" 2>/dev/null || true; fi
    rm -rf "$work"
    exit "$status"
}
trap finish EXIT

need() {
    [ "$(id -u)" = 0 ] || { say "run as root: it may start dockerd and make root file systems"; exit 1; }
    command -v docker >/dev/null || apt-get install -y -qq docker.io >&2
    docker compose version >/dev/null 2>&1 || command -v docker-compose >/dev/null || apt-get install -y -qq docker-compose >&2
    if ! docker info >/dev/null 2>&1; then
        say "starting dockerd"
        dockerd >"$work/dockerd.log" 2>&1 &
        started_docker=$!
        for _ in $(seq 100); do
            docker info >/dev/null 2>&1 && return
            sleep 0.2
        done
        tail -n 20 "$work/dockerd.log" >&2
        exit 1
    fi
}

# have NAME: docker has the image or can pull it.
have() { docker image inspect "$1" >/dev/null 2>&1 || docker pull -q "$1" >/dev/null 2>&1; }

debian() {
    command -v debootstrap >/dev/null || apt-get install -y -qq debootstrap >&2
    debootstrap --variant=minbase --include=ca-certificates,libcurl4,nodejs,gcc,libc6-dev,make bookworm "$work/debian" >&2
}

stand_ins() {
    local made="" registry
    if ! have debian:bookworm-slim; then
        say "no debian:bookworm-slim: making a stand-in"
        [ -d "$work/debian" ] || debian
        tar -C "$work/debian" -c . | docker import --change 'CMD ["bash"]' - debian:bookworm-slim >/dev/null
        made+=" debian:bookworm-slim"
    fi
    if ! have mongo:6.0; then
        say "no mongo:6.0: making a stand-in of mongod $("$(./dev mongod-path)" --version | head -n1) and npm's mongosh"
        [ -d "$work/debian" ] || debian
        ./dev mongosh-path >"$work/mongosh"
        mkdir -p "$work/mongo"
        cp "$(./dev mongod-path)" "$work/mongo/mongod"
        cp -r "$(dirname "$(dirname "$(cat "$work/mongosh")")")" "$work/mongo/node_modules"
        cat >"$work/mongo/Dockerfile" <<'IMAGE'
FROM debian:bookworm-slim
COPY mongod /usr/bin/mongod
COPY node_modules /opt/node_modules
RUN ln -s /opt/node_modules/.bin/mongosh /usr/bin/mongosh && mkdir -p /data/db /data/configdb
IMAGE
        docker build -q -t mongo:6.0 "$work/mongo" >/dev/null
        made+=" mongo:6.0"
    fi
    if ! have rust:1.95-bookworm; then
        say "no rust:1.95-bookworm: making a stand-in of this machine's toolchain and crates"
        cargo fetch --locked
        registry=${CARGO_HOME:-$HOME/.cargo}/registry
        mkdir -p "$work/rust"
        cp -r "$(rustc --print sysroot)" "$work/rust/toolchain"
        cp -r "$registry" "$work/rust/registry"
        cat >"$work/rust/Dockerfile" <<'IMAGE'
FROM debian:bookworm-slim
COPY toolchain /opt/rust
COPY registry /opt/cargo/registry
ENV PATH=/opt/rust/bin:$PATH CARGO_HOME=/opt/cargo CARGO_NET_OFFLINE=true
IMAGE
        docker build -q -t rust:1.95-bookworm "$work/rust" >/dev/null
        made+=" rust:1.95-bookworm"
    fi
    [ -z "$made" ] || { mkdir -p "$cache" && printf '%s\n' "$made" >>"$cache/compose-stand-ins"; }
}

if [ "${1:-}" = clean ]; then
    need
    # shellcheck disable=SC2046 # a list of names
    [ ! -s "$cache/compose-stand-ins" ] || docker image rm -f $(cat "$cache/compose-stand-ins")
    rm -f "$cache/compose-stand-ins"
    exit 0
fi

need
stand_ins
compose config >/dev/null
compose up --detach --build

shell() { "$(./dev mongosh-path)" --quiet "mongodb://127.0.0.1:$port/compose" --eval "$1"; }
for _ in $(seq 120); do
    shards=$(shell 'db.adminCommand({listShards: 1}).shards.length' 2>/dev/null || true)
    [ "$shards" = 2 ] && break
    sleep 1
done
[ "$shards" = 2 ] || { say "the shards were not added"; exit 1; }

# shellcheck disable=SC2016 # the $ are mongosh's
check='sh.shardCollection("compose.c", {n: "hashed"});
db.c.insertMany(Array.from({length: 500}, (_, n) => ({n})), {ordered: false});
const counts = db.c.aggregate([{$count: "n"}]).toArray()[0].n;
const last = db.c.find().sort({n: -1}).limit(1).next().n;
const parts = Object.keys(db.c.stats().shards).length;
print(`${counts} documents, last ${last}, on ${parts} shards`)'
[ "$(shell "$check" | tail -n1)" = "500 documents, last 499, on 2 shards" ] || { say "wrong answers"; shell "$check"; exit 1; }

compose restart pointsman
for _ in $(seq 60); do
    [ "$(shell 'db.c.countDocuments({})' 2>/dev/null || true)" = 500 ] && break
    sleep 1
done
[ "$(shell 'db.c.countDocuments({})')" = 500 ] || { say "the data is gone after a restart of the router"; exit 1; }
say "all passed"
