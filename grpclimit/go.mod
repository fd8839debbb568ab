module github.com/slidegate/slidegate/grpclimit

go 1.25.0

require (
	github.com/redis/rueidis v1.0.79
	github.com/slidegate/slidegate v0.1.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20250528174236-200df99c418a
	google.golang.org/grpc v1.63.0 // the oldest that grpclimit can use
	google.golang.org/protobuf v1.36.6
)

require (
	golang.org/x/net v0.57.0 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.41.0 // indirect
)
