//! The round-trip time of a pair of nodes: from a table, else measured, else estimated.

use std::fmt::Write;

use crate::{
    format::{micros, push_micros, seconds},
    location::Location,
    measurement::{Measurement, RttStats},
    network::view::{NodeRef, PeerRow},
    tables::{NamespaceRowsTo, NamespaceTables, table::RoundTrip},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PairRtt {
    SameNode,
    /// The round-trip time, at least 1 microsecond, and its source.
    Rtt {
        micros: u64,
        basis: Basis,
    },
    /// Echoes have been lost for `seconds`. `open` is true if a probe may find an answer.
    Unreachable {
        seconds: u32,
        open: bool,
    },
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Basis {
    Configured,
    Measured,
    Verified,
    Connect,
    /// A prediction, with the ends of its 80 % interval in microseconds.
    Estimated {
        low: u32,
        high: u32,
    },
    Old {
        seconds: u32,
    },
}

impl Basis {
    pub(crate) fn is_guess(self) -> bool {
        matches!(self, Self::Estimated { .. } | Self::Old { .. })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Measured | Self::Connect => "measured",
            Self::Verified => "verified",
            Self::Estimated { .. } => "estimated",
            Self::Old { .. } => "old",
        }
    }
}

impl PairRtt {
    fn fresh(stats: &RttStats, by_echo: Basis) -> Self {
        Self::Rtt {
            micros: micros(stats.median),
            basis: if stats.connect {
                Basis::Connect
            } else {
                by_echo
            },
        }
    }

    pub(crate) fn verified(measurement: &Measurement) -> Option<Self> {
        match measurement {
            Measurement::Fresh(stats) => Some(Self::fresh(stats, Basis::Verified)),
            Measurement::Unreachable { since, .. } => Some(Self::Unreachable {
                seconds: seconds(*since),
                open: false,
            }),
            Measurement::Stale(_) | Measurement::Missing => None,
        }
    }
}

pub(crate) struct PeerRtts<'a> {
    to: Location<'a>,
    table: NamespaceRowsTo<'a>,
    row: PeerRow,
}

impl<'a> PeerRtts<'a> {
    pub(crate) fn new(
        to: Location<'a>,
        tables: NamespaceTables<'a, RoundTrip>,
        row: PeerRow,
    ) -> Self {
        let table = tables.rows_to(to);
        Self { to, table, row }
    }

    pub(crate) fn from(&self, from: Location<'a>) -> PairRtt {
        self.rtt(from, self.row.names.find(from.node))
    }

    /// Returns the same as [`PeerRtts::from`], for a node that was already looked up in the view.
    pub(crate) fn rtt(&self, from: Location<'a>, found: NodeRef) -> PairRtt {
        if from.node == self.to.node {
            return PairRtt::SameNode;
        }
        if let Some(row) = self.table.from(from) {
            return PairRtt::Rtt {
                micros: row.value.max(1),
                basis: Basis::Configured,
            };
        }
        let old = match self.row.measurement_of(found) {
            Measurement::Fresh(stats) => return PairRtt::fresh(stats, Basis::Measured),
            Measurement::Unreachable {
                since,
                rarely_probed,
            } => {
                return PairRtt::Unreachable {
                    seconds: seconds(*since),
                    open: *rarely_probed,
                };
            }
            Measurement::Stale(stats) => PairRtt::Rtt {
                micros: micros(stats.median),
                basis: Basis::Old {
                    seconds: seconds(stats.age),
                },
            },
            Measurement::Missing => PairRtt::Unknown,
        };
        self.row.estimate_of(found).map_or(old, |e| PairRtt::Rtt {
            // Casts of floats saturate; NaN becomes 0.
            micros: (e.micros.round() as u64).max(1),
            basis: Basis::Estimated {
                low: e.low.round() as u32,
                high: e.high.round() as u32,
            },
        })
    }
}

/// Appends the source of a time, such as "estimated (2.9ms to 3.6ms)".
pub(crate) fn push_basis(out: &mut String, basis: Basis) {
    match basis {
        Basis::Configured => out.push_str("configured"),
        Basis::Measured => out.push_str("measured"),
        Basis::Verified => out.push_str("verified"),
        Basis::Connect => out.push_str("measured by TCP connect"),
        Basis::Estimated { low, high } => {
            out.push_str("estimated (");
            push_micros(out, two_digits(low));
            out.push_str(" to ");
            push_micros(out, two_digits(high));
            out.push(')');
        }
        Basis::Old { seconds } => _ = write!(out, "measured {seconds}s ago"),
    }
}

