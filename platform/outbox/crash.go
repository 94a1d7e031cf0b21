package outbox

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Hooks are called at the points where a crash is worst, for tests that crash there. A nil hook is no-op.
type Hooks struct {
	// AfterPublish is where the broker has the events and the outbox does not know it yet.
	AfterPublish func()
	// AfterEffect is where a handler has done its work and its transaction is not committed yet.
	AfterEffect func()
	// AfterCommit is where the effect is committed and the broker does not know it yet.
	AfterCommit func()
}

func (h Hooks) afterPublish() { call(h.AfterPublish) }
func (h Hooks) afterEffect()  { call(h.AfterEffect) }
func (h Hooks) afterCommit()  { call(h.AfterCommit) }

func call(hook func()) {
	if hook != nil {
		hook()
	}
}

// parseCrashPoint reads POINT:PROBABILITY into hooks that kill the process as kill -9 does.
func parseCrashPoint(text string) (Hooks, error) {
	if text == "" {
		return Hooks{}, nil
	}
	point, number, _ := strings.Cut(text, ":")
	probability, err := strconv.ParseFloat(number, 64)
	if err != nil || !(probability >= 0 && probability <= 1) {
		return Hooks{}, errors.New("CRASH_POINT: must be POINT:PROBABILITY with a probability from 0 to 1, such as after-publish:0.01")
	}
	crash := func() {
		if rand.Float64() < probability {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // it does not return
		}
	}
	switch point {
	case "after-publish":
		return Hooks{AfterPublish: crash}, nil
	case "after-effect":
		return Hooks{AfterEffect: crash}, nil
	case "after-commit":
		return Hooks{AfterCommit: crash}, nil
	}
	return Hooks{}, fmt.Errorf("CRASH_POINT: %q is none of after-publish, after-effect, after-commit", point)
}
