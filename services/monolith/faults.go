package monolith

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"example.com/watertight/platform/fault"
)

// faults are the injectors of the services that run here, by name; none when faults are disabled. Each is sick by itself,
// in the slot of its request; but a fault that ends the process ends it for all.
type faults map[string]*fault.Injector

// unary applies the fault of the service that the method belongs to.
func (f faults) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if injector := f[serviceOf(info.FullMethod)]; injector != nil {
		return injector.Unary(ctx, req, info, handler)
	}
	return handler(ctx, req)
}

// readFaults looks before the process serves, and follows what changes from then on. A start that a fault forbids is
// announced all the same, or nobody could count it.
func (m *Monolith) readFaults(ctx context.Context) error {
	reading, each := errgroup.WithContext(ctx)
	for name, injector := range m.faults {
		reading.Go(func() error { return injector.Read(each) })
		m.process.Worker("faults of "+name, injector.Run)
	}
	err := reading.Wait()
	if errors.Is(err, fault.ErrCrashOnStart) {
		return errors.Join(err, m.announcer.Announce(ctx))
	}
	return err
}
