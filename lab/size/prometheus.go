package size

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Measured asks a Prometheus server what the gateways have seen over the last window: for each upstream the arrivals a second,
// the mean time that a request held a slot of its bulkhead, and the slots of all gateways together. Upstreams without traffic
// are left out. replicas is how many gateways there are.
//
// It speaks the HTTP API itself: one request of it is all that is needed, and the client library brings a JSON package of its own.
func Measured(ctx context.Context, server string, window time.Duration) (routes []Route, replicas int, err error) {
	base, err := url.Parse(server)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, 0, fmt.Errorf("--prometheus %q: must be a URL such as http://localhost:9090", server)
	}
	if window < time.Second || window > 30*24*time.Hour {
		return nil, 0, fmt.Errorf("--window: must be between 1s and 720h, got %v", window)
	}
	p := prometheus{base: base}
	over := fmt.Sprintf("[%ds]", int64(window.Seconds()))
	rates, err := p.query(ctx, "upstream", `sum by (upstream) (rate(watertight_upstream_requests_total{outcome!="degraded"}`+over+`))`)
	if err != nil {
		return nil, 0, err
	}
	holds, err := p.query(ctx, "pool", `sum by (pool) (rate(watertight_bulkhead_hold_seconds_sum`+over+
		`)) / sum by (pool) (rate(watertight_bulkhead_hold_seconds_count`+over+`))`)
	if err != nil {
		return nil, 0, err
	}
	slots, err := p.query(ctx, "pool", `sum by (pool) (watertight_bulkhead_limit)`)
	if err != nil {
		return nil, 0, err
	}
	gateways, err := p.query(ctx, "pool", `count by (pool) (watertight_bulkhead_limit)`)
	if err != nil {
		return nil, 0, err
	}
	for _, rate := range rates {
		hold, held := find(holds, rate.label)
		limit, limited := find(slots, rate.label)
		if rate.value <= 0 || !held || !limited || math.IsNaN(hold) {
			continue
		}
		routes = append(routes, Route{rate.label, rate.value, seconds(hold), int(limit)})
		n, _ := find(gateways, rate.label)
		replicas = max(replicas, int(n))
	}
	if len(routes) == 0 {
		return nil, 0, fmt.Errorf("--prometheus %s: has no upstream with traffic in the last %v", server, window)
	}
	return routes, replicas, nil
}

// sample is one series' value, by the label that was asked for.
type sample struct {
	label string
	value float64
}

func find(samples []sample, label string) (float64, bool) {
	for _, s := range samples {
		if s.label == label {
			return s.value, true
		}
	}
	return 0, false
}

type prometheus struct {
	base   *url.URL
	client http.Client
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 8 << 20

// query returns an instant vector, in the server's order.
func (p *prometheus) query(ctx context.Context, label, expression string) ([]sample, error) {
	to := p.base.JoinPath("api", "v1", "query")
	to.RawQuery = url.Values{"query": {expression}}.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	response, err := p.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("--prometheus: the server does not answer: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("--prometheus: read the answer: %w", err)
	}
	samples, err := vector(body, label)
	if err != nil {
		return nil, fmt.Errorf("--prometheus: %s: %w", response.Status, err)
	}
	return samples, nil
}

// vector reads an answer (https://prometheus.io/docs/prometheus/latest/querying/api/#instant-queries).
func vector(body []byte, label string) ([]sample, error) {
	var answer struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   struct {
			Type   string `json:"resultType"` //nolint:tagliatelle // the server's name
			Result []struct {
				Metric map[string]string `json:"metric"`
				Value  [2]any            `json:"value"` // time, and the value as a string
			} `json:"result"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("the answer is not that of a Prometheus server: %w", err)
	}
	if answer.Status != "success" || answer.Data.Type != "vector" {
		return nil, errors.New("the query failed: " + answer.Error)
	}
	var samples []sample
	for _, r := range answer.Data.Result {
		text, _ := r.Value[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("the value of %v is no number: %w", r.Metric, err)
		}
		samples = append(samples, sample{r.Metric[label], value})
	}
	return samples, nil
}
