//! How much measured times err: by the spread of each pair's own samples, which the difference of
//! both directions checks; without such a spread, by that difference of pairs with alike times.

use std::collections::BTreeMap;

use crate::{coords::Pair, held_out::quantile};

/// Times whose logarithms differ less are alike.
const SPAN: f32 = 0.7;
/// With fewer pairs of alike times nothing is known.
const FEWEST: usize = 10;
/// The normal distribution's 80 % bar over its 50 % one.
const OVER_MEDIAN: f32 = 1.9;
/// The usual factor of own spreads: few samples understate them.
const FEW_SAMPLES: f32 = 1.1;
/// Its prior weight, in pairs of both directions.
const PRIOR: f32 = 20.0;

/// All are half 80 % bars of one direction, of the logarithm.
#[derive(Clone, Debug, Default)]
pub(crate) struct Noise {
    /// By the time's logarithm over [`SPAN`].
    alike: BTreeMap<i32, Alike>,
    /// What own spreads are multiplied by.
    factors: Bars,
}

#[derive(Clone, Copy, Debug, Default)]
struct Alike {
    /// By the difference of both directions.
    apart: Option<Bars>,
    /// The median of own spreads.
    own: Option<f32>,
}

#[derive(Clone, Copy, Debug)]
struct Bars {
    all: f32,
    /// Without the few that are far noisier than the rest.
    most: f32,
}

impl Default for Bars {
    fn default() -> Self {
        Self {
            all: FEW_SAMPLES,
            most: FEW_SAMPLES,
        }
    }
}

impl Noise {
    pub fn new(pairs: &[Pair]) -> Self {
        let mut alike: BTreeMap<i32, [Vec<f32>; 2]> = BTreeMap::new();
        for pair in pairs {
            let [apart, own] = alike.entry(cell(pair.log)).or_default();
            if pair.weight > 1.0 {
                apart.push(pair.apart / 2.0f32.sqrt());
            }
            own.extend(pair.spread.map(|spread| spread * pair.weight.sqrt()));
        }
        let alike = alike.into_iter().map(|(at, [apart, own])| {
            let known = Alike {
                apart: bars(&apart),
                own: (own.len() >= FEWEST).then(|| quantile(own, 0.5)).flatten(),
            };
            (at, known)
        });
        let mut noise = Self {
            alike: alike.collect(),
            factors: Bars::default(),
        };
        let ratios = pairs.iter().filter(|pair| pair.weight > 1.0);
        let ratios = ratios.filter_map(|pair| {
            let mean = noise.own(pair.log, pair.weight, pair.spread)?;
            Some(pair.apart / (2.0 * mean))
        });
        let ratios: Vec<f32> = ratios.collect();
        if let Some(bars) = bars(&ratios) {
            let part = PRIOR / (PRIOR + ratios.len() as f32);
            let drawn = |bar: f32| bar.max(1e-3).powf(1.0 - part) * FEW_SAMPLES.powf(part);
            // Bars of measured pairs are never narrowed: few near pairs have both directions.
            noise.factors = Bars {
                all: drawn(bars.all).max(1.0),
                most: drawn(bars.most),
            };
        }
        noise
    }

    /// Half an 80 % bar of the mean of `directions`, with that `spread` of its samples; `None` if
    /// nothing is known.
    pub fn of(&self, log: f32, directions: f32, spread: Option<f32>) -> Option<f32> {
        self.bar(log, directions, spread, |bars| bars.all)
    }

    /// The same of most times, which the few that are far noisier do not widen.
    pub fn of_most(&self, log: f32, directions: f32, spread: Option<f32>) -> Option<f32> {
        self.bar(log, directions, spread, |bars| bars.most)
    }

    fn bar(
        &self,
        log: f32,
        directions: f32,
        spread: Option<f32>,
        of: impl Fn(Bars) -> f32,
    ) -> Option<f32> {
        if let Some(own) = self.own(log, directions, spread) {
            return Some(own * of(self.factors));
        }
        Some(of(self.alike.get(&cell(log))?.apart?) / directions.sqrt())
    }

    /// Few samples tell their spread badly: it is drawn to that of alike times.
    fn own(&self, log: f32, directions: f32, spread: Option<f32>) -> Option<f32> {
        let usual = self.alike.get(&cell(log)).and_then(|alike| alike.own);
        let usual = usual.map(|own| own / directions.sqrt());
        match (spread, usual) {
            (Some(own), Some(usual)) => Some((own * usual).sqrt()),
            (own, usual) => own.or(usual),
        }
    }
}

fn bars(differences: &[f32]) -> Option<Bars> {
    let part = |part| quantile(differences.to_vec(), part);
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

    fn pair(b: u32, log: f32, apart: f32, spread: Option<f32>) -> Pair {
        Pair {
            a: 0,
            b,
            log,
            weight: 2.0,
            apart,
            spread,
        }
    }

    #[test]
    fn without_spreads_both_directions_tell_the_noise_of_alike_times() {
        let near = (1..20).map(|b| pair(b, 0.1, 0.2, None));
        let few = (20..24).map(|b| pair(b, 3.0, 0.2, None));
        let noise = Noise::new(&near.chain(few).collect::<Vec<Pair>>());
        let one = noise.of(0.3, 1.0, None).unwrap();
        assert!((one - 0.2 / 2.0f32.sqrt()).abs() < 1e-6, "{one}");
        assert!(noise.of(0.3, 2.0, None).unwrap() < one);
        assert_eq!(noise.of_most(3.0, 1.0, None), None);
        assert_eq!(noise.of(3.0, 1.0, None), None);
    }

    #[test]
    fn own_spreads_tell_noisy_pairs_from_quiet_ones_and_both_directions_how_far_they_are_right() {
        let noisy = |b: u32| if b.is_multiple_of(4) { 0.2 } else { 0.02 };
        // Both directions differ by three times what the spreads say.
        let pairs: Vec<Pair> = (1..400)
            .map(|b| pair(b, 0.1, 6.0 * noisy(b), Some(noisy(b))))
            .collect();
        let noise = Noise::new(&pairs);
        let of = |b: u32| noise.of(0.1, 2.0, Some(noisy(b))).unwrap();
        assert!(of(4) > 2.0 * of(5), "{} {}", of(4), of(5));
        assert!(of(5) > 0.05, "{}", of(5));
        let alone = Noise::new(&[]);
        assert_eq!(alone.of(0.1, 1.0, Some(0.3)), Some(0.3 * FEW_SAMPLES));
    }
}
