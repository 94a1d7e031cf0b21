package shop

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// Ports are the addresses of the shop, kept for its processes.
type Ports []io.Closer

// HoldPorts takes the addresses of the broker, of what keeps traces and of processes, or returns an error for the first that is taken. While they
// are held, a process of the shop may listen there and, on Linux, no outgoing connection of this machine is given one of
// their ports: they lie where Linux takes such ports from, and a process that died would find its own gone when it is
// started again.
func (o Options) HoldPorts(processes []Process) (Ports, error) {
	var held Ports
	take := func(who, address string) error {
		port, err := hold(address)
		if err != nil {
			return fmt.Errorf("the address for %s is taken (%w); end the program that listens there, or move the shop with --port-offset", who, err)
		}
		held = append(held, port)
		return nil
	}
	if err := take("NATS", address(o.NATSPort())); err != nil {
		return nil, err
	}
	if o.Traces {
		if err := errors.Join(take("traces", o.OTLPAddress()), take("Jaeger", o.JaegerAddress())); err != nil {
			held.Release()
			return nil, err
		}
	}
	for _, p := range processes {
		for _, protocol := range slices.Sorted(maps.Keys(p.Addresses)) {
			if err := take(p.Name+" "+protocol, p.Addresses[protocol]); err != nil {
				held.Release()
				return nil, err
			}
		}
	}
	return held, nil
}

// Release gives the addresses back.
func (p Ports) Release() {
	for _, port := range p {
		_ = port.Close() // nothing was written to it
	}
}
