//! How much measured times err, by time: from pairs that were measured in both directions.

use std::collections::BTreeMap;

use crate::{coords::Pair, held_out::quantile};

/// Times whose logarithms differ less are alike.
const SPAN: f32 = 0.7;
/// With fewer pairs of alike times nothing is known.
const FEWEST: usize = 10;
/// The normal distribution's 80 % bar over its 50 % one.
const OVER_MEDIAN: f32 = 1.9;

/// Half 80 % bars of one direction, of the logarithm, by the time's logarithm over
/// [`SPAN`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Noise(BTreeMap<i32, Bars>);

#[derive(Clone, Copy, Debug)]
struct Bars {
    all: f32,
    /// Without the few that are far noisier than the rest.
    most: f32,
}

impl Noise {
    pub fn new(pairs: &[Pair]) -> Self {
        let mut alike: BTreeMap<i32, Vec<f32>> = BTreeMap::new();
        for pair in pairs.iter().filter(|pair| pair.weight > 1.0) {
            alike.entry(cell(pair.log)).or_default().push(pair.apart);
        }
        let alike = alike.into_iter();
        Self(
            alike
                .filter_map(|(at, differences)| Some((at, bars(&differences)?)))
                .collect(),
        )
    }

    /// Half an 80 % bar of the mean of `directions`; `None` if nothing is known.
    pub fn of(&self, log: f32, directions: f32) -> Option<f32> {
        Some(self.0.get(&cell(log))?.all / directions.sqrt())
    }

    /// The same of most times, which the few that are far noisier do not widen.
    pub fn of_most(&self, log: f32, directions: f32) -> Option<f32> {
        Some(self.0.get(&cell(log))?.most / directions.sqrt())
    }
}

fn bars(differences: &[f32]) -> Option<Bars> {
    let part = |part| Some(quantile(differences.to_vec(), part)? / 2.0f32.sqrt());
    let all = part(0.8).filter(|_| differences.len() >= FEWEST)?;
    Some(Bars {
        all,
        most: all.min(OVER_MEDIAN * part(0.5)?),
    })
}

fn cell(log: f32) -> i32 {
    (log / SPAN).floor() as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_tell_the_noise_of_alike_times() {
        let pair = |b: u32, log: f32, apart: f32| Pair {
            a: 0,
            b,
            log,
            weight: 2.0,
            apart,
        };
        let near = (1..20).map(|b| pair(b, 0.1, 0.2));
        let few = (20..24).map(|b| pair(b, 3.0, 0.2));
        let noise = Noise::new(&near.chain(few).collect::<Vec<Pair>>());
        let one = noise.of(0.3, 1.0).unwrap();
        assert!((one - 0.2 / 2.0f32.sqrt()).abs() < 1e-6, "{one}");
        assert!(noise.of(0.3, 2.0).unwrap() < one);
        assert_eq!(noise.of_most(3.0, 1.0), None);
        assert_eq!(noise.of(3.0, 1.0), None);
    }
}
