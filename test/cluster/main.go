// Command cluster brings up a one-node Kubernetes on this machine, gives it images, and takes it away. It is for the
// machine of a test: root, Linux, no container engine and no registry needed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"example.com/watertight/test/cluster/binaries"
	"example.com/watertight/test/cluster/node"
)

const usage = `usage: cluster [flags] up | down | load ARCHIVE… | kubeconfig
  up          bring the cluster up, or mend one that is not whole
  down        remove it, and all that it made
  load        give it the images in the archives
  kubeconfig  print where the file is that says how to reach it
flags:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() {
		fmt.Fprint(out, usage)
		flags.PrintDefaults()
	}
	source := flags.String("source", "test/cluster", "the `folder` of this program's source")
	cache := flags.String("cache", "", "the `folder` that built programs are kept in (required)")
	seed := flags.String("seed", "", "a `folder` of programs that are built already: NAME-VERSION-linux-ARCH.zst")
	state := flags.String("state", "/var/lib/watertight-cluster", "the `folder` of the cluster's data, at most 60 characters long")
	crashLoopMax := flags.Duration("crash-loop-max", 20*time.Second, "the longest that a crashing container waits for its restart, 1s to 5m")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *cache == "" {
		return errors.New("-cache: say where built programs are kept")
	}
	if *crashLoopMax < time.Second || *crashLoopMax > 5*time.Minute {
		return fmt.Errorf("-crash-loop-max: %s is not between 1s and 5m", *crashLoopMax)
	}
	for _, path := range []*string{source, cache, state} { // processes that outlive this one are told them
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = absolute
	}
	n := node.New(node.Config{
		Source: *source, Cache: binaries.Cache{Dir: *cache, Seed: *seed, Log: out}, State: *state, Run: "/run/watertight-cluster",
		CrashLoopMax: *crashLoopMax, Log: out,
	})
	switch verb, rest := flags.Arg(0), flags.Args(); {
	case verb == "up" && len(rest) == 1:
		return node.Alone(ctx, n.Up)
	case verb == "down" && len(rest) == 1:
		return node.Alone(ctx, n.Down)
	case verb == "load" && len(rest) > 1:
		return node.Alone(ctx, func(ctx context.Context) error { return n.Load(ctx, rest[1:]...) })
	case verb == "kubeconfig" && len(rest) == 1:
		_, err := fmt.Fprintln(out, n.Kubeconfig())
		return err
	}
	flags.Usage()
	return errors.New("say up, down, load or kubeconfig")
}
