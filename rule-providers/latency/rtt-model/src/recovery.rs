//! When a fit from nothing may be better than one that goes on: the network has changed, or two
//! parts of it that did not reach each other do so now.

use crate::model::Report;

/// Errors that exceed the usual one by this factor, in so many fits in a row, are worse.
const WORSE: f32 = 1.3;
const PATIENCE: u32 = 2;
/// Smaller errors are never worse.
const LEAST: f32 = 0.005;
/// How fast the usual error follows larger ones.
const FOLLOWS: f32 = 0.05;
/// Fits between two tries: twice as many after each, as samples of the change come in.
const LONGEST_PAUSE: u32 = 64;
/// Tries after parts have joined, whatever the errors.
const TRIES: u32 = 4;
/// A part of a network has at least two nodes, and one in so many.
const PARTS: usize = 50;
const NONE: u32 = u32::MAX;

/// The errors of pairs that were held out, and when a fit from nothing is tried.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct History {
    usual: Option<f32>,
    /// In a row.
    worse: u32,
    good: u32,
    /// After parts have joined.
    tries: u32,
    wait: u32,
    pause: u32,
}

impl History {
    /// Adds a fit's error; whether a fit from nothing is to be tried.
    pub fn asks(&mut self, missed: Option<f32>, joined: bool) -> bool {
        if let Some(missed) = missed {
            self.compare(missed);
        }
        if joined {
            (self.tries, self.wait, self.pause) = (TRIES, 0, 0);
        } else if self.good >= LONGEST_PAUSE {
            self.pause = 0;
        }
        self.wait = self.wait.saturating_sub(1);
        let asks = self.wait == 0 && (self.worse >= PATIENCE || self.tries > 0);
        if asks {
            self.tries = self.tries.saturating_sub(1);
            self.pause = (2 * self.pause).clamp(1, LONGEST_PAUSE);
            self.wait = self.pause;
        }
        asks
    }

    fn compare(&mut self, missed: f32) {
        let usual = self.usual.get_or_insert(missed);
        match missed > (WORSE * *usual).max(LEAST) {
            true => (self.worse, self.good) = (self.worse + 1, 0),
            false => (self.worse, self.good) = (0, self.good + 1),
        }
        *usual += match missed < *usual {
            true => missed - *usual,
            false => FOLLOWS * (missed - *usual),
        };
    }
}

/// For each node the lowest one that samples connect with it; [`NONE`]: it has no samples.
pub(crate) fn components(samples: &[Vec<Report>]) -> Vec<u32> {
    let mut parents: Vec<u32> = (0..samples.len() as u32).collect();
    let mut connected = vec![false; samples.len()];
    for (from, targets) in (0u32..).zip(samples) {
        for sample in targets {
            connected[from as usize] = true;
            connected[sample.to as usize] = true;
            let (a, b) = (root(&mut parents, from), root(&mut parents, sample.to));
            parents[a.max(b) as usize] = a.min(b);
        }
    }
    (0u32..)
        .zip(connected)
        .map(|(node, connected)| match connected {
            true => root(&mut parents, node),
            false => NONE,
        })
        .collect()
}

fn root(parents: &mut [u32], mut node: u32) -> u32 {
    while parents[node as usize] != node {
        let next = parents[node as usize];
        parents[node as usize] = parents[next as usize];
        node = next;
    }
    node
}

/// Whether parts that were apart are one.
pub(crate) fn have_joined(before: &[u32], now: &[u32]) -> bool {
    let both = before.iter().zip(now);
    let mut parts: Vec<(u32, u32)> = both
        .map(|(before, now)| (*now, *before))
        .filter(|(now, before)| *now != NONE && *before != NONE)
        .collect();
    parts.sort_unstable();
    let least = (parts.len() / PARTS).max(2);
    let mut large = parts
        .chunk_by(|a, b| a == b)
        .filter(|part| part.len() >= least);
    let mut last = large.next();
    large.any(|part| {
        last.replace(part)
            .is_some_and(|last| last[0].0 == part[0].0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(nodes: usize, links: &[(u32, u32)]) -> Vec<u32> {
        let mut samples = vec![Vec::new(); nodes];
        for (from, to) in links {
            samples[*from as usize].push(Report {
                to: *to,
                micros: 1.0,
                spread: None,
            });
        }
        components(&samples)
    }

    #[test]
    fn two_parts_that_join_are_noticed() {
        let apart = links(6, &[(0, 1), (2, 1), (4, 3)]);
        assert_eq!(apart, [0, 0, 0, 3, 3, NONE]);
        let joined = links(6, &[(0, 1), (2, 1), (4, 3), (4, 2)]);
        assert!(have_joined(&apart, &joined));
        assert!(!have_joined(&joined, &apart));
        assert!(!have_joined(&joined, &joined));
        let one_more = links(6, &[(0, 1), (2, 1), (4, 3), (5, 2)]);
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
