// Package adapter holds what middleware for HTTP and for gRPC have in common. In its comments, a
// request is an HTTP request or a gRPC call. Read its files in this order:
//
//   - limiter.go: the limiters Unlimited and Blocked, and checks of a program's limiters
//   - key.go: how event keys are combined, and why a request has none
//   - outages.go: what happens to a request while its limiter does not answer, and what is logged
//   - place.go: a place in flight, which a request holds until it is over
//   - inbound.go: places for the requests that a server receives
//   - outbound.go: places and turns for the requests that a fleet sends to a service
//   - problem.go: how a request is refused over HTTP
package adapter
