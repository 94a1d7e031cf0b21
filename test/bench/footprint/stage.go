package footprint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"example.com/watertight/lab/catalog"
	"example.com/watertight/lab/importer"
	"example.com/watertight/lab/retail"
	"example.com/watertight/lab/runner"
	"example.com/watertight/lab/shop"
	"example.com/watertight/lab/statedir"
	"example.com/watertight/lab/supervise"
	"example.com/watertight/platform/config"
	benchlab "example.com/watertight/test/bench/lab"
	"example.com/watertight/test/bench/process"
	"example.com/watertight/test/bench/servers"
)

const (
	// products is how many a mid-size wholesaler sells.
	products = 4070
	// portTries is how many sets of ports are tried.
	portTries = 20
	// poll is how often a process is asked whether it is ready: much finer than what is measured.
	poll = time.Millisecond
)

// settings are the part's variables.
type settings struct {
	File string `env:"ONLINE_RETAIL_FILE" help:"sales in the Online Retail layout; empty: made-up ones"`
	Bin  string `env:"PG_BIN"`
	Path string `env:"PATH"`
}

// stage is a database server and a broker with the shop's data, on which shops run one after the other.
type stage struct {
	*runner.Stage

	options runner.Options
}

// raise builds the programs and starts the servers.
func raise(ctx context.Context, environ []string) (_ *stage, err error) {
	cfg, err := config.Load[settings](environ)
	if err != nil {
		return nil, err
	}
	goods, err := wholesale(ctx, cfg.File)
	if err != nil {
		return nil, err
	}
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	root, err := statedir.FindRoot(here)
	if err != nil {
		return nil, err
	}
	path, err := os.MkdirTemp("", "watertight-footprint-")
	if err != nil {
		return nil, err
	}
	s := &stage{options: runner.Options{
		Root: root, Dir: statedir.At(path), Backoff: supervise.DefaultBackoff(), ReadyTimeout: time.Minute,
		PGBin: cfg.Bin, Path: cfg.Path, Environ: environ, Seed: seeder(goods),
	}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := os.Chmod(path, 0o755); err != nil { //nolint:gosec // PostgreSQL's user, another one when this one is root, passes through it
		return nil, err
	}
	if err := s.options.Dir.Create(); err != nil {
		return nil, err
	}
	if s.options.Lab, err = benchlab.Build(ctx, s.options.Dir.Bin()); err != nil {
		return nil, err
	}
	if err := runner.Build(ctx, s.options, shop.Split); err != nil {
		return nil, err
	}
	if s.options.Shop.PortOffset, err = freePorts(s.options); err != nil {
		return nil, err
	}
	s.Stage, err = runner.Raise(ctx, s.options, shop.Split)
	return s, err
}

// freePorts finds an offset at which nothing of this machine listens.
func freePorts(options runner.Options) (offset int, err error) {
	for range portTries {
		options.Shop.PortOffset = 1000 + rand.IntN(13_000)
		ports, held := runner.Hold(options, shop.Split)
		if held == nil {
			ports.Release()
			return options.Shop.PortOffset, nil
		}
		err = held
	}
	return 0, err
}

// names are the shop's processes.
func (s *stage) names() []string { return s.options.Shop.Names() }

// images is the folder that the project's images are built into.
func (s *stage) images() string { return filepath.Join(s.options.Root, "build", "images") }

func (s *stage) close() error {
	var err error
	if s.Stage != nil {
		err = s.Close()
	}
	return errors.Join(err, runner.Remove(s.options.Dir))
}

// wholesale is the catalog that file's sales make, or one of the same size made of the authored one.
func wholesale(ctx context.Context, file string) (catalog.Catalog, error) {
	if file != "" {
		data, err := retail.ReadFile(ctx, file, retail.Options{})
		if err != nil {
			return catalog.Catalog{}, err
		}
		return data.Catalog, nil
	}
	authored := catalog.Authored()
	grown := catalog.Catalog{Currency: authored.Currency}
	for i := range products {
		p := authored.Products[i%len(authored.Products)]
		if edition := i / len(authored.Products); edition > 0 {
			p.ID, p.Name = fmt.Sprintf("%s-%d", p.ID, edition), fmt.Sprintf("%s Edition %d", p.Name, edition)
		}
		grown.Products = append(grown.Products, p)
	}
	for first := 0; first+len(authored.Products) <= products; first += len(authored.Products) {
		for _, b := range authored.Baskets {
			b.ID, b.Products = fmt.Sprintf("%s-%d", b.ID, first), slices.Clone(b.Products)
			for i := range b.Products {
				b.Products[i] += int32(first)
			}
			grown.Baskets = append(grown.Baskets, b)
		}
	}
	return grown, nil
}

func seeder(goods catalog.Catalog) runner.Seeder {
	return func(ctx context.Context, targets map[string]string) (string, error) {
		_, err := importer.Run(ctx, importer.Targets{
			Search: targets["search"], Checkout: targets["checkout"], Recs: targets["recs"], Inventory: targets["inventory"],
		}, goods, nil)
		return fmt.Sprintf("%d products, %d baskets", len(goods.Products), len(goods.Baskets)), err
	}
}

// running is a process of the shop as it was when its memory was read.
type running struct {
	name    string
	program string
	environ []string
	ready   string // URL
	memory  resident
	start   time.Duration // processor time of its last start alone, until it was ready
}

// play has a shop run without customers for a while, and returns its processes and the servers'. The first one takes the data in; a
// second one then shows what a shop is like that found them there.
func (s *stage) play(ctx context.Context, rest time.Duration) (_ []running, err error) {
	seeded, err := s.options.Dir.Seeded(s.options.Shop.Data())
	if err != nil {
		return nil, err
	}
	if seeded == "" {
		first, err := s.Open(ctx, s.options.Shop, s.options.Backoff)
		if err != nil {
			return nil, err
		}
		if err := first.End(); err != nil {
			return nil, err
		}
	}
	open, err := s.Open(ctx, s.options.Shop, s.options.Backoff)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, open.End()) }()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(rest):
	}
	return s.look()
}

