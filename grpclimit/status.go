package grpclimit

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/slidegate/slidegate/internal/adapter"
	"github.com/slidegate/slidegate/window"
)

// The first three errors are InvalidArgument: such a call fails regardless of the counts, so no
// client should retry it. A missing key is not Unauthenticated, because a Key need not be a
// credential, and clients would renew their tokens.
var (
	errNoKey     = status.Error(codes.InvalidArgument, "the call has no key to count it by: a required metadata value or IP address is missing, or a metadata value occurs several times")
	errNoCost    = status.Error(codes.InvalidArgument, "the call has a negative cost")
	errTooCostly = status.Error(codes.InvalidArgument, "the call costs more units than a limit ever allows at once")
	errBlocked   = status.Error(codes.PermissionDenied, "the call is not accepted, and waiting does not change that")
	errOutage    = withDetails(codes.Unavailable, "calls cannot be counted at the moment; try again soon", retryInfo(time.Second))
)

// denial returns the status for a denied call, which specifies when to retry and which limits
// denied the call. It returns nil if the call is allowed.
func denial(d window.Decision) error {
	switch {
	case d.Allowed:
		return nil
	case adapter.DeniesForever(d):
		return errBlocked
	}
	quota := &errdetails.QuotaFailure{}
	for _, u := range d.Usage {
		if u.RetryAfter > 0 {
			quota.Violations = append(quota.Violations, &errdetails.QuotaFailure_Violation{
				Description: "the limit " + u.Limit.Label() + " has too few units left", QuotaId: u.Limit.Label(), QuotaValue: u.Limit.Max,
			})
		}
	}
	return withDetails(codes.ResourceExhausted, "too many calls; retry after "+d.RetryAfter.String(), retryInfo(d.RetryAfter), quota)
}

func retryInfo(after time.Duration) *errdetails.RetryInfo {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(after)}
}

// withDetails returns the error for a status with details. It panics if protobuf cannot encode a
// detail, which would be a bug in this package.
func withDetails(code codes.Code, text string, details ...protoadapt.MessageV1) error {
	s, err := status.New(code, text).WithDetails(details...)
	if err != nil {
		panic(err)
	}
	return s.Err()
}

// pushBack sets the trailer grpc-retry-pushback-ms to the delay in RetryInfo, in whole
// milliseconds, and returns err. Clients that have a retry policy wait that long. If err is nil or
// has no RetryInfo, pushBack sets no trailer. gRFC A6 defines the value as a signed 32-bit number,
// so some clients do not retry if the delay is more than 24 days.
func pushBack(ctx context.Context, err error) error {
	if wait, ok := retryDelay(err); ok {
		// SetTrailer fails only outside a server.
		_ = grpc.SetTrailer(ctx, metadata.Pairs("grpc-retry-pushback-ms", strconv.FormatInt(wait.Milliseconds(), 10)))
	}
	return err
}

// retryDelay returns the delay in the RetryInfo of err's status, and whether there is one.
func retryDelay(err error) (wait time.Duration, ok bool) {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration(), true
		}
	}
	return 0, false
}
