package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"example.com/watertight/lab/catalog"
	"example.com/watertight/lab/console"
	"example.com/watertight/lab/importer"
	"example.com/watertight/lab/runner"
	"example.com/watertight/lab/shop"
	"example.com/watertight/lab/statedir"
	"example.com/watertight/lab/supervise"
)

// stateFlags say which state folder a command is about.
type stateFlags struct {
	Dir string `help:"State folder: data, programs, logs (default: .watertight in the project)." placeholder:"DIR" type:"path"`
}

// open finds the project from the working folder. The project is not needed when the folder is named.
func (f stateFlags) open() (root string, dir statedir.Dir, err error) {
	here, err := os.Getwd()
	if err != nil {
		return "", dir, fmt.Errorf("working folder: %w", err)
	}
	root, err = statedir.FindRoot(here)
	if f.Dir != "" {
		return root, statedir.At(f.Dir), nil
	}
	if err != nil {
		return "", dir, err
	}
	return root, statedir.At(filepath.Join(root, statedir.DefaultName)), nil
}

type upCommand struct {
	stateFlags
	Detach         bool          `short:"d" help:"Return when the shop is ready and leave it running; lab down ends it."`
	Design         string        `default:"split" enum:"split,shared-pool,pool-per-feature,roles" help:"The shop's shape: ${enum}."`
	Fresh          bool          `help:"Begin with empty data."`
	NoSeed         bool          `help:"Do not fill an empty shop with the authored catalog."`
	Traces         bool          `help:"Run a Jaeger and send it every trace; lab trace shows them."`
	Verbose        bool          `short:"v" help:"Show what PostgreSQL, NATS and Jaeger log, too."`
	PortOffset     int           `default:"0" placeholder:"N" help:"Add N to every fixed port, to run beside another shop."`
	Replicas       []string      `placeholder:"SERVICE=N" help:"Run N processes of a service. May be repeated."`
	Env            []string      `sep:"none" placeholder:"SERVICE.VAR=VALUE" help:"Set a variable for a service. May be repeated."`
	RestartBackoff time.Duration `default:"10s" placeholder:"10s" help:"Delay before the first restart of a process that dies; doubles with each."`
	RestartMax     time.Duration `default:"5m" placeholder:"5m" name:"restart-backoff-max" help:"The longest delay before a restart."`
	Via            []string      `placeholder:"NAME=HOST:PORT" help:"Have services reach postgres or nats at another address, a proxy's. May be repeated."`
	DBLimits       string        `default:"on" enum:"on,off" placeholder:"on" name:"db-limits" help:"off: a database role may use up the server of all."`
	ReadyTimeout   time.Duration `default:"2m" placeholder:"2m" help:"How long the processes may take to get ready."`

	// Background is how --detach runs the shop: it logs to a file, and reports to whoever started it.
	Background bool `hidden:""`
}

// Help is shown by lab up --help.
func (*upCommand) Help() string {
	return `Finds (or, as root on Debian and Ubuntu, installs) PostgreSQL, starts it and NATS, builds and starts every service, and
waits until all are ready. A process that dies is started again. Ctrl-C ends everything; the data are kept.

Examples:
  lab up
  lab up --design shared-pool
  lab up --detach --replicas recs=3 --restart-backoff 1s
  lab up --traces
  lab up --dir /tmp/shop2 --port-offset 1000 --env checkout.ORDER_EXPIRY=30s
  lab up --db-limits=off --env recs.FAULT_DB_CONNECTIONS=1000
  lab up --via nats=127.0.0.1:7422 --via postgres=127.0.0.1:7432`
}

// Run runs the shop, or starts a lab in the background that does.
func (c *upCommand) Run(ctx context.Context, p process) error {
	root, dir, err := c.open()
	if err != nil {
		return err
	}
	if root == "" {
		return errors.New("lab up builds the services: run it inside the project (no go.work here or above)")
	}
	options, err := c.options(root, dir, p)
	if err != nil {
		return err
	}
	if err := dir.Create(); err != nil {
		return err
	}
	if options.Lab, err = installSelf(dir); err != nil {
		return err
	}
	if c.Background {
		return upInBackground(ctx, options)
	}
	if c.Detach {
		return detach(ctx, options.Lab, dir, p)
	}
	return runner.Up(ctx, options)
}

