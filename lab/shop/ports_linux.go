package shop

import (
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
)

// hold binds a socket and does not listen. SO_REUSEADDR, which Go's listeners set too, lets one listener bind beside it.
func hold(address string) (io.Closer, error) {
	at, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		return nil, err
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	socket := os.NewFile(uintptr(fd), address)
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return nil, closed(socket, os.NewSyscallError("setsockopt", err))
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: at.Port, Addr: [4]byte(at.IP.To4())}); err != nil {
		return nil, closed(socket, fmt.Errorf("%s: %w", address, os.NewSyscallError("bind", err)))
	}
	return socket, nil
}

func closed(socket io.Closer, err error) error {
	_ = socket.Close() // err is what went wrong
	return err
}
