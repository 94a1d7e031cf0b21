// Package report is how the shop is doing, as one replica of the edge sees it: the JSON of /api/v1/status, and what the bridge
// shows. It holds data and gathers none.
package report

import (
	"example.com/watertight/gateway/poison"
	"example.com/watertight/platform/fault"
	"example.com/watertight/platform/upstream"
)

// Status is everything at one moment.
type Status struct {
	Version   string           `json:"version"`
	Design    string           `json:"design"`
	Gateway   Gateway          `json:"gateway"`
	Upstreams []Upstream       `json:"upstreams"`
	Orders    Orders           `json:"orders"`
	Services  []Service        `json:"services"`
	Faults    []Fault          `json:"faults"`
	Suspects  []poison.Suspect `json:"suspects,omitempty"` // only where there are any
}

// Gateway is this replica itself.
type Gateway struct {
	InFlight     int               `json:"in_flight"`     // requests being answered, open event streams not counted
	EventStreams int               `json:"event_streams"` // of orders and of the bridge
	Answers      map[string]uint64 `json:"answers"`       // by class, since the process started
}

// The classes of Gateway.Answers.
const (
	AnswerOK      = "ok"      // below 400
	AnswerRefused = "refused" // the client's mistake, or its leaving
	AnswerShed    = "shed"    // 429 and 503: with a Retry-After, to save the rest
	AnswerFailed  = "failed"  // every other 5xx
)

// Upstream is how one upstream is doing.
type Upstream struct {
	Name     string            `json:"name"`
	Breaker  string            `json:"breaker"` // closed, half-open or open
	InFlight int               `json:"in_flight"`
	Queued   int               `json:"queued"`
	Limits   Limits            `json:"limits"`
	Outcomes map[string]uint64 `json:"outcomes"` // calls by outcome, since the process started
}

// Limits are the upstream's limits. Each replica of the gateway has them to itself: with n replicas the upstream may see n
// times as much, and Scope says so.
type Limits struct {
	Scope string `json:"scope"`
	upstream.Limits
}

// PerReplica is the Scope of limits that each replica of the gateway has to itself.
const PerReplica = "per gateway replica"

// Service is one of the shop's processes: whether it takes traffic, and how often it started again.
type Service struct {
	Name     string `json:"name"`
	Ready    bool   `json:"ready"`
	Restarts int    `json:"restarts"`
}

// Orders is how the orders go.
type Orders struct {
	PerSecond            float64  `json:"per_second"`             // placed through this replica, over the last ten seconds
	OldestPendingSeconds *float64 `json:"oldest_pending_seconds"` // null while nobody has said
}

// Fault is the fault of one service.
type Fault struct {
	Service string `json:"service"`
	fault.Fault
}
