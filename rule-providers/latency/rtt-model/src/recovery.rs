//! Decides when a fit from scratch is tried, as it may be better than one that continues: the
//! network has changed, or two parts of it that did not reach each other do so now.

use crate::model::Report;

/// The ratio to the usual error above which the error of a fit is worse.
const WORSE_ERROR_RATIO: f32 = 1.3;
/// The number of worse fits in a row after which a fit from scratch is tried.
const MIN_WORSE_FITS: u32 = 2;
/// The error up to which a fit is never worse, in logarithm.
const MIN_WORSE_ERROR: f32 = 0.005;
/// The part of the way by which the usual error follows a larger one in each fit.
const USUAL_ERROR_STEP_RATIO: f32 = 0.05;
/// The largest number of fits between two tries. The pause doubles after each try, as samples of
/// the change come in; it starts again after as many fits in a row that are not worse.
const MAX_PAUSE_FITS: u32 = 64;
/// The number of tries after parts have joined, whatever the errors.
const TRIES_AFTER_JOIN: u32 = 4;
/// The largest number of parts of a network: each has at least one in 50 of its nodes, and at least
/// two nodes.
const MAX_NETWORK_PARTS: usize = 50;
/// The component of a node without samples.
const NO_COMPONENT: u32 = u32::MAX;

/// The errors of past fits on held-out pairs, and the schedule of tries from scratch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct History {
    /// The usual error, in logarithm.
    usual: Option<f32>,
    /// The number of worse fits in a row.
    worse: u32,
    /// The number of fits in a row that are not worse.
    good: u32,
    /// The number of tries that are left after parts have joined.
    tries: u32,
    /// The number of fits before the next try.
    wait: u32,
    /// The number of fits between the last try and the next.
    pause: u32,
}

impl History {
    /// Adds a fit's error and returns whether a fit from scratch is to be tried.
    pub fn asks(&mut self, missed: Option<f32>, joined: bool) -> bool {
        if let Some(missed) = missed {
            self.compare(missed);
        }
        if joined {
            (self.tries, self.wait, self.pause) = (TRIES_AFTER_JOIN, 0, 0);
        } else if self.good >= MAX_PAUSE_FITS {
            self.pause = 0;
        }
        self.wait = self.wait.saturating_sub(1);
        let asks = self.wait == 0 && (self.worse >= MIN_WORSE_FITS || self.tries > 0);
        if asks {
            self.tries = self.tries.saturating_sub(1);
            self.pause = (2 * self.pause).clamp(1, MAX_PAUSE_FITS);
            self.wait = self.pause;
        }
        asks
    }

    fn compare(&mut self, missed: f32) {
        let usual = self.usual.get_or_insert(missed);
        if missed > (WORSE_ERROR_RATIO * *usual).max(MIN_WORSE_ERROR) {
            (self.worse, self.good) = (self.worse + 1, 0);
        } else {
            (self.worse, self.good) = (0, self.good + 1);
        }
        *usual += if missed < *usual {
            missed - *usual
        } else {
            USUAL_ERROR_STEP_RATIO * (missed - *usual)
        };
    }
}

/// Returns, for each node, the lowest node that samples connect with it; [`NO_COMPONENT`] if it
/// has no samples.
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
        .map(|(node, connected)| {
            if connected {
                root(&mut parents, node)
            } else {
                NO_COMPONENT
            }
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

/// Returns whether two parts that were apart are one now.
pub(crate) fn have_joined(before: &[u32], now: &[u32]) -> bool {
    let both = before.iter().zip(now);
    let mut parts: Vec<(u32, u32)> = both
        .map(|(before, now)| (*now, *before))
        .filter(|(now, before)| *now != NO_COMPONENT && *before != NO_COMPONENT)
        .collect();
    parts.sort_unstable();
    let least = (parts.len() / MAX_NETWORK_PARTS).max(2);
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
        assert_eq!(apart, [0, 0, 0, 3, 3, NO_COMPONENT]);
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
