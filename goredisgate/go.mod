module github.com/slidegate/slidegate/goredisgate

go 1.25.0

require (
	github.com/redis/go-redis/v9 v9.20.0 // the oldest that goredisgate can use
	github.com/redis/rueidis v1.0.79
	github.com/slidegate/slidegate v0.1.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
)
