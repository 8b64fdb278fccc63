package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// usage is the total processor time by process.
type usage map[string]time.Duration

// The kernel reports hundredths of a second, independent of its tick (USER_HZ).
const tick = 10 * time.Millisecond

// usageOf is the usage of this process, which is API server and scheduler, and of its
// children: etcd and the case's servers.
func usageOf(servers map[int]string) usage {
	self := os.Getpid()
	found := usage{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		stat, err := readStat(file)
		if err != nil {
			continue // The process has ended.
		}
		switch name, known := servers[stat.pid]; {
		case known:
			found[name] += stat.cpu
		case stat.pid == self:
			found["scheduler and API server"] += stat.cpu
		case stat.parent == self:
			found[stat.command] += stat.cpu
		}
	}
	return found
}

type stat struct {
	pid, parent int
	command     string
	cpu         time.Duration
}

// readStat reads proc_pid_stat(5). The command is in parentheses and may contain any
// character.
func readStat(file string) (stat, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return stat{}, err
	}
	open, end := strings.IndexByte(string(text), '('), strings.LastIndexByte(string(text), ')')
	if open < 0 || end < open {
		return stat{}, fmt.Errorf("%s: no command", file)
	}
	fields := strings.Fields(string(text[end+1:]))
	if len(fields) < 13 {
		return stat{}, fmt.Errorf("%s: too short", file)
	}
	numbers := make([]int, 0, 4)
	for _, field := range []string{strings.TrimSpace(string(text[:open])), fields[1], fields[11], fields[12]} {
		number, err := strconv.Atoi(field)
		if err != nil {
			return stat{}, fmt.Errorf("%s: %w", file, err)
		}
		numbers = append(numbers, number)
	}
	return stat{
		pid:     numbers[0],
		parent:  numbers[1],
		command: string(text[open+1 : end]),
		cpu:     time.Duration(numbers[2]+numbers[3]) * tick,
	}, nil
}
