package main

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// The interval of the measurement of pace, and its work: page faults, and dependent random
// reads of more bytes than caches hold.
const (
	every  = 50 * time.Millisecond
	faults = 64
	reads  = 1000
	bytes  = 64 << 20
)

// pace writes lines of a time, in nanoseconds since 1970, and the processor time of the
// constant work then, in nanoseconds. It shows the load of other tenants on the same
// hardware, who share caches, memory and execution units.
func pace() error {
	runtime.LockOSThread()
	page := os.Getpagesize()
	memory := make([]byte, bytes)
	for i := range memory {
		memory[i] = byte(i >> 12)
	}
	at := uint64(1)
	for range time.Tick(every) {
		before, err := processorTime()
		if err != nil {
			return err
		}
		fresh, err := unix.Mmap(-1, 0, faults*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			return err
		}
		for i := range faults {
			fresh[i*page] = 1
		}
		if err := unix.Munmap(fresh); err != nil {
			return err
		}
		for range reads {
			// Knuth's linear congruential generator (MMIX), mixed with the value read.
			at = at*6364136223846793005 + 1442695040888963407 + uint64(memory[at>>38])
		}
		after, err := processorTime()
		if err != nil {
			return err
		}
		if _, err := fmt.Println(time.Now().UnixNano(), after-before); err != nil {
			return err
		}
	}
	return nil
}

// processorTime of this thread, in nanoseconds.
func processorTime() (int64, error) {
	var taken unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &taken)
	return taken.Nano(), err
}