// look reads what runs.
func (s *stage) look() ([]running, error) {
	instance, err := s.options.Dir.ReadInstance()
	if err != nil {
		return nil, err
	}
	var all []running
	for _, p := range instance.Processes {
		if p.Process == nil || p.Restarts > 0 {
			return nil, fmt.Errorf("%s has died; its log:\n%s", p.Name, tail(p.Log))
		}
		found := running{name: p.Name, ready: "http://" + p.Addresses["admin"] + "/readyz"}
		if found.memory, err = residentTree(p.Process.PID); err != nil {
			return nil, err
		}
		if slices.Contains(s.names(), p.Name) {
			if found.program, found.environ, err = command(p.Process.PID); err != nil {
				return nil, err
			}
		}
		all = append(all, found)
	}
	return all, nil
}

// command is a process's program and its variables.
func command(pid int) (program string, environ []string, err error) {
	if program, err = os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err != nil {
		return "", nil, err
	}
	variables, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return "", nil, err
	}
	return program, strings.Split(strings.TrimSuffix(string(variables), "\x00"), "\x00"), nil
}

func tail(file string) string {
	content, _ := os.ReadFile(file)
	return string(content[max(0, len(content)-2000):])
}

// startAlone starts the process again, with nobody else on the stage, and returns how long it took from there to the first answer
// that it is ready, and how much of a core.
func (s *stage) startAlone(ctx context.Context, r running) (took, cpu time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, servers.StartBound)
	defer cancel()
	began := time.Now()
	p, err := process.Start(s.options.Dir.Logs(), r.name+"-alone", []string{r.program}, r.environ...)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	for !ready(ctx, r.ready) {
		select {
		case <-ctx.Done():
			return 0, 0, fmt.Errorf("not ready: %w", ctx.Err())
		case <-time.After(poll):
		}
	}
	took = time.Since(began)
	cpu, err = p.CPU()
	return took, cpu, err
}

func ready(ctx context.Context, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return err == nil && answer.StatusCode == http.StatusOK
}
