//! Draws a matrix as coloured tiles, in SVG.

use maud::{Markup, html};
use tautline_latency::report::{
    Basis, Cell, MatrixReport,
    scale::{Rgb, Scale},
    units::{exact, short},
    words::{self, marked_figure},
};

use crate::draw::clean;

/// The maximum size of the tiles on a page.
const MAX_TILES_BYTES: usize = 120_000;
/// The size of a tile without its names.
const TILE_BYTES: usize = 170;
const MAX_NAMES: usize = 32;
const MIN_NAMES: usize = 8;
/// The number of names up to which tiles show their figures.
const MAX_NAMES_WITH_FIGURES: usize = 12;
/// The limit for names; longer ones are cut.
const MAX_NAME_CHARS: usize = 48;
/// The limit for the text of a tile.
const MAX_TIP_CHARS: usize = 2000;
/// The width of a letter, in tenths of a pixel.
const LETTER_TENTHS: usize = 74;
const SCALE_STEPS: usize = 24;

/// A matrix, with the links of its rows and tiles.
pub(super) struct Tiles<'a> {
    pub report: &'a MatrixReport,
    /// The limit in microseconds above which tiles are dimmed.
    pub limit: Option<u64>,
    /// Returns the link of a row.
    pub row: &'a dyn Fn(usize) -> Option<String>,
    /// Returns the link of a tile.
    pub tile: &'a dyn Fn(usize, usize) -> Option<String>,
    /// True if tiles have their size; otherwise the style sheet has it.
    pub is_sized: bool,
}

/// Returns the number of names up to which the tiles fit on a page, by the longest of the names.
pub(super) fn most_names(names: &[String]) -> usize {
    let longest = names.iter().map(String::len).max().unwrap_or(0);
    let tiles = MAX_TILES_BYTES / (TILE_BYTES + 4 * longest.min(2 * MAX_NAME_CHARS));
    tiles.isqrt().clamp(MIN_NAMES, MAX_NAMES)
}

/// Returns whether a cell is within the limit, in microseconds; `None` if it has no figure.
pub(super) fn is_within(cell: &Cell, limit: u64) -> Option<bool> {
    match (cell.effective.basis, cell.effective.rtt_micros) {
        (Basis::Unreachable, _) => Some(false),
        (Basis::Nothing, _) | (_, None) => None,
        (_, Some(micros)) => Some(micros <= limit),
    }
}

/// Returns the names without their common domain, such as `.eu-west-1.compute.internal`.
fn short_names(names: &[String]) -> Vec<&str> {
    let after_dot = |name: &'_ str, from: usize| name[from..].find('.').map(|at| from + at);
    let mut domain = match names {
        [first, _, ..] => after_dot(first, 0).map_or("", |at| &first[at..]),
        _ => "",
    };
    for name in names {
        while !domain.is_empty() && (!name.ends_with(domain) || name.len() == domain.len()) {
            domain = after_dot(domain, 1).map_or("", |at| &domain[at..]);
        }
    }
    let short = names.iter().map(|name| name.strip_suffix(domain));
    short
        .zip(names)
        .map(|(short, name)| short.unwrap_or(name))
        .collect()
}

/// The sizes of the matrix in pixels, and the names to show.
pub(super) struct Layout {
    wide: usize,
    high: usize,
    left: usize,
    top: usize,
    names: Vec<String>,
    /// True if the tiles show their figures.
    figures: bool,
}

impl Layout {
    /// Returns the layout of a matrix that shows its figures up to `most` names.
    pub(super) fn new(names: &[String], most: usize) -> Self {
        let figures = names.len() <= most;
        let names = short_names(names);
        let names: Vec<String> = names.iter().map(|n| clean(n, MAX_NAME_CHARS)).collect();
        let longest = names.iter().map(|name| name.chars().count()).max();
        let left = longest.unwrap_or(0) * LETTER_TENTHS / 10 + 10;
        let (wide, high) = if figures { (58, 26) } else { (20, 20) };
        Self {
            wide,
            high,
            left,
            // The names of columns are slanted.
            top: left * 7 / 8 + 12,
            names,
            figures,
        }
    }

    /// Returns the width and the height of the matrix, in pixels.
    pub(super) fn size(&self) -> (usize, usize) {
        let count = self.names.len();
        let width = self.left + count * self.wide + self.left / 2 + 8;
        (width, self.top + count * self.high + 4)
    }
}

