package main

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// How often the machine's pace is taken, and by what: so many page faults, and so many
// reads at random of so many bytes, far more than caches hold, each after the one before.
const (
	every  = 50 * time.Millisecond
	faults = 64
	reads  = 1000
	bytes  = 64 << 20
)

// pace writes lines of a time, in nanoseconds since 1970, and of the processor time, in
// nanoseconds, that the same work took then. What others on the same hardware do is seen
// in it: they share caches, memory and execution units, and none of that is counted.
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
			// As the next of Knuth's random numbers (MMIX), beside what was read.
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

// processorTime is what this thread has taken, in nanoseconds.
func processorTime() (int64, error) {
	var taken unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &taken)
	return taken.Nano(), err
}
