//! Predictions by coordinates with corrections, and by labels.

use crate::{
    axes::Axes,
    coords::{Coords, Pair},
    labels::{LabelEstimate, LabelFit, LabelRow, Location, Locations},
    model::Node,
    neighbours,
    smooth::{self, Sample},
    sparse::Sparse,
    tuning::TUNING,
};

/// A fit to measured pairs; times are logarithms of multiples of the fit's scale.
#[derive(Clone, Debug)]
pub(crate) struct Predictor {
    axes: Axes,
    /// True for each node with samples from it or to it.
    pub measured: Vec<bool>,
    pub samples: Sparse<Sample>,
    kernels: Sparse<[f32; 2]>,
    labels: LabelFit,
    /// True if any node has labels.
    pub labelled: bool,
    /// True if samples are noisy, so that only many residuals together correct coordinates.
    pub noisy: bool,
    /// True for each node whose samples contradict its labels; its location is the zone that its
    /// samples fit.
    pub contradicted: Vec<bool>,
}

/// The predictions of a pair's time, in logarithm.
pub(crate) struct Predicted {
    /// The predictions by coordinates, with the usual corrections and with those of noisy samples.
    pub coords: [f32; 2],
    pub labels: Option<LabelEstimate>,
}

impl Predictor {
    pub fn new(nodes: &[Node], coords: &Coords, pairs: &[Pair]) -> Self {
        let mut measured = vec![false; nodes.len()];
        for pair in pairs {
            measured[pair.a as usize] = true;
            measured[pair.b as usize] = true;
        }
        let axes = Axes::new(coords);
        let fitted = |pair: &Pair| axes.distance(pair.a as usize, pair.b as usize).ln();
        let cells = pairs.iter().map(|pair| {
            let sample = Sample::new(pair, fitted(pair));
            (pair.a, pair.b, sample)
        });
        let mut samples = Sparse::new(nodes.len(), cells);
        let kernels = neighbours::kernels(&axes, &measured);
        smooth::second_step(&mut samples, &kernels, nodes.len());
        let mut labels = LabelFit::new(Locations::new(nodes), pairs);
        let labelled = nodes.iter().any(Node::is_labelled);
        let mut contradicted = vec![false; nodes.len()];
        // Nodes of one rack may share a wrong label: each relocated node helps to find the rest.
        for _ in 0..TUNING.relocations {
            let better = |node| labels.better_location(node, samples.row(node));
            let all = (0..nodes.len()).filter(|_| labelled);
            let moved: Vec<(usize, Location)> =
                all.filter_map(|node| Some((node, better(node)?))).collect();
            if moved.is_empty() {
                break;
            }
            let mut locations = labels.locations;
            for (node, location) in moved {
                contradicted[node] = true;
                locations.nodes[node] = Some(location);
            }
            labels = LabelFit::new(locations, pairs);
        }
        Self {
            axes,
            measured,
            samples,
            kernels,
            labels,
            labelled,
            noisy: false,
            contradicted,
        }
    }

    /// Returns whether the fit has a sample from the node or to it.
    pub fn knows(&self, node: usize) -> bool {
        self.measured.get(node).copied().unwrap_or(false)
    }

    /// Returns the predictions from a node to the nodes `to`.
    pub fn some<'a>(&'a self, from: usize, to: &'a [u32]) -> impl Iterator<Item = Predicted> + 'a {
        let nodes = self.measured.len();
        let row = self.labels.row(from);
        let corrections = smooth::corrections_of(&self.samples, &self.kernels, from, to, nodes);
        to.iter().zip(corrections).map(move |(&to, corrections)| {
            let to = to as usize;
            let distance = self.axes.distance(from, to).ln();
            Predicted {
                coords: corrections.map(|correction| distance + correction),
                labels: self.by_labels(&row, from, to),
            }
        })
    }

    /// Returns the predictions from a node to all nodes: by coordinates if both nodes have samples,
    /// and by labels.
    pub fn all(
        &self,
        from: usize,
    ) -> impl Iterator<Item = (Option<f32>, Option<LabelEstimate>)> + '_ {
        let known = self.knows(from);
        let coords = if known { self.coords(from) } else { Vec::new() };
        let row = self.labels.row(from);
        (0..self.measured.len()).map(move |to| {
            let coords = coords.get(to).filter(|_| self.measured[to]);
            (coords.copied(), self.by_labels(&row, from, to))
        })
    }

    /// Returns the predictions by coordinates and labels of the unmeasured pairs of at most `rows`
    /// nodes.
    pub fn some_unmeasured(&self, rows: usize) -> Vec<(f32, Option<LabelEstimate>)> {
        let live = (0..self.measured.len()).filter(|node| self.measured[*node]);
        let live: Vec<usize> = live.collect();
        let stride = live.len().div_ceil(rows).max(1);
        let mut out = Vec::new();
        for &from in live.iter().step_by(stride) {
            let own = |to: usize| to == from || self.samples.get(from, to as u32).is_some();
            let all = self.all(from).enumerate().filter(|(to, _)| !own(*to));
            out.extend(all.filter_map(|(_, (coords, labels))| Some((coords?, labels))));
        }
        out
    }

    fn by_labels(&self, row: &LabelRow<'_>, from: usize, to: usize) -> Option<LabelEstimate> {
        // If no node has labels, a node without samples has no prediction.
        let counts = self.labelled || self.measured[from] && self.measured[to];
        counts.then(|| row.estimate(to)).flatten()
    }

    /// Returns the distances from a node to all nodes, in logarithm, with corrections.
    pub fn coords(&self, from: usize) -> Vec<f32> {
        let mut row = vec![0.0f32; self.measured.len()];
        self.axes.distances(from, &mut row);
        let (kernels, nodes) = (&self.kernels, row.len());
        let corrections = smooth::corrections(&self.samples, kernels, from, self.noisy, nodes);
        for (distance, correction) in row.iter_mut().zip(corrections) {
            *distance = distance.ln() + correction;
        }
        row
    }

    /// Returns, for each node, how much its times differ from those of `node`: the mean absolute
    /// difference of logarithms over the nodes that both measured; 1 if there is no such node.
    pub fn unlikeness(&self, node: usize) -> impl Iterator<Item = f32> {
        let mut sums = vec![[0.0f32; 2]; self.measured.len()];
        neighbours::unlikeness(&self.samples, node, &mut sums);
        sums.into_iter()
            .map(|[sum, count]| if count > 0.0 { sum / count } else { 1.0 })
    }
}
