module github.com/slidegate/slidegate/grpclimit

go 1.25.0

require (
	github.com/redis/rueidis v1.0.79
	github.com/slidegate/slidegate v0.1.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260414002931-afd174a4e478
	google.golang.org/grpc v1.82.1 // the oldest without a known vulnerability that grpclimit can reach
	google.golang.org/protobuf v1.36.11
)

require (
	golang.org/x/net v0.57.0 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.41.0 // indirect
)
