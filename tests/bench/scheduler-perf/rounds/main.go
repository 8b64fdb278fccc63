// Command rounds runs the cases of the benchmark in interleaved rounds, each in a
// process of its own, and reports the medians. It is called by tests/bench/scheduler-perf/run.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "scheduler-perf:", err)
		os.Exit(1)
	}
}

func run() error {
	root := flag.String("root", "", "the repository; set by the script")
	var built Versions
	flag.StringVar(&built.Kubernetes, "kubernetes", "unknown", "its version; set by the script")
	flag.StringVar(&built.Rust, "rust", "unknown", "its version; set by the script")
	flag.StringVar(&built.Tautline, "tautline", "unknown", "its commit; set by the script")
	rounds := flag.Int("rounds", 9, "how many rounds there are in the end")
	nodes := flag.String("nodes", "500,5000", "sizes of the cluster")
	chosen := flag.String("cases", strings.Join(names(), ","), "cases to run")
	docs := flag.Bool("docs", false, "put tables and plot into docs/, and the figures into tests/bench/scheduler-perf/results.json")
	resume := flag.Bool("resume", false, "go on with the rounds of the last run")
	flag.Parse()

	sizes, err := numbers(*nodes)
	if err != nil {
		return err
	}
	wanted := strings.Split(*chosen, ",")
	for _, name := range wanted {
		if !slices.Contains(names(), name) {
			return fmt.Errorf("there is no case %q; there are %s", name, strings.Join(names(), ", "))
		}
	}
	b := bench{root: *root, out: filepath.Join(*root, "target/scheduler-perf")}
	kept := filepath.Join(b.out, "results.json")
	figures := Figures{Machine: machine(), Versions: built.all()}
	if *resume {
		if err := figures.read(kept); err != nil {
			return err
		}
	}
	for len(figures.Rounds) < *rounds {
		number := len(figures.Rounds) + 1
		start := time.Now()
		round, err := b.round(number, *rounds, wanted, sizes)
		if err != nil {
			return err
		}
		figures.Rounds = append(figures.Rounds, round)
		if err := figures.write(kept); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "round %d of %d took %.0f s\n", number, *rounds, time.Since(start).Seconds())
	}
	report := figures.report()
	fmt.Print(report)
	if !*docs {
		return nil
	}
	return errors.Join(
		figures.write(filepath.Join(*root, "tests/bench/scheduler-perf/results.json")),
		between(filepath.Join(*root, "docs/benchmarks.md"), report),
		os.WriteFile(filepath.Join(*root, "docs/scheduler-perf.svg"), []byte(figures.plot()), 0o644),
	)
}

func numbers(list string) ([]int, error) {
	var found []int
	for text := range strings.SplitSeq(list, ",") {
		number, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("--nodes: %w", err)
		}
		found = append(found, number)
	}
	return found, nil
}

func (f *Figures) read(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, f)
}

func (f *Figures) write(path string) error {
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
