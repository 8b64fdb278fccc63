//! One way to a figure for a pair of nodes: what a table says, else what is
//! measured, else what is predicted.

use std::{fmt::Write, time::Duration};

use crate::{
    network::{PeerRow, Spot},
    places::Place,
    reading::{Figure, Reading},
    tables::{View, ViewTowards},
};

/// What is known of the round trip between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// It is one node.
    Same,
    /// At least 1 microsecond.
    Rtt {
        micros: u64,
        basis: Basis,
    },
    /// Echoes are lost, for so many seconds. `open`: a probe could tell more.
    Unreachable {
        seconds: u32,
        open: bool,
    },
    Nothing,
}

/// Where a figure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Basis {
    Configured,
    Measured,
    /// Measured for this very question.
    Verified,
    /// Measured, by TCP connect: echoes are lost.
    Connect,
    /// Predicted; microseconds that the truth is between in four of five cases.
    Estimated {
        low: u32,
        high: u32,
    },
    /// Measured, but not lately.
    Old {
        seconds: u32,
    },
}

impl Basis {
    /// Whether a measurement could still tell more.
    pub(crate) fn is_guess(self) -> bool {
        matches!(self, Self::Estimated { .. } | Self::Old { .. })
    }
}

impl Known {
    fn fresh(figure: &Figure, by_echo: Basis) -> Self {
        Self::Rtt {
            micros: micros(figure.median),
            basis: match figure.connect {
                true => Basis::Connect,
                false => by_echo,
            },
        }
    }

    /// What a probe has found, if it has.
    pub(crate) fn verified(reading: &Reading) -> Option<Self> {
        match reading {
            Reading::Fresh(figure) => Some(Self::fresh(figure, Basis::Verified)),
            Reading::Unreachable { since, .. } => Some(Self::Unreachable {
                seconds: seconds(*since),
                open: false,
            }),
            Reading::Old(_) | Reading::Nothing => None,
        }
    }
}

/// One peer's node, for questions about the ways from many nodes to it.
pub(crate) struct Ways<'a> {
    to: Place<'a>,
    table: ViewTowards<'a>,
    row: Option<PeerRow>,
}

impl<'a> Ways<'a> {
    /// `row`: what is measured, if anything is.
    pub(crate) fn new(to: Place<'a>, tables: View<'a>, row: Option<PeerRow>) -> Self {
        let table = tables.towards(to);
        Self { to, table, row }
    }

    pub(crate) fn from(&self, from: Place<'a>) -> Known {
        let spot = self.row.as_ref().map(|row| row.spot(from.node));
        self.at_spot(from, spot.unwrap_or_default())
    }

    /// The same from a node that was looked up in the row's view.
    pub(crate) fn at_spot(&self, from: Place<'a>, spot: Spot) -> Known {
        if from.node == self.to.node {
            return Known::Same;
        }
        if let Some(row) = self.table.from(from) {
            return Known::Rtt {
                micros: row.value.max(1),
                basis: Basis::Configured,
            };
        }
        let Some(row) = &self.row else {
            return Known::Nothing;
        };
        let old = match &*row.reading_at(from.node, spot) {
            Reading::Fresh(figure) => {
                return Known::fresh(figure, Basis::Measured);
            }
            Reading::Unreachable { since, seldom } => {
                return Known::Unreachable {
                    seconds: seconds(*since),
                    open: *seldom,
                };
            }
            Reading::Old(figure) => Known::Rtt {
                micros: micros(figure.median),
                basis: Basis::Old {
                    seconds: seconds(figure.age),
                },
            },
            Reading::Nothing => Known::Nothing,
        };
        row.estimate_at(from.node, spot)
            .map_or(old, |e| Known::Rtt {
                // Casts of floats saturate; NaN is 0.
                micros: (e.micros.round() as u64).max(1),
                basis: Basis::Estimated {
                    low: e.low.round() as u32,
                    high: e.high.round() as u32,
                },
            })
    }
}

/// Whole microseconds, at least 1: only the same node is at no distance.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros())
        .unwrap_or(u64::MAX)
        .max(1)
}

fn seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)
}

/// Writes microseconds for people: "180us", "31.25ms", "1.5s".
pub(crate) fn push_micros(out: &mut String, micros: u64) {
    let (unit, scale) = match micros {
        0..1_000 => ("us", 1),
        1_000..1_000_000 => ("ms", 1_000),
        _ => ("s", 1_000_000),
    };
    push_digits(out, micros / scale, 1);
    let mut rest = micros % scale;
    if rest > 0 {
        let mut width = if scale == 1_000 { 3 } else { 6 };
        while rest.is_multiple_of(10) {
            rest /= 10;
            width -= 1;
        }
        out.push('.');
        push_digits(out, rest, width);
    }
    out.push_str(unit);
}

/// Writes a number with at least so many digits: an answer has tens of thousands,
/// and formatting machinery takes longer than all the rest of it.
fn push_digits(out: &mut String, mut number: u64, width: usize) {
    let mut digits = [0u8; 20];
    let mut first = digits.len();
    for (at, digit) in digits.iter_mut().enumerate().rev() {
        if number == 0 && 20 - at > width {
            break;
        }
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        first = at;
    }
    out.push_str(std::str::from_utf8(&digits[first..]).unwrap_or_default());
}

