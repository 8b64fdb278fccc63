//! Draws a matrix as a heat map in the terminal.

use std::fmt::Write;

use tautline_latency::report::{
    Basis, By, Cell, MatrixReport,
    scale::{Rgb, Scale},
    units::short,
    words::marked_figure,
};
use unicode_width::UnicodeWidthStr;

use crate::{
    gpu::bar::TerminalStyle,
    table::{cut, plain},
    watch::screen,
};

/// The width of a figure with its mark: `~999us`.
const FIGURE_COLUMNS: usize = 6;
/// The maximum width of a name; longer names are cut.
const MAX_NAME_COLUMNS: usize = 32;
/// The width of names up to which they stand above their columns; else numbers do.
const SHORT_NAME_COLUMNS: usize = 10;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Colours {
    #[default]
    None,
    Some256,
    All,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Canvas {
    pub(super) unicode: bool,
    pub(super) colours: Colours,
    /// The number of characters in a line.
    pub(super) columns: usize,
}

impl Canvas {
    pub(super) fn of_stdout() -> Self {
        let look = TerminalStyle::of_stdout();
        let term = |name| std::env::var(name).unwrap_or_default();
        let colours = match (look.colour, term("COLORTERM").as_str()) {
            (false, _) => Colours::None,
            (true, "truecolor" | "24bit") => Colours::All,
            (true, _) => Colours::Some256,
        };
        Self {
            unicode: look.unicode,
            colours,
            columns: screen::columns().unwrap_or(usize::MAX),
        }
    }

    /// The glyphs from near to far, without colour.
    fn ramp(self) -> [char; 5] {
        if self.unicode {
            ['·', '░', '▒', '▓', '█']
        } else {
            ['.', ':', '+', '*', '#']
        }
    }

    /// Paints text on the colour of a place of the scale.
    fn paint(self, text: &str, place: f64) -> String {
        let colour = Rgb::at(place);
        let [r, g, b] = colour.0;
        let ink = if colour.is_bright() { 16 } else { 231 };
        match self.colours {
            Colours::None => text.to_owned(),
            Colours::Some256 => {
                let ground = colour.ansi_256();
                format!("\u{1b}[48;5;{ground};38;5;{ink}m{text}\u{1b}[0m")
            }
            Colours::All => format!("\u{1b}[48;2;{r};{g};{b};38;5;{ink}m{text}\u{1b}[0m"),
        }
    }

    fn glyph(self, scale: Scale, micros: u64) -> char {
        let ramp = self.ramp();
        ramp[scale.level(micros, ramp.len())]
    }
}

/// Draws the map, its legend, and a note if figures do not fit.
pub(super) fn map(report: &MatrixReport, canvas: Canvas) -> String {
    let scale = Scale::of(report);
    let names: Vec<String> = report
        .names
        .iter()
        .map(|n| cut(&plain(n), MAX_NAME_COLUMNS))
        .collect();
    let map = Map {
        report,
        canvas,
        scale,
        numbered: names.iter().any(|n| n.width() > SHORT_NAME_COLUMNS),
        names,
    };
    let (full, one) = (map.width_of_figures(), 2);
    let room = canvas.columns.saturating_sub(map.label_width());
    let fits = |width: usize| room / width.max(1) >= report.names.len();
    let mut out = match (fits(full), fits(one)) {
        (true, _) => map.block(0, report.names.len(), full),
        (_, true) => map.block(0, report.names.len(), one),
        _ => {
            // Not even one character per column fits: print blocks of columns.
            let most = (room / one).max(1);
            let starts = (0..report.names.len()).step_by(most);
            let blocks =
                starts.map(|from| map.block(from, (from + most).min(report.names.len()), one));
            blocks.collect::<Vec<_>>().join("\n")
        }
    };
    out.push('\n');
    out += &map.legend();
    if !fits(full) {
        out += "The figures do not fit here: see them with -o json, -o svg, a wider terminal, or --nodes A,B,C.\n";
    }
    out
}

struct Map<'a> {
    report: &'a MatrixReport,
    canvas: Canvas,
    scale: Option<Scale>,
    names: Vec<String>,
    /// True if columns have numbers instead of names.
    numbered: bool,
}

