package size

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// DefaultRoutes are the shop's, on a normal day.
func DefaultRoutes() []Route {
	time3 := func(base time.Duration) time.Duration { return MeanTime(base, 0.03, 3) }
	return []Route{
		{"checkout", 40, time3(20 * time.Millisecond), 4},
		{"search", 80, time3(10 * time.Millisecond), 6},
		{"recs", 80, time3(15 * time.Millisecond), 6},
	}
}

// Routes reads --route; without any, the defaults.
func (in Inputs) Routes() ([]Route, error) {
	if len(in.Route) == 0 {
		return DefaultRoutes(), nil
	}
	var routes []Route
	for _, text := range in.Route {
		r, err := parseRoute(text)
		if err != nil {
			return nil, fmt.Errorf("--route %s: %w", text, err)
		}
		for _, other := range routes {
			if other.Name == r.Name {
				return nil, fmt.Errorf("--route %s: %s is there twice", text, r.Name)
			}
		}
		routes = append(routes, r)
	}
	return routes, nil
}

func parseRoute(text string) (Route, error) {
	name, parts, err := split(text, 3)
	if err != nil {
		return Route{}, err
	}
	rate, err := strconv.ParseFloat(parts[0], 64)
	if err != nil || math.IsNaN(rate) || rate <= 0 || rate > 1e9 {
		return Route{}, fmt.Errorf("the rate must be a number above 0, got %q", parts[0])
	}
	takes, err := time.ParseDuration(parts[1])
	if err != nil || takes <= 0 || takes > 24*time.Hour {
		return Route{}, fmt.Errorf("the time must be one such as 20ms, got %q", parts[1])
	}
	workers, err := count(parts[2])
	if err != nil {
		return Route{}, fmt.Errorf("the workers %w", err)
	}
	return Route{name, rate, takes, workers}, nil
}

// Pools reads --db-pool.
func (in Inputs) Pools() ([]Pool, error) {
	var pools []Pool
	for _, text := range in.DBPool {
		p, err := parsePool(text)
		if err != nil {
			return nil, fmt.Errorf("--db-pool %s: %w", text, err)
		}
		pools = append(pools, p)
	}
	return pools, nil
}

func parsePool(text string) (Pool, error) {
	name, parts, err := split(text, 2)
	if err != nil {
		return Pool{}, err
	}
	replicas, err := count(parts[0])
	if err != nil {
		return Pool{}, fmt.Errorf("the replicas %w", err)
	}
	connections, err := count(parts[1])
	if err != nil {
		return Pool{}, fmt.Errorf("the connections %w", err)
	}
	return Pool{name, replicas, connections}, nil
}

func split(text string, n int) (name string, parts []string, err error) {
	name, values, found := strings.Cut(text, "=")
	parts = strings.Split(values, ",")
	if !found || name == "" || len(parts) != n {
		return "", nil, fmt.Errorf("must be NAME= and %d values with commas between", n)
	}
	return name, parts, nil
}

func count(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 1_000_000 {
		return 0, fmt.Errorf("must be a whole number from 1 to 1000000, got %q", text)
	}
	return n, nil
}
