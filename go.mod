module github.com/slidegate/slidegate

go 1.25.0

require (
	github.com/dunglas/httpsfv v1.1.2
	github.com/felixge/httpsnoop v1.1.0
	github.com/google/go-cmp v0.7.0
	github.com/redis/rueidis v1.0.79
	golang.org/x/sync v0.22.0 // the newest for Go 1.25
)

require golang.org/x/sys v0.47.0 // indirect
