package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Result is the benchmark's figures of one run; see harness.Result.
type Result struct {
	Case             string             `json:"case"`
	Nodes            int                `json:"nodes"`
	Pods             int                `json:"pods"`
	PodsPerSecond    float64            `json:"podsPerSecond"`
	SamplesPerSecond float64            `json:"samplesPerSecond"`
	MicrosPerPod     map[string]float64 `json:"cpuMicrosPerPod"`
	PaceMicros       float64            `json:"paceMicros"`
	FilterMicros     float64            `json:"filterMicros,omitempty"`
	Requests         map[string]int     `json:"requests,omitempty"`
	Outcomes         map[string]int     `json:"outcomes,omitempty"`
	Binds            map[string]int     `json:"binds,omitempty"`
	RejectedNodes    map[string]int     `json:"rejectedNodes,omitempty"`
	ProviderCalls    map[string]int     `json:"providerCalls,omitempty"`
}

// bench runs single cases.
type bench struct{ root, out string }

// round runs each case once at each size. Each round starts with another case, so that
// the order of cases varies.
func (b bench) round(number, of int, cases []string, sizes []int) ([]Result, error) {
	var round []Result
	for _, nodes := range sizes {
		for i := range cases {
			name := cases[(i+number-1)%len(cases)]
			start := time.Now()
			result, err := b.run(name, nodes)
			if err != nil {
				return nil, fmt.Errorf("round %d, %s at %d nodes: %w", number, name, nodes, err)
			}
			fmt.Fprintf(os.Stderr, "round %d/%d %4d nodes %-14s %6.1f pods/s (%5.1f by samples), pace %3.0f us, CPU us/pod %s, took %.0f s\n",
				number, of, nodes, name, result.PodsPerSecond, result.SamplesPerSecond, result.PaceMicros, line(result.MicrosPerPod), time.Since(start).Seconds())
			round = append(round, result)
		}
	}
	return round, nil
}

// run runs one case in a process of its own.
func (b bench) run(name string, nodes int) (Result, error) {
	var result Result
	work, err := os.MkdirTemp(b.out, "run-")
	if err != nil {
		return result, err
	}
	defer os.RemoveAll(work)
	out, data := filepath.Join(work, "result.json"), filepath.Join(work, "data")
	cmd := exec.Command(filepath.Join(b.out, "perf.test"),
		"-test.run", "^$",
		"-test.bench", fmt.Sprintf("^BenchmarkPerfScheduling$/^%s$/^%d$", name, nodes),
		"-test.benchtime", "1x",
		"-test.timeout", "15m",
		"-data-items-dir", data,
		"-root", b.root,
		"-noop", filepath.Join(b.out, "noop"),
		"-out", out)
	cmd.Dir = filepath.Join(b.root, "tests/bench/scheduler-perf")
	// The folder for logs of API server and scheduler.
	cmd.Env = append(os.Environ(), "ARTIFACTS="+work)
	log, err := cmd.CombinedOutput()
	if err != nil {
		return result, fmt.Errorf("%w\n%s", err, tail(string(log), 60))
	}
	text, err := os.ReadFile(out)
	if err != nil {
		return result, fmt.Errorf("%w\n%s", err, tail(string(log), 60))
	}
	return result, json.Unmarshal(text, &result)
}

func tail(text string, most int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}
