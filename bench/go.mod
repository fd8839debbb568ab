module github.com/slidegate/slidegate/bench

go 1.25.0

require (
	github.com/go-redis/redis_rate/v10 v10.0.1
	github.com/google/go-cmp v0.7.0
	github.com/redis/go-redis/v9 v9.20.0 // the oldest that goredisgate can use
	github.com/redis/rueidis v1.0.79
	github.com/slidegate/slidegate v0.1.0
	github.com/slidegate/slidegate/cmd/slidegate v0.1.0
	github.com/slidegate/slidegate/goredisgate v0.1.0
	github.com/throttled/throttled/v2 v2.15.0
	github.com/ulule/limiter/v3 v3.11.2
	golang.org/x/sync v0.22.0 // the newest for Go 1.25
	golang.org/x/time v0.15.0 // the newest for Go 1.25
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dunglas/httpsfv v1.1.2 // indirect
	github.com/felixge/httpsnoop v1.1.0 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
)
