//! Nodes whose own reports are wrong, found without labels. A node's reports and those of others
//! about it err alike at alike times if both are true. By how much its own are off is
//! found for all nodes together, because those that are wrong may confirm each other.

use crate::{axes::Axes, model::Report};

/// Fitted times whose logarithms differ less are alike: reports of these are compared.
const ALIKE: f32 = 0.3;
/// Larger errors of the logarithm do not count: the node is in a wrong place.
const CLIP: f32 = 1.5;
/// A factor moves by no more than this in a round.
const STEP: f32 = 1.0;
const ROUNDS: usize = 10;
/// Factors that move less have been found.
const SETTLED: f32 = 0.01;
/// The weight of "none" in a factor, in comparisons.
const PRIOR: f32 = 0.5;
/// So many fits in a row must find a node's reports wrong.
const PATIENCE: u8 = 2;

/// What makes reports wrong.
struct Proof {
    /// The logarithm's least factor.
    factor: f32,
    /// Over its standard error.
    surely: f32,
    /// The part of comparisons that show at least half of it.
    part: f32,
    /// Comparisons of the node's own reports, and of others' about it.
    count: f32,
}

const WRONG: Proof = Proof {
    factor: 0.4,
    surely: 3.5,
    part: 0.7,
    count: 1.5,
};
/// Of reports that are left out already.
const STILL_WRONG: Proof = Proof {
    factor: 0.3,
    surely: 2.0,
    part: 0.6,
    count: 1.0,
};

/// In how many fits in a row each node's reports were wrong.
#[derive(Clone, Debug, Default)]
pub(crate) struct Doubts(Vec<u8>);

impl Doubts {
    /// Whether a node's reports are left out of fits.
    pub fn leave_out(&self, node: usize) -> bool {
        self.0.get(node).is_some_and(|times| *times >= PATIENCE)
    }

    pub fn forget(&mut self, node: usize) {
        if let Some(times) = self.0.get_mut(node) {
            *times = 0;
        }
    }

    /// Compares all reports with a fit: its coordinates, and microseconds a unit.
    pub fn update(&mut self, samples: &[Vec<Report>], (axes, scale): (&Axes, f32)) {
        let nodes = reports(samples, scale, axes);
        let factors = factors(&nodes);
        self.0.resize(nodes.len(), 0);
        for (node, reports) in nodes.iter().enumerate() {
            let proof = match self.leave_out(node) {
                true => STILL_WRONG,
                false => WRONG,
            };
            self.0[node] = match reports.are_wrong(node, &factors, &proof) {
                true => self.0[node].saturating_add(1).min(PATIENCE),
                false => 0,
            };
        }
    }
}

/// One figure.
#[derive(Clone, Copy)]
struct Residual {
    other: u32,
    /// Logarithms of the fitted time, and of the reported one over it.
    fitted: f32,
    off: f32,
}

/// All of a node, by fitted time.
#[derive(Default)]
struct Reports {
    own: Vec<Residual>,
    /// Of others about it.
    others: Vec<Residual>,
}

/// Reports of one side against those of the other.
struct Comparison {
    off: f32,
    weight: f32,
}

fn reports(samples: &[Vec<Report>], scale: f32, axes: &Axes) -> Vec<Reports> {
    let mut nodes: Vec<Reports> = samples.iter().map(|_| Reports::default()).collect();
    for (from, targets) in samples.iter().enumerate() {
        for &Report { to, micros, .. } in targets {
            let fitted = axes.distance(from, to as usize).ln();
            let residual = |other| Residual {
                other,
                fitted,
                off: (micros / scale).ln() - fitted,
            };
            nodes[from].own.push(residual(to));
            nodes[to as usize].others.push(residual(from as u32));
        }
    }
    for node in &mut nodes {
        for side in [&mut node.own, &mut node.others] {
            side.sort_unstable_by(|a, b| {
                (a.fitted.total_cmp(&b.fitted)).then(a.other.cmp(&b.other))
            });
        }
    }
    nodes
}

/// The logarithm by which each node's own reports are off; that of most nodes is 0.
fn factors(nodes: &[Reports]) -> Vec<f32> {
    let mut factors = vec![0.0f32; nodes.len()];
    for _ in 0..ROUNDS {
        let mut next: Vec<f32> = nodes
            .iter()
            .zip(&factors)
            .map(|(node, factor)| node.factor(*factor, &factors))
            .collect();
        let known = nodes.iter().zip(&next).filter(|(node, _)| node.compare());
        let mut known: Vec<f32> = known.map(|(_, factor)| *factor).collect();
        if !known.is_empty() {
            let middle = known.len() / 2;
            let usual = *known.select_nth_unstable_by(middle, f32::total_cmp).1;
            next.iter_mut().for_each(|factor| *factor -= usual);
        }
        let moved = |(next, last): (&f32, &f32)| (next - last).abs();
        let most = next.iter().zip(&factors).map(moved).fold(0.0, f32::max);
        factors = next;
        if most < SETTLED {
            break;
        }
    }
    factors
}

