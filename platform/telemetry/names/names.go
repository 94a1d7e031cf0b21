// Package names declares what the shop's own spans are called and what they say, in one place: whatever has a name in
// OpenTelemetry's semantic conventions is called by that and is not here. A name never holds an id.
package names

import "go.opentelemetry.io/otel/attribute"

// Attributes of spans and of their events.
const (
	// UpstreamName is which other service a guarded call is for.
	UpstreamName = attribute.Key("upstream.name")
	// UpstreamOutcome is how the call ended for its caller: ok, rejected_full, rejected_open, timed_out, failed, cancelled; on a
	// span of the gateway's server it is degraded, when the answer had to do without.
	UpstreamOutcome = attribute.Key("upstream.outcome")
	// UpstreamBreaker is the circuit breaker's state after the call: closed, half-open, open.
	UpstreamBreaker = attribute.Key("upstream.breaker")

	// BulkheadName is the pool that the work stood in a queue of, or was turned away from.
	BulkheadName = attribute.Key("bulkhead.name")
	// BulkheadQueueWait is how long it stood there, in seconds; absent when a slot was free.
	BulkheadQueueWait = attribute.Key("bulkhead.queue_wait_seconds")
	// BulkheadRejection is why it got no slot: full, expired, cancelled.
	BulkheadRejection = attribute.Key("bulkhead.rejection")

	// BreakerFrom and BreakerTo are the states that a call has moved a circuit breaker between.
	BreakerFrom = attribute.Key("breaker.from")
	BreakerTo   = attribute.Key("breaker.to")

	// RetryAttempt is which try this is, of a call, of an event's delivery or of a payment; 1 is the first.
	RetryAttempt = attribute.Key("retry.attempt")
	// RetryAfter is the pause before the next try, in seconds.
	RetryAfter = attribute.Key("retry.after_seconds")

	// EventAge is the time from an event's transaction to the beginning of its processing, in seconds: what outbox, relay and
	// broker took.
	EventAge = attribute.Key("event.age_seconds")
	// EventDuplicate says that the event's effect was there already.
	EventDuplicate = attribute.Key("event.duplicate")

	// WorkOutcome is what a piece of work came to, in the words of its service: charged, declined, refunded, cancelled, unknown.
	WorkOutcome = attribute.Key("work.outcome")
)

// Events of spans.
const (
	BulkheadRejected = "bulkhead rejected" // with BulkheadName and BulkheadRejection
	BreakerChanged   = "breaker changed"   // with BreakerFrom and BreakerTo
	RetryScheduled   = "retry scheduled"   // with RetryAfter
	DeadLetter       = "dead letter"
)

// Upstream names the span around a guarded call to another service.
func Upstream(service string) string { return "upstream " + service }

// Send names the span of an event's way to the broker.
func Send(subject string) string { return "send " + subject }

// Process names the span of an event's handling.
func Process(subject string) string { return "process " + subject }

// Prepare names the span of a statement's first use on a connection.
func Prepare(statement string) string { return "prepare " + statement }

// Attribute is one that is declared here, with what it says.
type Attribute struct {
	Key     attribute.Key
	Meaning string
}

// Attributes lists those of spans, in the order of the documentation.
func Attributes() []Attribute {
	return []Attribute{
		{UpstreamName, "which other service a guarded call is for"},
		{UpstreamOutcome, "how the call ended for its caller: `ok`, `rejected_full`, `rejected_open`, `timed_out`, `failed`, `cancelled`; " +
			"`degraded` on the request's own span, when the answer had to do without"},
		{UpstreamBreaker, "the circuit breaker after the call: `closed`, `half-open`, `open`"},
		{BulkheadName, "the pool that the work stood in a queue of, or was turned away from"},
		{BulkheadQueueWait, "how long it stood there; absent when a slot was free"},
		{BulkheadRejection, "why it got no slot: `full`, `expired`, `cancelled`"},
		{BreakerFrom, "the circuit breaker before the call that moved it"},
		{BreakerTo, "the circuit breaker after that call"},
		{RetryAttempt, "which try this is, of a call, of an event's delivery or of a payment; 1 is the first"},
		{RetryAfter, "the pause before the next try"},
		{EventAge, "the time from an event's transaction to the beginning of its processing: what outbox, relay and broker took"},
		{EventDuplicate, "the event's effect was there already"},
		{WorkOutcome, "what a piece of work came to: `charged`, `declined`, `refunded`, `cancelled`, `unknown`"},
	}
}
