package shop

import (
	"fmt"
	"net"
	"slices"
)

// CheckPorts returns an error for the first address, of the broker and of processes, on which something listens already.
func (o Options) CheckPorts(processes []Process) error {
	if err := free("NATS", address(o.NATSPort())); err != nil {
		return err
	}
	for _, p := range processes {
		var protocols []string
		for protocol := range p.Addresses {
			protocols = append(protocols, protocol)
		}
		slices.Sort(protocols)
		for _, protocol := range protocols {
			if err := free(p.Name+" "+protocol, p.Addresses[protocol]); err != nil {
				return err
			}
		}
	}
	return nil
}

func free(who, address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("the address for %s is taken (%w); end the program that listens there, or move the shop with --port-offset", who, err)
	}
	return listener.Close()
}
