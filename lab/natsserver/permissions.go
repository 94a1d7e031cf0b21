// Package natsserver runs the shop's broker: a NATS server with JetStream, one user per service, and for each user only
// the subjects that the service needs. It declares the key-value buckets; streams of events belong to whoever fills them.
package natsserver

import (
	"slices"
	"strings"
)

// Admin is the user for lab itself, who may do everything.
const Admin = "lab"

// The key-value buckets.
const (
	FaultsBucket    = "faults"    // desired faults, one key per service; read by all
	InstancesBucket = "instances" // who runs: key SERVICE.INSTANCE, written by the process itself
)

// grant is what one service may do on the broker.
type grant struct {
	user string
	// publishes are the first tokens of the service's event subjects: "orders" for orders.>. Each is kept in a stream of
	// that name, which the service may create and update.
	publishes []string
	// consumes are the subjects of others' events that it handles, by a durable consumer named after itself on the stream
	// that is the subject's first token. What the broker can enforce of it: see consumer.
	consumes []string
	// watches are the buckets it reads besides faults; puts are those it writes besides its own keys in instances.
	watches, puts []string
	// as are the users that it may also act as: one process that holds several services.
	as []string
}

// grants is the one table of who may do what. A new service is one line here.
func grants() []grant {
	return []grant{
		{user: "gateway", watches: []string{InstancesBucket}, puts: []string{FaultsBucket}},
		{user: "checkout", publishes: []string{"orders"}, consumes: []string{
			"inventory.reserved", "inventory.rejected", "payments.charged", "payments.declined"}},
		{user: "search"},
		{user: "recs", consumes: []string{"orders.confirmed"}},
		{user: "inventory", publishes: []string{"inventory"}, consumes: []string{"orders.placed", "orders.cancelled"}},
		{user: "payment", publishes: []string{"payments"}, consumes: []string{"orders.payment_requested", "orders.cancelled"}},
		{user: "monolith", as: []string{"gateway", "checkout", "search", "recs", "inventory", "payment"}},
	}
}

// Users lists the services that have a user, without Admin.
func Users() []string {
	var users []string
	for _, g := range grants() {
		users = append(users, g.user)
	}
	return users
}

// InboxPrefix is the prefix under which the user receives answers (nats.CustomInboxPrefix). Each has its own, so that
// nobody reads another's.
func InboxPrefix(user string) string { return "_INBOX." + user }

// publish lists the subjects the service may publish to.
func (g grant) publish() []string {
	subjects := []string{"$JS.API.INFO"}
	for _, subject := range g.publishes {
		subjects = append(subjects, subject+".>",
			"$JS.API.STREAM.INFO."+subject, "$JS.API.STREAM.CREATE."+subject, "$JS.API.STREAM.UPDATE."+subject)
	}
	for stream, filters := range g.consumed() {
		subjects = append(subjects, "$JS.API.STREAM.INFO."+stream)
		subjects = append(subjects, consumer(stream, g.user, filters)...)
	}
	for _, bucket := range append([]string{FaultsBucket}, g.watches...) {
		subjects = append(subjects, readBucket(bucket)...)
	}
	for _, bucket := range g.puts {
		subjects = append(subjects, "$KV."+bucket+".>")
	}
	for _, other := range grants() {
		if slices.Contains(g.as, other.user) {
			subjects = append(subjects, other.publish()...)
		}
	}
	// To write its own key it must look the bucket up; it reads nobody else's.
	subjects = append(subjects, "$KV."+InstancesBucket+"."+g.user+".>", "$JS.API.STREAM.INFO.KV_"+InstancesBucket)
	slices.Sort(subjects)
	return slices.Compact(subjects)
}

func (g grant) subscribe() []string { return []string{InboxPrefix(g.user) + ".>"} }

// consumed are the subjects that the service handles, by their stream.
func (g grant) consumed() map[string][]string {
	streams := map[string][]string{}
	for _, subject := range g.consumes {
		stream, _, _ := strings.Cut(subject, ".")
		streams[stream] = append(streams[stream], subject)
	}
	return streams
}

// consumer lists what it takes to keep the durable consumer name on a stream and to work off its messages.
//
// A consumer with one filter is created on a subject that ends in it, and the broker refuses a request whose content says
// otherwise: who handles one subject of a stream can see no other. That is what keeps the payment token, which is in
// orders.payment_requested, from recs. A consumer with several filters is created on a subject that does not show them,
// so whoever handles several subjects of a stream could, with its credentials, read all of that stream: inventory could
// read what payment is told. The table's subjects are then what the service asks for, not what the broker enforces.
func consumer(stream, name string, filters []string) []string {
	target := stream + "." + name
	create := "$JS.API.CONSUMER.CREATE." + target
	if len(filters) == 1 {
		create += "." + filters[0]
	}
	return []string{
		create, "$JS.API.CONSUMER.INFO." + target, "$JS.API.CONSUMER.MSG.NEXT." + target, "$JS.ACK." + target + ".>",
	}
}

// readBucket lists what it takes to get and watch the keys of a bucket: a watch is a short-lived consumer with a name that
// the client makes up. So whoever watches a bucket may delete another's watch on it, whose name it would have to guess; that
// watch is then begun again.
func readBucket(bucket string) []string {
	stream := "KV_" + bucket
	return []string{
		"$JS.API.STREAM.INFO." + stream,
		"$JS.API.DIRECT.GET." + stream, "$JS.API.DIRECT.GET." + stream + ".>",
		"$JS.API.CONSUMER.CREATE." + stream + ".*", "$JS.API.CONSUMER.CREATE." + stream + ".*.$KV." + bucket + ".>",
		"$JS.API.CONSUMER.INFO." + stream + ".*", "$JS.API.CONSUMER.DELETE." + stream + ".*",
		"$JS.FC." + stream + ".>",
	}
}
