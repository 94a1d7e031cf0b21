package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/watertight/platform/rpcerr"
)

// ErrOutcomeUnknown says that the connection was lost, or time ran out, after COMMIT was sent: the transaction may or may
// not have happened. Only a look into the database, by a key the caller knows, can tell.
var ErrOutcomeUnknown = errors.New("postgres: outcome of the commit unknown")

// errNoConnection says that no connection could be had before the context ended.
var errNoConnection = errors.New("postgres: no connection in time")

// Unavailable reports whether err says that the database could not be reached, refused work for now, or did not finish
// in the time it was given; the same call may succeed later. A statement cancelled because the caller left looks the
// same on the wire, so callers look at their context first (RPCError does).
func Unavailable(err error) bool {
	if err == nil {
		return false
	}
	if server := serverError(err); server != nil {
		return unavailableState(server.Code)
	}
	var network net.Error
	return errors.Is(err, ErrOutcomeUnknown) || errors.Is(err, errNoConnection) ||
		errors.As(err, new(*pgconn.ConnectError)) || errors.Is(err, pgconn.ErrConnClosed) ||
		errors.As(err, &network) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed)
}

// unavailableState knows the SQLSTATEs that mean "not now".
// https://www.postgresql.org/docs/current/errcodes-appendix.html
func unavailableState(code string) bool {
	switch {
	case strings.HasPrefix(code, "08"), // connection exceptions
		strings.HasPrefix(code, "53"),  // out of connections, memory, disk
		strings.HasPrefix(code, "57P"), // shutting down, crashed, starting, database dropped, idle session ended
		code == "57014",                // statement_timeout
		code == "55P03",                // lock_timeout
		code == "25P03",                // idle_in_transaction_session_timeout
		code == "25006",                // read only: a standby that is not promoted yet
		conflict(code):
		return true
	}
	return false
}

// conflict reports the two SQLSTATEs after which the same transaction, run again, is expected to succeed.
func conflict(code string) bool {
	return code == "40001" || code == "40P01" // serialization failure, deadlock
}

// RPCError turns the error of a gRPC handler into what its server answers, for rpc.ServerDeps.MapError: the status of ctx if that
// has ended (whatever err says came of it), UNAVAILABLE without internals if the database is away, else err itself. The cause
// stays reachable by errors.As.
func RPCError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case Unavailable(err):
		return &unavailable{status: rpcerr.New(codes.Unavailable, rpcerr.Unavailable, "the database is unavailable"), cause: err}
	default:
		return err
	}
}

// unavailable shows clients only its status, and programs its cause.
type unavailable struct {
	status error
	cause  error
}

func (u *unavailable) Error() string              { return u.status.Error() }
func (u *unavailable) GRPCStatus() *status.Status { return status.Convert(u.status) }
func (u *unavailable) Unwrap() error              { return u.cause }
