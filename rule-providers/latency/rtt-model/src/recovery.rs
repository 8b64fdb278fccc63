//! Decides when a fit from scratch is tried, as it may be better than one that continues: the
//! network has changed, or two parts of it that did not reach each other do so now.

use crate::network::Report;

/// The part of a node without samples.
pub(crate) const NO_PART: u32 = u32::MAX;

/// The errors of past fits on held-out pairs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct History {
    /// The usual error, in logarithm.
    usual: Option<f32>,
    /// The number of worse fits in a row.
    worse: u32,
    /// The number of fits since parts have joined, with the first; 0 if none have.
    since_join: u32,
}

impl History {
    /// Adds a fit's error and returns whether a fit from scratch is to be tried: at the second fit in
    /// a row whose error is 30 % above the usual one, or at the first after parts have joined;
    /// then after twice as many fits each time, as samples of the change come in.
    pub fn asks(&mut self, missed: Option<f32>, joined: bool) -> bool {
        if let Some(missed) = missed {
            let usual = self.usual.get_or_insert(missed);
            let is_worse = missed > (1.3 * *usual).max(0.005);
            self.worse = if is_worse { self.worse + 1 } else { 0 };
            // A larger error becomes the usual one slowly.
            *usual = missed.min(*usual + 0.05 * (missed - *usual));
        }
        self.since_join = match self.since_join {
            _ if joined => 1,
            0 => 0,
            since => since.saturating_add(1),
        };
        let worse = self.worse.saturating_sub(1);
        let joined = self.since_join <= 8 && self.since_join.is_power_of_two();
        joined || worse.is_power_of_two() || worse > 0 && worse.is_multiple_of(64)
    }
}

/// Returns, for each node, the lowest node that samples connect with it; [`NO_PART`] if it has no
/// samples.
pub(crate) fn parts(samples: &[Vec<Report>]) -> Vec<u32> {
    let mut parts = vec![NO_PART; samples.len()];
    for (from, to) in links(samples) {
        let [a, b] = [from, to].map(|node| root(&mut parts, node));
        parts[a.max(b) as usize] = a.min(b);
    }
    // The lower node that each is connected with comes first.
    for node in 0..parts.len() {
        if let Some(part) = parts.get(parts[node] as usize) {
            parts[node] = *part;
        }
    }
    parts
}

fn links(samples: &[Vec<Report>]) -> impl Iterator<Item = (u32, u32)> {
    let nodes = (0..).zip(samples);
    nodes.flat_map(|(from, targets)| targets.iter().map(move |sample| (from, sample.to)))
}

/// Returns the lowest node that is known to be connected with `node`, which has samples.
fn root(parts: &mut [u32], mut node: u32) -> u32 {
    if parts[node as usize] == NO_PART {
        parts[node as usize] = node;
    }
    while parts[node as usize] != node {
        let next = parts[node as usize];
        parts[node as usize] = parts[next as usize];
        node = next;
    }
    node
}

/// Returns whether samples connect two parts that were apart, each of at least one in 50 of the
/// nodes, and of two.
pub(crate) fn have_joined(before: &[u32], samples: &[Vec<Report>]) -> bool {
    let mut sizes = vec![0; before.len()];
    for part in before.iter().filter(|part| **part != NO_PART) {
        sizes[*part as usize] += 1;
    }
    let least = (sizes.iter().sum::<usize>() / 50).max(2);
    let large = |node: u32| {
        let part = before.get(node as usize)?;
        sizes.get(*part as usize).filter(|size| **size >= least)?;
        Some(*part)
    };
    links(samples).any(|(from, to)| {
        let parts = large(from).zip(large(to));
        parts.is_some_and(|(one, other)| one != other)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linked(nodes: usize, links: &[(u32, u32)]) -> Vec<Vec<Report>> {
        let mut samples = vec![Vec::new(); nodes];
        for (from, to) in links {
            samples[*from as usize].push(Report {
                to: *to,
                micros: 1.0,
                spread: None,
            });
        }
        samples
    }

    #[test]
    fn two_parts_that_join_are_noticed() {
        let apart = parts(&linked(6, &[(0, 1), (2, 1), (4, 3)]));
        assert_eq!(apart, [0, 0, 0, 3, 3, NO_PART]);
        let joined = linked(6, &[(0, 1), (2, 1), (4, 3), (4, 2)]);
        assert!(have_joined(&apart, &joined));
        assert!(!have_joined(&parts(&joined), &joined));
        let one_more = linked(6, &[(0, 1), (2, 1), (4, 3), (5, 2)]);
        assert!(!have_joined(&apart, &one_more));
        assert!(!have_joined(&[], &joined));
    }

    #[test]
    fn errors_that_stay_above_the_usual_ones_ask_again_and_again_less() {
        let mut history = History::default();
        for missed in [0.2, 0.1, 0.11, 0.2, 0.1, 0.11] {
            assert!(!history.asks(Some(missed), false), "{missed}");
        }
        let asked = (1..30).filter(|_| history.asks(Some(0.4), false));
        assert_eq!(asked.collect::<Vec<_>>(), [2, 3, 5, 9, 17]);
        let asked = (1..200).filter(|_| history.asks(Some(0.4), false));
        assert!(asked.count() < 3, "larger errors become the usual ones");
    }

    #[test]
    fn joined_parts_ask_some_times() {
        let mut history = History::default();
        let asked = (0..30).filter(|fit| history.asks(Some(0.1), *fit == 3));
        assert_eq!(asked.collect::<Vec<_>>(), [3, 4, 6, 10]);
    }
}