impl Reports {
    fn compare(&self) -> bool {
        !self.own.is_empty() && !self.others.is_empty()
    }

    fn factor(&self, last: f32, factors: &[f32]) -> f32 {
        let (mut sum, mut all) = (0.0, 0.0);
        for found in comparisons(&self.own(), &self.others(factors)) {
            sum += found.weight * (found.off - last).clamp(-STEP, STEP);
            all += found.weight;
        }
        (all * last + sum) / (all + PRIOR)
    }

    fn are_wrong(&self, node: usize, factors: &[f32], proof: &Proof) -> bool {
        let factor = factors[node];
        if factor.abs() < proof.factor {
            return false;
        }
        let (own, others) = (self.own(), self.others(factors));
        let mut variance = 0.0;
        for (found, sign) in [
            (comparisons(&own, &others), 1.0),
            (comparisons(&others, &own), -1.0),
        ] {
            let (mut all, mut shown, mut squares) = (0.0, 0.0, 0.0);
            for Comparison { off, weight } in found {
                let part = sign * off / factor;
                all += weight;
                shown += weight * f32::from(u8::from(part > 0.5));
                squares += weight * (sign * off - factor).powi(2);
            }
            if all < proof.count || shown < proof.part * all {
                return false;
            }
            variance += squares / all / (all - 1.0).max(0.1);
        }
        factor.abs() > proof.surely * variance.sqrt()
    }

    /// Fitted times and errors.
    fn own(&self) -> Vec<[f32; 2]> {
        let own = self.own.iter();
        own.map(|r| [r.fitted, r.off]).collect()
    }

    /// Without the factors of those who report.
    fn others(&self, factors: &[f32]) -> Vec<[f32; 2]> {
        let off = |r: &Residual| r.off - factors[r.other as usize];
        self.others.iter().map(|r| [r.fitted, off(r)]).collect()
    }
}

/// Each of `these` against the mean of those of alike times; both are by time.
fn comparisons(these: &[[f32; 2]], those: &[[f32; 2]]) -> Vec<Comparison> {
    let mut first = 0;
    let mut out = Vec::with_capacity(these.len());
    for &[fitted, off] in these {
        first += those[first..]
            .iter()
            .take_while(|that| that[0] <= fitted - ALIKE)
            .count();
        let (mut sum, mut count) = (0.0, 0.0);
        let alike = those[first..]
            .iter()
            .take_while(|that| that[0] < fitted + ALIKE);
        for that in alike.filter(|that| that[1].abs() < CLIP && off.abs() < CLIP) {
            sum += that[1];
            count += 1.0;
        }
        if count > 0.0 {
            out.push(Comparison {
                off: off - sum / count,
                weight: count / (1.0 + count),
            });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coords::Coords;

    const NODES: usize = 24;

    /// All measure all; the first node reports times this.
    fn samples(axes: &Axes, lie: f32) -> Vec<Vec<Report>> {
        let lie = |from| if from == 0 { lie } else { 1.0 };
        let of = |from: usize| {
            let others = (0..NODES).filter(move |to| *to != from);
            others.map(move |to| Report {
                to: to as u32,
                micros: 1e3 * lie(from) * axes.distance(from, to),
                spread: None,
            })
        };
        (0..NODES).map(|from| of(from).collect()).collect()
    }

    #[test]
    fn reports_that_are_wrong_in_two_fits_are_left_out_until_they_agree() {
        let axes = Axes::new(&Coords::scatter(1..=NODES as u64, 1), &[], None);
        let mut doubts = Doubts::default();
        for (lie, left_out) in [
            (3.0, false),
            (3.0, true),
            (1.2, false),
            (0.3, false),
            (0.3, true),
        ] {
            doubts.update(&samples(&axes, lie), (&axes, 1e3));
            assert_eq!(doubts.leave_out(0), left_out, "{lie}");
            assert!((1..NODES).all(|node| !doubts.leave_out(node)));
        }
        doubts.forget(0);
        assert!(!doubts.leave_out(0));
    }

    #[test]
    fn reports_that_are_far_off_tell_of_a_wrong_place_only() {
        let axes = Axes::new(&Coords::scatter(1..=NODES as u64, 1), &[], None);
        let mut samples = samples(&axes, 1.0);
        for report in samples.iter_mut().skip(1).flatten() {
            if report.to == 0 {
                report.micros /= 150.0;
            }
        }
        let mut doubts = Doubts::default();
        for _ in 0..3 {
            doubts.update(&samples, (&axes, 1e3));
            assert!((0..NODES).all(|node| !doubts.leave_out(node)));
        }
    }
}
