//! A logarithmic scale of round-trip times, and its colours.

use super::matrix::MatrixReport;

/// The colour map cividis, which looks the same with and without colour blindness
/// (Nuñez, Anderton and Renslow, 2018, <https://doi.org/10.1371/journal.pone.0199239>).
const CIVIDIS: [[u8; 3]; 10] = [
    [0x00, 0x20, 0x4d],
    [0x00, 0x33, 0x6f],
    [0x39, 0x48, 0x6b],
    [0x57, 0x5c, 0x6d],
    [0x70, 0x71, 0x73],
    [0x8a, 0x87, 0x79],
    [0xa6, 0x9d, 0x75],
    [0xc4, 0xb5, 0x6c],
    [0xe4, 0xcf, 0x5b],
    [0xff, 0xea, 0x46],
];

/// A logarithmic scale from the least to the largest figure of a matrix, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    low: f64,
    high: f64,
}

/// A colour of red, green and blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rgb(pub [u8; 3]);

impl Scale {
    /// Returns the scale of a matrix, or `None` if it has no figures.
    pub fn of(report: &MatrixReport) -> Option<Self> {
        let mut figures = Vec::new();
        for (i, row) in report.cells.iter().enumerate() {
            for (j, cell) in row.iter().enumerate() {
                // A node's distance to itself does not count.
                let own = i == j && cell.effective.rtt_micros == Some(0);
                figures.extend(cell.effective.rtt_micros.filter(|_| !own));
            }
        }
        let (low, high) = (figures.iter().min()?, figures.iter().max()?);
        Some(Self {
            low: (*low).max(1) as f64,
            high: (*high).max(1) as f64,
        })
    }

    /// Returns the place of a figure: 0 for the least, 1 for the largest, 0.5 if all are the same.
    pub fn place(self, micros: u64) -> f64 {
        let width = (self.high / self.low).ln();
        if width <= 0.0 {
            return 0.5;
        }
        (((micros.max(1) as f64) / self.low).ln() / width).clamp(0.0, 1.0)
    }

    /// Returns the figure at a place, in microseconds.
    pub fn micros(self, place: f64) -> u64 {
        (self.low * (self.high / self.low).powf(place)).round() as u64
    }

    /// Returns the level of a figure, out of `count` levels from 0.
    pub fn level(self, micros: u64, count: usize) -> usize {
        ((self.place(micros) * count as f64) as usize).min(count.saturating_sub(1))
    }
}

impl Rgb {
    /// Returns the colour of a place on the scale: dark is near, bright is far.
    pub fn at(place: f64) -> Self {
        let last = CIVIDIS.len() - 1;
        let exact = place.clamp(0.0, 1.0) * last as f64;
        let below = (exact as usize).min(last - 1);
        let part = exact - below as f64;
        let (from, to) = (CIVIDIS[below], CIVIDIS[below + 1]);
        let mix = |i: usize| {
            let (from, to) = (f64::from(from[i]), f64::from(to[i]));
            (from + (to - from) * part).round() as u8
        };
        Self([mix(0), mix(1), mix(2)])
    }

    /// Returns whether dark letters are more readable on the colour than bright ones.
    pub fn is_bright(self) -> bool {
        let [r, g, b] = self.0.map(u32::from);
        r * 299 + g * 587 + b * 114 > 128_000
    }

    /// Formats the colour as `#rrggbb`.
    pub fn hex(self) -> String {
        let [r, g, b] = self.0;
        format!("#{r:02x}{g:02x}{b:02x}")
    }

    /// Returns the nearest of the 6 x 6 x 6 colours of terminals with 256 colours.
    pub fn ansi_256(self) -> u8 {
        let step = |c: u8| match c {
            0..48 => 0,
            48..115 => 1,
            _ => (c - 35) / 40,
        };
        let [r, g, b] = self.0.map(step);
        16 + 36 * r + 6 * g + b
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALE: Scale = Scale {
        low: 100.0,
        high: 10_000.0,
    };

    #[test]
    fn the_scale_is_logarithmic() {
        assert_eq!(SCALE.place(100), 0.0);
        assert!((SCALE.place(1_000) - 0.5).abs() < 1e-9);
        assert_eq!(SCALE.place(10_000), 1.0);
        assert_eq!((SCALE.place(0), SCALE.place(u64::MAX)), (0.0, 1.0));
        assert_eq!(SCALE.micros(0.5), 1_000);
        assert_eq!(
            [100, 999, 1_001, 10_000].map(|m| SCALE.level(m, 2)),
            [0, 0, 1, 1]
        );
        let one = Scale {
            low: 5.0,
            high: 5.0,
        };
        assert_eq!((one.place(5), one.micros(0.3)), (0.5, 5));
    }

    #[test]
    fn colours_grow_brighter_all_the_way() {
        let grey = |place: f64| {
            let [r, g, b] = Rgb::at(place).0.map(u32::from);
            r * 299 + g * 587 + b * 114
        };
        for i in 0..100 {
            let (here, next) = (f64::from(i) / 100.0, f64::from(i + 1) / 100.0);
            assert!(grey(here) < grey(next), "{here}");
        }
        assert!(!Rgb::at(0.0).is_bright() && Rgb::at(1.0).is_bright());
        assert_eq!(Rgb::at(-1.0), Rgb(CIVIDIS[0]));
        assert_eq!(Rgb::at(2.0), Rgb(CIVIDIS[9]));
        assert_eq!(Rgb::at(0.0).hex(), "#00204d");
        assert_eq!(Rgb([0, 0, 0]).ansi_256(), 16);
        assert_eq!(Rgb([255, 255, 255]).ansi_256(), 231);
        assert_eq!(Rgb([95, 135, 175]).ansi_256(), 67);
    }
}
