package bulkhead

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/watertight/platform/rpcerr"
)

// Why a caller got no result. Each is a gRPC status error with its reason, so that a server may return it as it is.
var (
	// ErrFull means that every slot and every place in the queue was taken. The work was never started.
	ErrFull = rpcerr.New(codes.ResourceExhausted, rpcerr.BulkheadFull, "all workers are busy and the queue is full",
		rpcerr.RetryAfter(time.Second))
	// ErrExpired means that the caller's deadline passed before it had a slot. The work was never started.
	ErrExpired = rpcerr.New(codes.DeadlineExceeded, rpcerr.Timeout, "the deadline passed before a worker was free")
	// ErrCancelled means that the caller went away before it had a slot. The work was never started.
	ErrCancelled = status.Error(codes.Canceled, "the caller went away before a worker was free")
	// ErrTimedOut means that the caller's deadline passed while the work was running. The work may still take effect.
	ErrTimedOut = rpcerr.New(codes.DeadlineExceeded, rpcerr.Timeout, "the deadline passed before the work was done")
	// ErrAbandoned means that the caller went away while the work was running. The work may still take effect.
	ErrAbandoned = status.Error(codes.Canceled, "the caller went away before the work was done")
	// ErrGoexit means that the work ended its own goroutine (runtime.Goexit) instead of returning.
	ErrGoexit = rpcerr.New(codes.Internal, rpcerr.Internal, "internal error")
)

// PanicError is what Do returns for work that panicked.
type PanicError struct {
	Value any    // what the work panicked with
	Stack []byte // of the work's goroutine, at the panic
}

// Error includes the stack: it is meant for a log.
func (e *PanicError) Error() string { return fmt.Sprintf("work panicked: %v\n%s", e.Value, e.Stack) }

// GRPCStatus is what a client gets to see: INTERNAL, and nothing of the panic.
func (e *PanicError) GRPCStatus() *status.Status { return status.Convert(ErrGoexit) }

// Unwrap returns the panic's value when that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// reason is why a caller was rejected without having a slot.
type reason int

const (
	full reason = iota
	expired
	cancelled
	reasons
)

// alive means not rejected.
const alive reason = -1

// why reads a context's error.
func why(ctxErr error) reason {
	if errors.Is(ctxErr, context.DeadlineExceeded) {
		return expired
	}
	return cancelled
}

func (r reason) err() error {
	return [reasons]error{full: ErrFull, expired: ErrExpired, cancelled: ErrCancelled}[r]
}

func (r reason) String() string {
	return [reasons]string{full: "full", expired: "expired", cancelled: "cancelled"}[r]
}
