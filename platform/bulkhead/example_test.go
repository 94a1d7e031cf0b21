package bulkhead_test

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/status"

	"example.com/watertight/platform/bulkhead"
	"example.com/watertight/platform/rpcerr"
)

// Work that honours its context takes a slot and gives it back.
func ExampleBulkhead_Acquire() {
	pool, err := bulkhead.New("recs", bulkhead.Config{Size: 1, Queue: 0}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	serve := func(ctx context.Context) error {
		slot, err := pool.Acquire(ctx)
		if err != nil {
			return err // a status error that a gRPC server may return as it is
		}
		defer slot.Release()
		if pool.Stats().Queued == 0 {
			_, err = pool.Acquire(ctx) // somebody else comes while the only slot is taken
		}
		return err
	}
	err = serve(context.Background())
	delay, _ := rpcerr.Delay(err)
	fmt.Println(status.Code(err), rpcerr.Reason(err), delay)
	fmt.Println("in flight:", pool.Stats().InFlight)
	// Output:
	// ResourceExhausted BULKHEAD_FULL 1s
	// in flight: 0
}

// Work that may ignore its context runs under Do: the caller leaves at its deadline, the slot stays taken.
func ExampleDo() {
	pool, err := bulkhead.New("recs", bulkhead.Config{Size: 1, Queue: 0}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	finish, finished := make(chan struct{}), make(chan struct{})
	_, err = bulkhead.Do(ctx, pool, 5*time.Millisecond, func(context.Context) (string, error) {
		defer close(finished)
		<-finish // deaf to the signal after 5 ms
		return "too late", nil
	})
	fmt.Println(err == bulkhead.ErrTimedOut, "in flight:", pool.Stats().InFlight, "abandoned:", pool.Stats().Abandoned)

	_, err = pool.Acquire(context.Background())
	fmt.Println(err == bulkhead.ErrFull)
	close(finish)
	<-finished
	// Output:
	// true in flight: 1 abandoned: 1
	// true
}
