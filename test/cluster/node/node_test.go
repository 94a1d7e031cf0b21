package node

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestAlone_LetsOneChangeTheClusterAtATime(t *testing.T) {
	busy := errors.New("busy")
	err := Alone(t.Context(), func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		return Alone(ctx, func(context.Context) error { return busy })
	})
	if err == nil || errors.Is(err, busy) || !strings.Contains(err.Error(), "another change") {
		t.Errorf("a second change meanwhile: got %v, want to wait in vain", err)
	}
	if err := Alone(t.Context(), func(context.Context) error { return busy }); !errors.Is(err, busy) {
		t.Errorf("a change afterwards: got %v, want it called", err)
	}
}

func TestAwait_SaysWhatDidNotComeAndWhy(t *testing.T) {
	err := await(t.Context(), time.Millisecond, "spring", func(context.Context) error { return errors.New("it is November") })
	if err == nil || err.Error() != "spring: not within 1ms: it is November" {
		t.Errorf("got %v", err)
	}
}

func TestKubeletConfig_HasTheLongestWaitOfACrashingContainer(t *testing.T) {
	n := New(Config{State: "/state", Run: "/run/x", CrashLoopMax: 90 * time.Second})
	if config := n.kubeletConfig(); !strings.Contains(config, "crashLoopBackOff: {maxContainerRestartPeriod: 1m30s}\n") {
		t.Errorf("got\n%s", config)
	}
}

func TestMinor_IsTheSecondNumber(t *testing.T) {
	for version, want := range map[string]string{"v1.34.4": "34", "v1": ""} {
		if got := minor(version); got != want {
			t.Errorf("%s: got %q, want %q", version, got, want)
		}
	}
}
