package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// interrupts returns a context that ends with the first signal that asks the process to end, and a channel that the second
// one closes. stop gives the signals back.
func interrupts() (ctx context.Context, hurry <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	second := make(chan struct{})
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup
		signal.Notify(signals, syscall.SIGHUP)
	}
	// With a handler, writing to a reader that has gone (lab up | head) is an error instead of the end of the shop.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	go func() {
		<-signals
		cancel()
		<-signals
		close(second)
	}()
	return ctx, second, func() { signal.Stop(signals); cancel() }
}
