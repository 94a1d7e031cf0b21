package tail

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestEvery_AsksOnTimeWhetherAnswersComeOrNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var (
			mu    sync.Mutex
			asked []time.Duration
		)
		err := every(t.Context(), time.Second, 100*time.Millisecond, func(due time.Time) error {
			mu.Lock()
			asked = append(asked, time.Since(due))
			mu.Unlock()
			return wait(t.Context(), time.Minute) // a hanging call
		})
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 900*time.Millisecond+time.Minute {
			t.Errorf("it took %v, want the last request's end", took)
		}
		for i, late := range asked {
			if late != 0 {
				t.Errorf("request %d was %v late", i, late)
			}
		}
		if len(asked) != 10 {
			t.Errorf("%d requests, want 10", len(asked))
		}
	})
}

func TestP99_LeavesOneInAHundredOut(t *testing.T) {
	took := make([]time.Duration, 0, 200)
	for i := range 200 {
		took = append(took, time.Duration(200-i)*time.Millisecond)
	}
	if got := p99(took); got != 199 {
		t.Errorf("p99 of 1 to 200 ms = %v, want 199", got)
	}
}
