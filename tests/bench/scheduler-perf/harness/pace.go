package harness

import (
	"bytes"
	"fmt"
	"os"
	"time"
)

// paceName is the name of the process that measures the machine's pace.
const paceName = "pace"

// pace is the mean time of the pace process's work between two times, in microseconds
// of processor time.
func (s *servers) pace(from, to time.Time) (float64, error) {
	for _, server := range s.running {
		if server.name == paceName {
			text, err := os.ReadFile(server.log.Name())
			if err != nil {
				return 0, err
			}
			return meanPace(text, from, to)
		}
	}
	return 0, fmt.Errorf("no process measures the machine's pace")
}

func meanPace(text []byte, from, to time.Time) (float64, error) {
	sum, count := int64(0), int64(0)
	for line := range bytes.Lines(text) {
		var at, nanos int64
		if _, err := fmt.Sscanf(string(line), "%d %d\n", &at, &nanos); err != nil {
			return 0, fmt.Errorf("the machine's pace: %q: %w", line, err)
		}
		if at >= from.UnixNano() && at <= to.UnixNano() {
			sum, count = sum+nanos, count+1
		}
	}
	if count == 0 {
		return 0, fmt.Errorf("the machine's pace was not measured from %v to %v", from, to)
	}
	return float64(sum) / float64(count) / 1e3, nil
}