/// Microseconds as a text of its own.
pub(crate) fn show(micros: u64) -> String {
    let mut out = String::new();
    push_micros(&mut out, micros);
    out
}

/// Writes where a figure comes from: "estimated (2.9ms to 3.6ms)".
pub(crate) fn push_basis(out: &mut String, basis: Basis) {
    match basis {
        Basis::Configured => out.push_str("configured"),
        Basis::Measured => out.push_str("measured"),
        Basis::Verified => out.push_str("verified"),
        Basis::Connect => out.push_str("measured by TCP connect"),
        Basis::Estimated { low, high } => {
            out.push_str("estimated (");
            push_micros(out, rough(low));
            out.push_str(" to ");
            push_micros(out, rough(high));
            out.push(')');
        }
        Basis::Old { seconds } => _ = write!(out, "measured {seconds}s ago"),
    }
}

/// Two digits are enough of an error bar.
fn rough(micros: u32) -> u64 {
    let micros = u64::from(micros);
    let scale = 10u64.pow(micros.max(1).ilog10().saturating_sub(1));
    micros.div_euclid(scale) * scale
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tautline_core::duration;
    use tautline_rtt_model::Estimate;

    use super::*;
    use crate::{Table, Tables, network::Network};

    const A: Place<'_> = Place {
        node: "a",
        zone: Some("za"),
    };
    const B: Place<'_> = Place {
        node: "b",
        zone: Some("zb"),
    };

    fn ms(n: u64) -> Figure {
        Figure::of(Duration::from_millis(n))
    }

    fn known(table: &str, network: &Network) -> Known {
        let mut rows = Table::default();
        rows.add(table).unwrap();
        let tables = Tables::from(rows);
        Ways::new(B, tables.for_namespace(None), Some(network.row("b"))).from(A)
    }

    #[test]
    fn tables_then_measurements_then_estimates_then_what_was_measured() {
        let network = Network::default();
        assert_eq!(known("", &network), Known::Nothing);
        let old = Figure {
            age: Duration::from_secs(90),
            ..ms(7)
        };
        network.set_reading("a", "b", Reading::Old(old));
        let basis = Basis::Old { seconds: 90 };
        let micros = 7_000;
        assert_eq!(known("", &network), Known::Rtt { micros, basis });
        let estimate = Estimate {
            micros: 5_000.4,
            low: 4_000.0,
            high: 6_000.0,
        };
        network.set_estimate("a", "b", estimate);
        let basis = Basis::Estimated {
            low: 4_000,
            high: 6_000,
        };
        let micros = 5_000;
        assert_eq!(known("", &network), Known::Rtt { micros, basis });
        let since = Duration::from_secs(3);
        for open in [true, false] {
            let seldom = open;
            network.set_reading("a", "b", Reading::Unreachable { since, seldom });
            assert_eq!(known("", &network), Known::Unreachable { seconds: 3, open });
        }
        network.set_reading("a", "b", Reading::Fresh(ms(3)));
        let (micros, basis) = (3_000, Basis::Measured);
        assert_eq!(known("", &network), Known::Rtt { micros, basis });
        let connect = Figure {
            connect: true,
            ..ms(4)
        };
        let reading = Reading::Fresh(connect);
        let (micros, basis) = (4_000, Basis::Connect);
        let by_connect = Known::Rtt { micros, basis };
        assert_eq!(Known::verified(&reading), Some(by_connect));
        network.set_reading("a", "b", reading);
        assert_eq!(known("", &network), by_connect);
        let basis = Basis::Configured;
        for (table, micros) in [
            ("za,zb,4ms", 4_000),
            ("za,zb,4ms\nza,b,5ms", 5_000),
            ("za,zb,4ms\nza,b,5ms\na,zb,6ms", 6_000),
            ("za,zb,4ms\nza,b,5ms\na,zb,6ms\nb,a,0", 1),
        ] {
            assert_eq!(known(table, &network), Known::Rtt { micros, basis });
        }
    }

    #[test]
    fn only_the_same_node_is_at_no_distance() {
        let network = Network::default();
        let none = Tables::from(Table::default());
        let ways = Ways::new(B, none.for_namespace(None), Some(network.row("b")));
        assert_eq!(ways.from(B), Known::Same);
        network.set_reading("a", "b", Reading::Fresh(Figure::default()));
        let (micros, basis) = (1, Basis::Measured);
        assert_eq!(ways.from(A), Known::Rtt { micros, basis });
    }

    #[test]
    fn written_for_people() {
        let mut text = String::new();
        let basis = Basis::Estimated {
            low: 2_941,
            high: 11_287,
        };
        push_basis(&mut text, basis);
        assert_eq!(text, "estimated (2.9ms to 11ms)");
    }

    proptest! {
        #[test]
        fn microseconds_read_as_durations_do(micros in 0u64..30_000_000) {
            let text = show(micros);
            prop_assert_eq!(duration::parse(&text).unwrap(), Duration::from_micros(micros));
        }
    }
}
