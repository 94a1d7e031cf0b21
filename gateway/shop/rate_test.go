package shop

import (
	"testing"
	"time"
)

func TestOrderRate_AveragesTheFullSecondsOfTheWindow(t *testing.T) {
	start := time.Now()
	r := newOrderRate(start)
	if got := r.perSecond(start); got != 0 {
		t.Errorf("at the start: %v, want 0", got)
	}
	for range 6 {
		r.count(start.Add(500 * time.Millisecond))
	}
	for _, tc := range []struct {
		after time.Duration
		want  float64
	}{
		{900 * time.Millisecond, 0}, {1 * time.Second, 6}, {2 * time.Second, 3}, {3 * time.Second, 2},
		{10 * time.Second, 0.6}, {10900 * time.Millisecond, 0.6}, {11 * time.Second, 0}, {time.Hour, 0},
	} {
		if got := r.perSecond(start.Add(tc.after)); got != tc.want {
			t.Errorf("after %v: %v, want %v", tc.after, got, tc.want)
		}
	}
	r.count(start.Add(time.Hour))
	if got := r.perSecond(start.Add(time.Hour + time.Second)); got != 0.1 {
		t.Errorf("after a quiet hour: %v, want 0.1", got)
	}
}
