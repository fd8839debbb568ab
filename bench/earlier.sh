#!/bin/sh
# Runs the bench with both the current and an earlier revision of the library. The rows of the
# earlier one are "window before", "window, go-redis before" and "login before".
#
#	./earlier.sh REVISION [flags] [parts]
#
# It copies the earlier revision to a temporary directory, under another module path. It changes
# nothing in this repository.
set -eu
[ $# -gt 0 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
cd "$(dirname "$0")"
revision=$1 here=$PWD
shift
commit=$(git rev-parse --short --verify "$revision^{commit}")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM

mkdir "$dir/before"
git -C .. archive "$commit" | tar -x -C "$dir/before"
find "$dir/before" \( -name '*.go' -o -name go.mod \) -exec sed -i.old 's#github\.com/slidegate/slidegate#slidegate.before/slidegate#g' {} +

cp go.mod go.sum "$dir"
GOWORK=off go mod edit -require=slidegate.before/slidegate@v0.0.0 -replace="slidegate.before/slidegate=$dir/before" \
	-require=slidegate.before/slidegate/goredisgate@v0.0.0 -replace="slidegate.before/slidegate/goredisgate=$dir/before/goredisgate" \
	-replace="github.com/slidegate/slidegate=${here%/*}" -replace="github.com/slidegate/slidegate/goredisgate=${here%/*}/goredisgate" \
	-replace="github.com/slidegate/slidegate/cmd/slidegate=${here%/*}/cmd/slidegate" "$dir/go.mod"

# What the earlier revision's New takes for a rueidis client, and how it creates a limiter on go-redis.
on='window.On(client)' onGoRedis='goredisgate.On(client)' new=New
if git grep -q '^func NewOn(' "$commit" -- ../window; then
	on=client onGoRedis='must(goredisgate.Connect(client))' new=NewOn
fi

cat >"$dir/earlier.go" <<GO
package main

import (
	"context"
	"net/netip"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"slidegate.before/slidegate/goredisgate"
	"slidegate.before/slidegate/login"
	"slidegate.before/slidegate/window"
)

func init() {
	earlier.window = func(client rueidis.Client) maker {
		return making(func(cfg window.Config) *window.Limiter { return must(window.New($on, cfg)) })
	}
	earlier.onGoRedis = func(client redis.UniversalClient) maker {
		conn := $onGoRedis
		return making(func(cfg window.Config) *window.Limiter { return must(window.$new(conn, cfg)) })
	}
	earlier.login = func(client rueidis.Client) ask {
		guard := must(login.New($on, login.Config{Name: "login", Secret: []byte("sixteen bytes, or more")}))
		return func(ctx context.Context, event string) (bool, error) {
			a, err := guard.Begin(ctx, "account of "+event, netip.MustParseAddr(event))
			if err != nil {
				return false, err
			}
			return a.Allowed, a.Succeed(ctx)
		}
	}
}

func making(limiter func(window.Config) *window.Limiter) maker {
	return func(texts []string, now func() time.Time) ask {
		cfg := window.Config{Name: "login", Now: now}
		for _, text := range texts {
			cfg.Limits = append(cfg.Limits, must(window.ParseLimit(text)))
		}
		l := limiter(cfg)
		return func(ctx context.Context, event string) (bool, error) {
			d, err := l.Allow(ctx, event)
			return d.Allowed, err
		}
	}
}
GO
echo "{\"Replace\": {\"$here/earlier.go\": \"$dir/earlier.go\"}}" >"$dir/overlay.json"

GOWORK=off go build -mod=mod -modfile="$dir/go.mod" -overlay="$dir/overlay.json" -o "$dir/bench" .
echo "\"window before\" is window at $commit" >&2
"$dir/bench" "$@"