func (c *upCommand) options(root string, dir statedir.Dir, p process) (runner.Options, error) {
	backoff := supervise.DefaultBackoff()
	backoff.First, backoff.Max = c.RestartBackoff, c.RestartMax
	options := runner.Options{
		Root: root, Dir: dir, Fresh: c.Fresh, Verbose: c.Verbose, Backoff: backoff, ReadyTimeout: c.ReadyTimeout, UnlimitedDB: c.DBLimits == "off",
		PGBin: lookup(p.environ, "PG_BIN"), Path: lookup(p.environ, "PATH"), Environ: p.environ,
		Out: p.out, Color: console.WantsColor(p.out, lookup(p.environ, "NO_COLOR")), Hurry: p.hurry,
		Shop: shop.Options{Design: c.Design, PortOffset: c.PortOffset, Traces: c.Traces,
			Replicas: map[string]int{}, Env: map[string]map[string]string{}, Via: map[string]string{}},
	}
	if !c.NoSeed {
		options.Seed = seedAuthored
	}
	for _, flag := range c.Replicas {
		service, count, _ := strings.Cut(flag, "=")
		n, err := strconv.Atoi(count)
		if err != nil {
			return options, fmt.Errorf("--replicas %s: must be SERVICE=N", flag)
		}
		options.Shop.Replicas[service] = n
	}
	for _, flag := range c.Env {
		name, value, isSet := strings.Cut(flag, "=")
		service, variable, hasService := strings.Cut(name, ".")
		if !isSet || !hasService || variable == "" {
			return options, fmt.Errorf("--env %s: must be SERVICE.VAR=VALUE", flag)
		}
		if options.Shop.Env[service] == nil {
			options.Shop.Env[service] = map[string]string{}
		}
		options.Shop.Env[service][variable] = value
	}
	for _, flag := range c.Via {
		name, address, isSet := strings.Cut(flag, "=")
		if !isSet {
			return options, fmt.Errorf("--via %s: must be NAME=HOST:PORT", flag)
		}
		options.Shop.Via[name] = address
	}
	// Services write text for people at a terminal and JSON for everything else; they see a pipe here, so lab tells them.
	if console.IsTerminal(p.out) && !c.Background && lookup(p.environ, "LOG_FORMAT") == "" {
		options.Environ = append(options.Environ, "LOG_FORMAT=text")
	}
	return options, errors.Join(options.Shop.Validate(), options.Backoff.Validate())
}

func lookup(environ []string, name string) string {
	for _, line := range environ {
		if value, ok := strings.CutPrefix(line, name+"="); ok {
			return value
		}
	}
	return ""
}

// seedAuthored fills the shop with the catalog that was written for it.
func seedAuthored(ctx context.Context, targets map[string]string) (string, error) {
	for _, service := range []string{"search", "checkout", "recs"} {
		if targets[service] == "" {
			return "", fmt.Errorf("%s does not run: start it, or use --no-seed", service)
		}
	}
	goods := catalog.Authored()
	_, err := importer.Run(ctx, importer.Targets{Search: targets["search"], Checkout: targets["checkout"],
		Recs: targets["recs"], Inventory: targets["inventory"]}, goods, nil)
	return fmt.Sprintf("the authored catalog: %d products, %d baskets", len(goods.Products), len(goods.Baskets)), err
}

// installSelf puts this program into the state folder and returns its path there: `go run` removes its own as soon as it
// ends, and the broker and a detached lab need one that stays.
func installSelf(dir statedir.Dir) (path string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find lab's own program: %w", err)
	}
	path = filepath.Join(dir.Bin(), "lab")
	if sameFile(self, path) {
		return path, nil
	}
	source, err := os.Open(self)
	if err != nil {
		return "", fmt.Errorf("read lab's own program: %w", err)
	}
	defer source.Close()
	temp, err := os.CreateTemp(dir.Bin(), "lab.*")
	if err != nil {
		return "", fmt.Errorf("install lab: %w", err)
	}
	_, err = io.Copy(temp, source)
	err = errors.Join(err, temp.Chmod(0o755), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), path) // a program that runs may be replaced, not written to
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("install lab: %w", err), os.Remove(temp.Name()))
	}
	return path, nil
}

func sameFile(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}