impl Map<'_> {
    /// The width of a column with figures, and of the space before it.
    fn width_of_figures(&self) -> usize {
        let names = self.names.iter().map(|n| n.width()).max().unwrap_or(0);
        let header = if self.numbered { 0 } else { names };
        // A figure, and a character of the ramp or of colour behind it.
        1 + header.max(FIGURE_COLUMNS + 1)
    }

    fn label_width(&self) -> usize {
        let names = (0..self.names.len()).map(|i| self.label(i, true).width());
        names.max().unwrap_or(0)
    }

    fn label(&self, row: usize, numbers: bool) -> String {
        let name = self.names.get(row).map_or("", String::as_str);
        if numbers && self.numbered {
            let digits = self.names.len().to_string().len();
            format!("{:>digits$} {name}", row + 1)
        } else {
            name.to_owned()
        }
    }

    /// Draws the columns `from..to`, each with this width.
    fn block(&self, from: usize, to: usize, width: usize) -> String {
        let compact = width <= FIGURE_COLUMNS;
        let label_width = self.label_width();
        let pad = |text: &str| {
            format!(
                "{text}{}",
                " ".repeat(label_width.saturating_sub(text.width()))
            )
        };
        let mut out = String::new();
        if compact {
            self.vertical_numbers(&mut out, from, to, label_width);
        } else {
            out += &pad("");
            for column in from..to {
                let name = if self.numbered {
                    (column + 1).to_string()
                } else {
                    self.label(column, false)
                };
                // The name stands above the figure, which a character of the ramp follows.
                let space = (width - 1).saturating_sub(name.width());
                _ = write!(out, "{}{name} ", " ".repeat(space));
            }
            trim(&mut out);
        }
        for (i, row) in self.report.cells.iter().enumerate() {
            out += &pad(&self.label(i, true));
            for cell in row.get(from..to).unwrap_or_default() {
                out += &self.cell(cell, width, compact);
            }
            trim(&mut out);
        }
        out
    }

    fn cell(&self, cell: &Cell, width: usize, compact: bool) -> String {
        let effective = cell.effective;
        let coloured = self.canvas.colours != Colours::None;
        let scale = self.scale.filter(|_| effective.basis != Basis::Same);
        let place = effective.rtt_micros.zip(scale);
        if compact {
            return match place {
                Some((micros, scale)) if coloured => self.canvas.paint("  ", scale.place(micros)),
                Some((micros, scale)) => format!(" {}", self.canvas.glyph(scale, micros)),
                None => format!("{:>2}", marked_figure(effective)),
            };
        }
        let text = marked_figure(effective);
        match place {
            Some((micros, scale)) if coloured => {
                let cell = format!("{text:>width$} ", width = width - 2);
                format!(" {}", self.canvas.paint(&cell, scale.place(micros)))
            }
            Some((micros, scale)) => {
                let glyph = self.canvas.glyph(scale, micros);
                format!("{text:>width$}{glyph}", width = width - 1)
            }
            None => format!("{text:>width$} ", width = width - 1),
        }
    }

    /// Writes the numbers of columns with room for one digit, to be read downwards.
    fn vertical_numbers(&self, out: &mut String, from: usize, to: usize, label_width: usize) {
        let digits = to.to_string().len();
        for line in 0..digits {
            *out += &" ".repeat(label_width);
            for column in from..to {
                let number = format!("{:>digits$}", column + 1);
                let digit = number.chars().nth(line).unwrap_or(' ');
                _ = write!(out, " {digit}");
            }
            trim(out);
        }
    }

    fn legend(&self) -> String {
        let mut out = String::new();
        if let Some(scale) = self.scale {
            match self.canvas.colours {
                Colours::None => {
                    let ramp = self.canvas.ramp();
                    let count = ramp.len() as f64;
                    let up_to = |i: usize| short(scale.micros((i as f64 + 1.0) / count));
                    // In a narrow scale several glyphs end at the same figure.
                    let mut first = 0;
                    for i in 0..ramp.len() {
                        if ramp.get(i + 1).is_some() && up_to(i + 1) == up_to(i) {
                            continue;
                        }
                        let glyphs: String = ramp[first..=i].iter().collect();
                        _ = write!(out, "{glyphs} to {}  ", up_to(i));
                        first = i + 1;
                    }
                }
                _ => {
                    _ = write!(out, "{} ", short(scale.micros(0.0)));
                    for i in 0..20 {
                        out += &self.canvas.paint(" ", f64::from(i) / 19.0);
                    }
                    _ = write!(out, " {}  ", short(scale.micros(1.0)));
                }
            }
            out += "(logarithmic)\n";
        }
        out +=
            "~ estimated  = configured  ? measured, not recently  x unreachable  - nothing known\n";
        out += &self.counted();
        out
    }

    fn counted(&self) -> String {
        let cells = || {
            let rows = self.report.cells.iter().enumerate();
            rows.flat_map(|(i, row)| row.iter().skip(i))
        };
        let count = |n: usize, what: &str| match n {
            1 => format!("1 {what}"),
            n => format!("{n} {what}s"),
        };
        let names = self.report.names.len();
        match self.report.by {
            By::Zone => {
                let measured: usize = cells().map(|c| c.measured_pairs).sum();
                let lost: usize = cells().map(|c| c.unreachable_pairs).sum();
                format!(
                    "{}, {} of nodes measured, {lost} unreachable\n",
                    count(names, "zone"),
                    count(measured, "pair")
                )
            }
            By::Node => {
                let of = |basis| cells().filter(|c| c.effective.basis == basis).count();
                let [measured, estimated, configured, lost, nothing] = [
                    Basis::Measured,
                    Basis::Estimated,
                    Basis::Configured,
                    Basis::Unreachable,
                    Basis::Nothing,
                ]
                .map(of);
                format!(
                    "{}; pairs: {measured} measured, {estimated} estimated, \
                     {configured} configured, {lost} unreachable, {nothing} unknown\n",
                    count(names, "node")
                )
            }
        }
    }
}

fn trim(out: &mut String) {
    out.truncate(out.trim_end_matches(' ').len());
    out.push('\n');
}

#[cfg(test)]
pub(super) mod tests;
