package main

import (
	"fmt"
	"math"
	"strings"
)

// Sizes in the plot, in pixels.
const (
	labels  = 270
	panel   = 300
	row     = 30
	gap     = 30
	heading = 46
	footing = 44
)

// plot draws all rounds: a dot each, and a line at the median.
func (f *Figures) plot() string {
	sizes := f.sizes()
	width := labels + len(sizes)*(panel+gap)
	height := heading + len(cases)*row + footing
	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" fill="#222">`+"\n", width, height)
	fmt.Fprintf(&svg, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", width, height)
	for i, c := range cases {
		fmt.Fprintf(&svg, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", labels-12, middle(i)+4, c.title)
	}
	for i, nodes := range sizes {
		f.panel(&svg, labels+i*(panel+gap), nodes)
	}
	svg.WriteString("</svg>\n")
	return svg.String()
}

func middle(line int) int { return heading + line*row + row/2 }

func (f *Figures) panel(svg *strings.Builder, left, nodes int) {
	most := 0.0
	for _, c := range cases {
		for _, rate := range f.of(c.name, nodes, throughput) {
			most = max(most, rate)
		}
	}
	step := pretty(most / 5)
	most = math.Ceil(most/step) * step
	x := func(rate float64) float64 { return float64(left) + rate/most*panel }
	bottom := heading + len(cases)*row
	fmt.Fprintf(svg, `<text x="%d" y="20" font-weight="bold">%d nodes</text>`+"\n", left, nodes)
	fmt.Fprintf(svg, `<text x="%d" y="%d" text-anchor="middle">pods a second</text>`+"\n", left+panel/2, bottom+34)
	for rate := 0.0; rate <= most; rate += step {
		fmt.Fprintf(svg, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="#ddd"/>`+"\n", x(rate), x(rate), heading, bottom)
		fmt.Fprintf(svg, `<text x="%.1f" y="%d" text-anchor="middle">%.0f</text>`+"\n", x(rate), bottom+16, rate)
	}
	for i, c := range cases {
		rates := f.of(c.name, nodes, throughput)
		if len(rates) == 0 {
			continue
		}
		colour := "#777"
		if strings.Contains(c.title, "Tautline") {
			colour = "#0b5fa5"
		}
		at := x(median(rates))
		fmt.Fprintf(svg, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s" fill-opacity="0.2"/>`+"\n", left, middle(i)-9, at-float64(left), 18, colour)
		fmt.Fprintf(svg, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="%s" stroke-width="2"/>`+"\n", at, at, middle(i)-9, middle(i)+9, colour)
		for round, rate := range rates {
			// Dots of a case are offset by round, so that equal figures stay visible.
			y := float64(middle(i)) + 12*((float64(round)+0.5)/float64(len(rates))-0.5)
			fmt.Fprintf(svg, `<circle cx="%.1f" cy="%.1f" r="2" fill="%s"/>`+"\n", x(rate), y, colour)
		}
	}
}

// pretty is the smallest of 1, 2, 5, 10, 20, ... that is at least the number.
func pretty(least float64) float64 {
	for power := 1.0; ; power *= 10 {
		for _, digit := range []float64{1, 2, 5} {
			if digit*power >= least {
				return digit * power
			}
		}
	}
}