/// Truncates to two digits, which are enough for the ends of an interval.
fn two_digits(micros: u32) -> u64 {
    let micros = u64::from(micros);
    let scale = 10u64.pow(micros.max(1).ilog10().saturating_sub(1));
    micros.div_euclid(scale) * scale
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        Table, Tables,
        network::{Network, tests::network_of},
    };

    const A: Location<'_> = Location {
        node: "a",
        zone: Some("za"),
    };
    const B: Location<'_> = Location {
        node: "b",
        zone: Some("zb"),
    };

    fn ms(n: u64) -> RttStats {
        RttStats::of(Duration::from_millis(n))
    }

    fn rtt(table: &str, network: &Network) -> PairRtt {
        let mut rows = Table::default();
        rows.add(table).unwrap();
        let tables = Tables::from(rows);
        PeerRtts::new(B, tables.for_namespace(None), network.row("b")).from(A)
    }

    #[test]
    fn tables_come_before_measurements_estimates_and_old_measurements() {
        let network = network_of(&[]);
        assert_eq!(rtt("", &network), PairRtt::Unknown);
        let old = RttStats {
            age: Duration::from_secs(90),
            ..ms(7)
        };
        network.set("a", "b", Measurement::Stale(old));
        let basis = Basis::Old { seconds: 90 };
        let micros = 7_000;
        assert_eq!(rtt("", &network), PairRtt::Rtt { micros, basis });
        network.set_estimate("a", "b", 5_000.4);
        let estimate = network.row("b").estimate("a").unwrap();
        let basis = Basis::Estimated {
            low: estimate.low.round() as u32,
            high: estimate.high.round() as u32,
        };
        let micros = 5_000;
        assert_eq!(rtt("", &network), PairRtt::Rtt { micros, basis });
        let since = Duration::from_secs(3);
        for open in [true, false] {
            let rarely_probed = open;
            network.set(
                "a",
                "b",
                Measurement::Unreachable {
                    since,
                    rarely_probed,
                },
            );
            assert_eq!(rtt("", &network), PairRtt::Unreachable { seconds: 3, open });
        }
        network.set("a", "b", Measurement::Fresh(ms(3)));
        let (micros, basis) = (3_000, Basis::Measured);
        assert_eq!(rtt("", &network), PairRtt::Rtt { micros, basis });
        let connect = RttStats {
            connect: true,
            ..ms(4)
        };
        let measurement = Measurement::Fresh(connect);
        let (micros, basis) = (4_000, Basis::Connect);
        let by_connect = PairRtt::Rtt { micros, basis };
        assert_eq!(PairRtt::verified(&measurement), Some(by_connect));
        network.set("a", "b", measurement);
        assert_eq!(rtt("", &network), by_connect);
        let basis = Basis::Configured;
        for (table, micros) in [
            ("za,zb,4ms", 4_000),
            ("za,zb,4ms\nza,b,5ms", 5_000),
            ("za,zb,4ms\nza,b,5ms\na,zb,6ms", 6_000),
            ("za,zb,4ms\nza,b,5ms\na,zb,6ms\nb,a,0", 1),
        ] {
            assert_eq!(rtt(table, &network), PairRtt::Rtt { micros, basis });
        }
    }

    #[test]
    fn only_the_same_node_is_0_apart() {
        let network = network_of(&[]);
        let none = Tables::from(Table::default());
        network.set("a", "b", Measurement::Fresh(RttStats::default()));
        let rtts = PeerRtts::new(B, none.for_namespace(None), network.row("b"));
        assert_eq!(rtts.from(B), PairRtt::SameNode);
        let (micros, basis) = (1, Basis::Measured);
        assert_eq!(rtts.from(A), PairRtt::Rtt { micros, basis });
    }

    #[test]
    fn intervals_have_two_digits() {
        let mut text = String::new();
        let basis = Basis::Estimated {
            low: 2_941,
            high: 11_287,
        };
        push_basis(&mut text, basis);
        assert_eq!(text, "estimated (2.9ms to 11ms)");
    }
}
