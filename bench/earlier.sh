#!/bin/sh
# Runs the bench with both the current and an earlier revision of the library. The rows of the
# earlier one end in "before", such as "pace before". They are in throughput, except "inflight
# before", which is in inflight. "window before" is also in hot and server.
#
#	./earlier.sh REVISION [flags] [parts]
#
# It copies the earlier revision to a temporary directory, under another module path. It changes
# nothing in this repository.
set -eu
[ $# -gt 0 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
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

	"slidegate.before/slidegate/ar1"
	"slidegate.before/slidegate/goredisgate"
	"slidegate.before/slidegate/login"
	"slidegate.before/slidegate/window"
)

func init() {
	earlier.window = func(client rueidis.Client) maker {
		return making(func(cfg window.Config) (*window.Limiter, error) { return window.New($on, cfg) })
	}
	earlier.onGoRedis = func(client redis.UniversalClient) maker {
		conn := $onGoRedis
		return making(func(cfg window.Config) (*window.Limiter, error) { return window.$new(conn, cfg) })
	}
	earlier.local = func(rueidis.Client) maker { return making(window.NewLocal) }
	earlier.ar1 = func(client rueidis.Client) maker {
		return making(func(cfg window.Config) (*ar1.Limiter, error) {
			for i := range cfg.Limits {
				cfg.Limits[i].Resolution = 0
			}
			return ar1.New($on, ar1.Config{Name: cfg.Name, Limits: cfg.Limits, Now: cfg.Now})
		})
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

func config(texts []string, now func() time.Time) window.Config {
	cfg := window.Config{Name: "login", Now: now}
	for _, text := range texts {
		cfg.Limits = append(cfg.Limits, must(window.ParseLimit(text)))
	}
	return cfg
}

func making[L interface {
	Allow(ctx context.Context, event string) (window.Decision, error)
}](limiter func(window.Config) (L, error)) maker {
	return func(texts []string, now func() time.Time) ask {
		l := must(limiter(config(texts, now)))
		return func(ctx context.Context, event string) (bool, error) {
			d, err := l.Allow(ctx, event)
			return d.Allowed, err
		}
	}
}
GO

# The packages that came later than the others.
echo 'package main' >"$dir/later.go"
[ ! -d "$dir/before/pace" ] || cat >"$dir/later.go" <<GO
package main

import (
	"context"
	"time"

	"github.com/redis/rueidis"

	"slidegate.before/slidegate/inflight"
	"slidegate.before/slidegate/pace"
	"slidegate.before/slidegate/window"
)

func init() {
	earlier.pace = func(client rueidis.Client) maker {
		return func(texts []string, now func() time.Time) ask {
			l := must(pace.New(window.On(client), pace.Config{Name: "login", Limits: config(texts, now).Limits, Now: now}))
			return func(ctx context.Context, event string) (bool, error) {
				r, err := l.Reserve(ctx, event)
				return r.OK, err
			}
		}
	}
	earlier.inflight = func(client rueidis.Client) ask {
		l := must(inflight.New(window.On(client), inflight.Config{Name: "jobs", Max: 1000}))
		return func(ctx context.Context, event string) (bool, error) {
			lease, _, err := l.TryAcquire(ctx, event)
			if lease == nil {
				return false, err
			}
			return true, lease.Release(ctx)
		}
	}
}
GO
echo "{\"Replace\": {\"$here/earlier.go\": \"$dir/earlier.go\", \"$here/later.go\": \"$dir/later.go\"}}" >"$dir/overlay.json"

GOWORK=off go build -mod=mod -modfile="$dir/go.mod" -overlay="$dir/overlay.json" -o "$dir/bench" .
echo "\"window before\" is window at $commit" >&2
"$dir/bench" "$@"
