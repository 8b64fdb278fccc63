//! What a fit reads of a model.

use crate::{
    Model, NodeId,
    coords::Pair,
    held_out,
    labels::{LabelFit, LabelStatus, Place, Sample},
    model::Node,
};

impl Model {
    /// Whether any node has a label.
    pub(crate) fn labelled(&self) -> bool {
        let known = |node: &Node| [node.region, node.zone, node.rack] != [0; 3];
        self.nodes.iter().any(known)
    }

    /// Of all samples but reports that are left out, or without those that are held out in a fold.
    pub(crate) fn label_fit(&self, without: Option<usize>) -> LabelFit {
        let parts = |node: &Node| [node.region, node.zone, node.rack];
        let mut names: Vec<u64> = self.nodes.iter().flat_map(parts).collect();
        names.sort_unstable();
        names.dedup();
        names.retain(|name| *name != 0);
        // Without labels, all nodes are alike: on a flat network that is as good as it gets.
        let alike = names.is_empty().then_some(0);
        let number = |name: u64| Some(names.binary_search(&name).ok()? as u32);
        let place = |node: &Node| Place {
            region: alike.filter(|_| node.present()).or(number(node.region)),
            zone: number(node.zone),
            rack: number(node.rack),
        };
        let places: Vec<Place> = self.nodes.iter().map(place).collect();
        let held = |a: u32, b: u32| {
            let key = |node: u32| self.nodes[node as usize].key;
            without.is_some_and(|fold| held_out::is_held(key(a), key(b), fold))
        };
        let reports = (0u32..).zip(&self.samples);
        let reports = reports.filter(|(from, _)| !self.doubts.leave_out(*from as usize));
        let samples = reports.flat_map(|(from, targets)| {
            let kept = targets.iter().filter(move |s| !held(from, s.to));
            kept.map(move |sample| Sample {
                from: NodeId(from),
                to: NodeId(sample.to),
                micros: sample.micros,
            })
        });
        LabelFit::new(&places, samples)
    }

    /// The unit of the coordinates in microseconds: the mean sample, each counted as at most twice
    /// the 90th percentile. The median would be tiny where most samples are of near nodes.
    pub(crate) fn scale(&self) -> f32 {
        let mut all: Vec<f32> = self.samples.iter().flatten().map(|s| s.micros).collect();
        if all.is_empty() {
            return 1.0;
        }
        let at = (all.len() - 1) * 9 / 10;
        let most = 2.0 * *all.select_nth_unstable_by(at, f32::total_cmp).1;
        let sum: f64 = all.iter().map(|micros| f64::from(micros.min(most))).sum();
        (sum / all.len() as f64) as f32
    }

    /// All measured pairs, lower number first, in order, without reports that others contradict.
    pub(crate) fn pairs(&self, scale: f32, labels: &LabelFit) -> Vec<Pair> {
        let labelled = self.labelled();
        let mut pairs: Vec<Pair> = Vec::new();
        for (from, samples) in self.samples.iter().enumerate() {
            let standing = labels.status(NodeId(from as u32));
            let contradicted = labelled && standing == LabelStatus::Misreports;
            if contradicted || self.doubts.leave_out(from) {
                continue;
            }
            pairs.extend(samples.iter().map(|sample| Pair {
                a: sample.to.min(from as u32),
                b: sample.to.max(from as u32),
                log: (sample.micros / scale).ln(),
                weight: 1.0,
                apart: 0.0,
                spread: sample.spread,
            }));
        }
        // Stable, so that both directions are always summed in the same order.
        pairs.sort_by_key(|pair| (pair.a, pair.b));
        pairs.dedup_by(|next, first| {
            let same = (next.a, next.b) == (first.a, first.b);
            if same {
                first.apart = (first.log - next.log).abs();
                first.log = (first.log + next.log) / 2.0;
                first.weight += next.weight;
                first.spread = match (first.spread, next.spread) {
                    (Some(one), Some(other)) => Some(one.hypot(other) / 2.0),
                    (one, other) => one.or(other).map(|spread| spread / 2.0f32.sqrt()),
                };
            }
            same
        });
        pairs
    }
}
