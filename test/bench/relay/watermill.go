package relay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.com/watertight/test/bench/servers"
)

// peerTopic is the peer's stream and the one subject in it.
const peerTopic = "watermill"

// forwarding is Watermill's outbox: its forwarder from its table in PostgreSQL to JetStream, each with its defaults, and the
// message id as in ours.
type forwarding struct {
	servers *servers.Servers
	pool    *pgxpool.Pool
	js      jetstream.JetStream
}

func newForwarding(ctx context.Context, s *servers.Servers, js jetstream.JetStream) (*forwarding, error) {
	if err := s.Create(ctx, "watermill", "template0"); err != nil {
		return nil, err
	}
	pool, err := pgxpool.New(ctx, s.URL("watermill"))
	if err != nil {
		return nil, err
	}
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: peerTopic, Subjects: []string{peerTopic}, Storage: jetstream.FileStorage})
	return &forwarding{servers: s, pool: pool, js: js}, err
}

func (f *forwarding) close() { f.pool.Close() }

// rate stores n messages as Watermill does and times their way to the broker, from the forwarder's start.
func (f *forwarding) rate(ctx context.Context, n int) (float64, error) {
	if err := f.fill(n); err != nil {
		return 0, err
	}
	if err := f.servers.Execute(ctx, "watermill", "VACUUM ANALYZE", "CHECKPOINT"); err != nil {
		return 0, err
	}
	conn, err := nats.Connect(f.servers.NATS)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	start := time.Now()
	forward, err := f.forwarder(conn)
	if err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- forward.Run(ctx) }()
	err = servers.Await(ctx, drainBound, func(ctx context.Context) error { return f.arrived(ctx, n) })
	took := time.Since(start)
	err = errors.Join(err, forward.Close(), <-ended, purge(context.WithoutCancel(ctx), f.js, peerTopic))
	return float64(n) / took.Seconds(), err
}

func (f *forwarding) fill(n int) error {
	table, err := wmsql.NewPublisher(wmsql.BeginnerFromPgx(f.pool), wmsql.PublisherConfig{
		SchemaAdapter: wmsql.DefaultPostgreSQLSchema{}, AutoInitializeSchema: true,
	}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	enveloped := forwarder.NewPublisher(table, forwarder.PublisherConfig{})
	payload := []byte(strings.Repeat("\xab", 150))
	for stored := 0; stored < n; stored += 500 {
		batch := make([]*message.Message, 0, 500)
		for range min(500, n-stored) {
			batch = append(batch, message.NewMessage(watermill.NewUUID(), payload))
		}
		if err := enveloped.Publish(peerTopic, batch...); err != nil {
			return err
		}
	}
	return nil
}

func (f *forwarding) forwarder(conn *nats.Conn) (*forwarder.Forwarder, error) {
	table, err := wmsql.NewSubscriber(wmsql.BeginnerFromPgx(f.pool), wmsql.SubscriberConfig{
		SchemaAdapter: wmsql.DefaultPostgreSQLSchema{}, OffsetsAdapter: wmsql.DefaultPostgreSQLOffsetsAdapter{}, InitializeSchema: true,
	}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	stream, err := wmnats.NewPublisherWithNatsConn(conn, wmnats.PublisherPublishConfig{
		Marshaler: &wmnats.NATSMarshaler{}, SubjectCalculator: wmnats.DefaultSubjectCalculator, JetStream: wmnats.JetStreamConfig{TrackMsgId: true},
	}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	return forwarder.NewForwarder(table, stream, watermill.NopLogger{}, forwarder.Config{})
}

func (f *forwarding) arrived(ctx context.Context, n int) error {
	stream, err := f.js.Stream(ctx, peerTopic)
	if err != nil {
		return err
	}
	if got := stream.CachedInfo().State.Msgs; got < uint64(n) {
		return fmt.Errorf("%d of %d messages have arrived", got, n)
	}
	return nil
}