impl Tiles<'_> {
    /// Renders the matrix. The links of tiles are for the mouse; a table below has the same pairs.
    pub(super) fn render(&self) -> Markup {
        let layout = Layout::new(&self.report.names, MAX_NAMES_WITH_FIGURES);
        let (width, height) = layout.size();
        let scale = Scale::of(self.report);
        html! {
            div .scroll {
                svg .lat-matrix width=(width) height=(height) viewBox={ "0 0 " (width) " " (height) }
                    role="group" aria-label="Round-trip times, rows to columns" {
                    (self.matrix(&layout, scale))
                }
            }
            (self.legend(scale))
        }
    }

    /// Renders the names and the tiles.
    pub(super) fn matrix(&self, layout: &Layout, scale: Option<Scale>) -> Markup {
        html! {
            (labels(layout, self.row))
            g aria-hidden="true" {
                @for (i, row) in self.report.cells.iter().enumerate() {
                    @for (j, cell) in row.iter().enumerate() { (self.tile(layout, scale, (i, j), cell)) }
                }
            }
        }
    }

    fn tile(
        &self,
        layout: &Layout,
        scale: Option<Scale>,
        (i, j): (usize, usize),
        cell: &Cell,
    ) -> Markup {
        let (x, y) = (layout.left + j * layout.wide, layout.top + i * layout.high);
        let effective = cell.effective;
        let far = self.limit.and_then(|limit| is_within(cell, limit)) == Some(false);
        let place = effective.rtt_micros.zip(scale);
        let place = place.filter(|_| effective.basis != Basis::Same && !far);
        let colour = place.map(|(micros, scale)| Rgb::at(scale.place(micros)));
        let ink = match colour.map(Rgb::is_bright) {
            Some(true) => "ink dark",
            Some(false) => "ink light",
            None => "ink",
        };
        let far = if far { " far" } else { "" };
        let size = if layout.figures { "" } else { " small" };
        let text = marked_figure(effective);
        let (wide, high) = self
            .is_sized
            .then_some((layout.wide - 2, layout.high - 2))
            .unzip();
        let shape = html! {
            rect class={ "t " (class(effective.basis)) (far) (size) } x=(x) y=(y) width=[wide] height=[high]
                fill=[colour.map(Rgb::hex)] {}
            @if layout.figures || text == "x" {
                text class=(ink) x=(x + layout.wide / 2) y=(y + layout.high / 2 + 4) { (text) }
            }
            title { (clean(&words::cell(self.report, i, j, cell), MAX_TIP_CHARS)) }
        };
        html! {
            @match (self.tile)(i, j) {
                Some(page) => a href=(page) tabindex="-1" { (shape) },
                None => g { (shape) },
            }
        }
    }

    fn legend(&self, scale: Option<Scale>) -> Markup {
        html! {
            ul .legend {
                @if let Some(scale) = scale {
                    li {
                        (short(scale.micros(0.0))) " "
                        svg .lat-scale viewBox={ "0 0 " (SCALE_STEPS) " 1" } preserveAspectRatio="none" aria-hidden="true" {
                            @for i in 0..SCALE_STEPS {
                                rect x=(i) width="1.05" height="1"
                                    fill=(Rgb::at(i as f64 / (SCALE_STEPS - 1) as f64).hex()) {}
                            }
                        }
                        " " (short(scale.micros(1.0))) ", logarithmic"
                    }
                }
                li { (sign("measured")) " measured" }
                li { (sign("estimated")) " ~ predicted" }
                li { (sign("configured")) " = from a table" }
                li { (sign("old")) " ? measured, not recently" }
                li { (sign("lost")) " x unreachable" }
                li { (sign("nothing")) " - nothing known" }
                @if let Some(limit) = self.limit { li { (sign("measured far")) " farther than " (exact(limit)) } }
            }
        }
    }
}

fn labels(layout: &Layout, page: &dyn Fn(usize) -> Option<String>) -> Markup {
    html! {
        @for (i, name) in layout.names.iter().enumerate() {
            @let y = layout.top + i * layout.high + layout.high / 2 + 4;
            @let text = html! { text .name x=(layout.left - 6) y=(y) text-anchor="end" { (name) } };
            @match page(i) {
                Some(page) => a href=(page) { (text) },
                None => (text),
            }
            @let (x, y) = (layout.left + i * layout.wide + layout.wide / 2 + 4, layout.top - 6);
            text .name transform={ "translate(" (x) " " (y) ") rotate(-60)" } aria-hidden="true" { (name) }
        }
    }
}

/// Renders a tile of the legend. Tiles with a figure have a colour from the middle of the scale.
fn sign(class: &str) -> Markup {
    let fill = Rgb::at(0.65).hex();
    let coloured = !class.ends_with("far") && class != "lost" && class != "nothing";
    html! {
        svg .key viewBox="0 0 20 20" aria-hidden="true" {
            rect class={ "t small " (class) } fill=[coloured.then_some(fill)] {}
        }
    }
}

/// Returns the CSS class of a basis. Measured and predicted tiles differ by their outline.
fn class(basis: Basis) -> &'static str {
    match basis {
        Basis::Same => "same",
        Basis::Measured => "measured",
        Basis::Configured => "configured",
        Basis::Estimated => "estimated",
        Basis::Old => "old",
        Basis::Unreachable => "lost",
        Basis::Nothing => "nothing",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_lose_their_common_domain() {
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
            short_names(&names).join(" ")
        };
        assert_eq!(of(&["a.x.io", "b.x.io"]), "a b");
        assert_eq!(of(&["a.y.io", "b.x.io", "c.x.io"]), "a.y b.x c.x");
        assert_eq!(of(&["a.x.io", "b"]), "a.x.io b");
        assert_eq!(of(&["a.x.io", ".x.io"]), "a.x .x");
        assert_eq!(of(&["a.x.io"]), "a.x.io");
        assert!(of(&[]).is_empty());
    }
}
