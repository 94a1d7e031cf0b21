package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/watertight/lab/catalog"
	"example.com/watertight/lab/importer"
	"example.com/watertight/lab/natsserver"
	"example.com/watertight/platform/mtls"
)

const (
	// seedPause lies between two tries, while the shop is not there yet.
	seedPause = 2 * time.Second
	// declareTimeout bounds one try to declare the buckets.
	declareTimeout = 10 * time.Second
)

// seedCommand does on a cluster what lab up does by itself once broker and services run.
type seedCommand struct {
	CheckoutAddr  string        `default:"dns:///checkout:50051" placeholder:"TARGET" help:"gRPC target of checkout (${default})."`
	SearchAddr    string        `default:"dns:///search:50051" placeholder:"TARGET" help:"gRPC target of search (${default})."`
	RecsAddr      string        `default:"dns:///recs:50051" placeholder:"TARGET" help:"gRPC target of recs (${default})."`
	InventoryAddr string        `default:"dns:///inventory:50051" placeholder:"TARGET" help:"gRPC target of inventory (${default})."`
	NATSURL       string        `required:"" name:"nats-url" env:"NATS_URL" placeholder:"URL" help:"The broker, with the user lab, who may declare buckets."`
	Timeout       time.Duration `default:"10m" help:"How long the shop may take to be there (${default})."`

	TLSCertFile string `name:"tls-cert-file" env:"TLS_CERT_FILE" placeholder:"FILE" help:"Certificate to show the services, where they want one."`
	TLSKeyFile  string `name:"tls-key-file" env:"TLS_KEY_FILE" placeholder:"FILE" help:"Its private key, in the same folder."`
	TLSCAFile   string `name:"tls-ca-file" env:"TLS_CA_FILE" placeholder:"FILE" help:"Authorities whose certificates the services have."`
}

// Help is shown by lab seed --help.
func (*seedCommand) Help() string {
	return `Waits for the broker and for the services, declares the buckets of faults and instances, and imports the authored catalog.
What is there already stays, so that it may be run at any time; stock is counted anew.

Example:
  NATS_URL=nats://lab:…@nats:4222 lab seed`
}

// Run seeds, and tries again for as long as something is merely not there yet.
func (c *seedCommand) Run(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	identity, err := mtls.Open(mtls.Config{CertFile: c.TLSCertFile, KeyFile: c.TLSKeyFile, CAFile: c.TLSCAFile, Reload: time.Minute})
	if err != nil {
		return err
	}
	defer identity.Close(context.WithoutCancel(ctx))
	// The buckets first: until they are there no fault can be set, and no process can say that it runs.
	err = patiently(ctx, out, func() (bool, error) {
		soon, cancel := context.WithTimeout(ctx, declareTimeout) // a broker that starts may take a request and forget it
		defer cancel()
		return true, natsserver.DeclareBuckets(soon, c.NATSURL)
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "the broker's buckets are there")
	goods := catalog.Authored()
	targets := importer.Targets{Search: c.SearchAddr, Checkout: c.CheckoutAddr, Recs: c.RecsAddr, Inventory: c.InventoryAddr, TLS: identity}
	err = patiently(ctx, out, func() (bool, error) {
		_, err := importer.Run(ctx, targets, goods, nil)
		return status.Code(err) == codes.Unavailable, err
	})
	if err == nil {
		fmt.Fprintf(out, "imported the authored catalog: %d products, %d baskets\n", len(goods.Products), len(goods.Baskets))
	}
	return err
}

// patiently repeats try until it succeeds, fails for good, or ctx ends. It says once for each kind of trouble what it waits for.
func patiently(ctx context.Context, out io.Writer, try func() (again bool, err error)) error {
	said := ""
	for {
		again, err := try()
		if err == nil || !again {
			return err
		}
		if err.Error() != said {
			said = err.Error()
			fmt.Fprintln(out, "waiting:", said)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("--timeout: the shop was not there in time: %w", err)
		case <-time.After(seedPause):
		}
	}
}
