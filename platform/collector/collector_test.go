package collector_test

import (
	"runtime/metrics"
	"strings"
	"testing"

	"example.com/watertight/platform/collector"
	"example.com/watertight/platform/config"
)

func TestConfig_ReadsWhatGoTakesForGOGC(t *testing.T) {
	for text, want := range map[string]collector.Percentage{"": 400, "GOGC=100": 100, "GOGC=0": 0, "GOGC=off": -1} {
		got, err := config.Load[collector.Config]([]string{text})
		if err != nil || got.Garbage != want {
			t.Errorf("%q: %v, %v, want %v", text, got.Garbage, err, want)
		}
	}
	for _, text := range []string{"GOGC=-1", "GOGC=4x", "GOGC=on"} {
		if _, err := config.Load[collector.Config]([]string{text}); err == nil || !strings.HasPrefix(err.Error(), "GOGC: ") {
			t.Errorf("%q: %v, want an error that names the variable", text, err)
		}
	}
}

func TestApply_SetsTheCollectorAndCanBeUndone(t *testing.T) {
	percent := func() uint64 {
		sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	before := percent()
	undo := collector.Config{Garbage: 345}.Apply()
	if got := percent(); got != 345 {
		t.Errorf("GOGC is %d, want 345", got)
	}
	undo()
	if got := percent(); got != before {
		t.Errorf("GOGC is %d afterwards, want %d as before", got, before)
	}
}
