//go:build !linux

package process

import (
	"errors"
	"time"
)

func cpu(int) (time.Duration, error) {
	return 0, errors.New("the processor time of another process can be read on Linux only")
}
