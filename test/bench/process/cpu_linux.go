package process

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// cpu reads the process's own clock (clock_getcpuclockid(3)), which counts nanoseconds; /proc has hundredths of a second.
func cpu(pid int) (time.Duration, error) {
	const scheduled = 2 // CPUCLOCK_SCHED: what the process has run, on all its threads
	var spent unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &spent); err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	return time.Duration(spent.Nano()), nil
}
