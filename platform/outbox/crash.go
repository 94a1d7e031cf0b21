package outbox

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// A crashPoint is a moment at which a crash is worst. CRASH_POINT makes a process die there, so that it can be shown that
// nothing is lost by it.
type crashPoint string

const (
	// afterPublish is where the broker has the events and the outbox does not know it yet.
	afterPublish crashPoint = "after-publish"
	// afterEffect is where a handler has done its work and its transaction is not committed yet.
	afterEffect crashPoint = "after-effect"
	// afterCommit is where a handler's effect is committed and the broker does not know it yet.
	afterCommit crashPoint = "after-commit"
	// beforeReply is where the service has committed an event of its own and nobody has been told: neither the relay nor
	// who asked for it. It is in [Outbox.Wake].
	beforeReply crashPoint = "before-reply"
	// afterAnswer is where a party outside has done something and the service has not stored that. It is in [Outbox.Answered].
	afterAnswer crashPoint = "after-answer"
)

func crashPoints() []crashPoint {
	return []crashPoint{afterPublish, afterEffect, afterCommit, beforeReply, afterAnswer}
}

// crashes are the points at which the process may die, with the probability of each.
type crashes struct {
	probability map[crashPoint]float64
	log         *slog.Logger
}

// at kills the process as kill -9 does, or returns. The log tells where it died.
func (c crashes) at(point crashPoint) {
	if rand.Float64() >= c.probability[point] {
		return
	}
	c.log.Warn("crash point", "point", string(point))
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // it does not return
}

// parseCrashPoints reads a list of POINT:PROBABILITY.
func parseCrashPoints(text string) (map[crashPoint]float64, error) {
	probability := map[crashPoint]float64{}
	if text == "" {
		return probability, nil
	}
	for item := range strings.SplitSeq(text, ",") {
		name, number, _ := strings.Cut(item, ":")
		p, err := strconv.ParseFloat(number, 64)
		if err != nil || !(p >= 0 && p <= 1) {
			return nil, errors.New("CRASH_POINT: must be POINT:PROBABILITY with a probability from 0 to 1, such as after-publish:0.01, " +
				"or several of them with commas between")
		}
		point := crashPoint(name)
		if !slices.Contains(crashPoints(), point) {
			return nil, fmt.Errorf("CRASH_POINT: %q is none of %v", name, crashPoints())
		}
		if _, twice := probability[point]; twice {
			return nil, fmt.Errorf("CRASH_POINT: %s is there twice", name)
		}
		probability[point] = p
	}
	return probability, nil
}
