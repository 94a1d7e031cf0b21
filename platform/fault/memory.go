package fault

import (
	"context"
	"syscall"
	"time"
)

// Memory is taken in steps, at most 400 MiB a second: quickly, but so that the end of the fault can come before the process's.
const (
	memoryStep  = 4 << 20
	memoryPause = 10 * time.Millisecond
)

// exhaust takes memory outside the Go heap, where GOMEMLIMIT does not hold it back, and touches it, until the kernel kills
// the process. Where no limit makes it do so, the process stops itself at FAULT_OOM_BOUND. When the fault ends before, the
// memory is given back. One request does it for all.
func (i *Injector) exhaust(ctx context.Context, a *active, method string) {
	if !i.eating.CompareAndSwap(false, true) {
		return
	}
	defer i.eating.Store(false)
	var taken [][]byte
	defer func() {
		for _, block := range taken {
			_ = syscall.Munmap(block) // cannot fail for what was mapped
		}
	}()
	for total := int64(0); total < i.cfg.OOMBound; total += memoryStep {
		// Not the caller's context: whose memory is taken does not get it back by leaving.
		if _ = a.wait(context.Background(), memoryPause); a.over() {
			return
		}
		block, err := syscall.Mmap(-1, 0, memoryStep, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			break // there is no more
		}
		for at := 0; at < len(block); at += 4096 {
			block[at] = 1
		}
		taken = append(taken, block)
	}
	i.die(ctx, a, method, OOMCode)
}
