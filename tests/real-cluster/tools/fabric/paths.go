package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// path is one direction between two sites.
type path struct {
	delay, jitter time.Duration
	loss          float64 // share of the packets, 0 to 1
	down          bool
}

// paths[i][j] is the path from site i to site j.
type paths [][]path

func newPaths(sites int) paths {
	p := make(paths, sites)
	for i := range p {
		p[i] = make([]path, sites)
	}
	return p
}

// parsePaths reads a delays file. Paths without a line have no delay.
func parsePaths(text string, sites []string) (paths, error) {
	p := newPaths(len(sites))
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if err := p.apply(words, sites); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}
	return p, nil
}

func (p paths) apply(words, sites []string) error {
	from, to, oneWay := strings.Cut(words[0], ">")
	words = words[1:]
	if !oneWay {
		if len(words) == 0 {
			return fmt.Errorf("the second site is missing")
		}
		to, words = words[0], words[1:]
	}
	i, j := slices.Index(sites, from), slices.Index(sites, to)
	if i < 0 || j < 0 || i == j {
		return fmt.Errorf("%q and %q are not two of the sites %s", from, to, strings.Join(sites, ", "))
	}
	value, err := parsePath(words)
	if err != nil {
		return err
	}
	p[i][j] = value
	if !oneWay {
		p[j][i] = value
	}
	return nil
}

func parsePath(words []string) (path, error) {
	var p path
	var err error
	for k := 0; k < len(words) && err == nil; k++ {
		switch word := words[k]; word {
		case "down":
			p.down = true
		case "jitter", "loss":
			if k++; k == len(words) {
				return p, fmt.Errorf("the value of %s is missing", word)
			}
			if word == "jitter" {
				p.jitter, err = parseDelay(words[k])
			} else if p.loss, err = strconv.ParseFloat(words[k], 64); err == nil && !(p.loss >= 0 && p.loss <= 1) {
				err = fmt.Errorf("loss %s is not between 0 and 1", words[k])
			}
		default:
			p.delay, err = parseDelay(word)
		}
	}
	return p, err
}

func parseDelay(word string) (time.Duration, error) {
	d, err := time.ParseDuration(word)
	if err == nil && (d < 0 || d > time.Minute) {
		err = fmt.Errorf("%s is not between 0 and 1m", word)
	}
	return d, err
}
