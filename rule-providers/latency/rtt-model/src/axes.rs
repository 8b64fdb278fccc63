//! Coordinates for fast reads: an axis at a time, and with heights as they are.

use crate::{
    coords::{Coords, D, Pair},
    odd::{Labels, Levels},
};

/// Odd nodes have a level instead of a place.
#[derive(Clone, Debug)]
pub(crate) struct Axes {
    axes: Vec<Vec<f32>>,
    heights: Vec<f32>,
    levels: Levels,
}

impl Axes {
    /// Of coordinates that are fitted to these pairs, as labels are.
    pub fn new(coords: &Coords, pairs: &[Pair], labels: Option<Labels<'_>>) -> Self {
        let axis = |d: usize| coords.points.iter().map(|point| point[d]).collect();
        let mut axes = Self {
            axes: (0..D).map(axis).collect(),
            heights: coords.log_heights.iter().map(|log| log.exp()).collect(),
            levels: Levels::default(),
        };
        let fitted = pairs
            .iter()
            .map(|p| axes.distance(p.a as usize, p.b as usize).ln())
            .collect::<Vec<f32>>();
        axes.levels = Levels::new(coords.points.len(), pairs, &fitted, labels);
        axes
    }

    /// Whether a node of the pair is odd.
    pub fn is_odd(&self, a: usize, b: usize) -> bool {
        self.levels.of_pair(a, b).is_some()
    }

    pub fn distances(&self, from: usize, out: &mut [f32]) {
        self.squares(from, out);
        let height = self.heights[from];
        for (out, other) in out.iter_mut().zip(&self.heights) {
            *out = out.sqrt() + (height + other);
        }
        if self.levels.is_empty() {
            return;
        }
        for (to, out) in out.iter_mut().enumerate() {
            if let Some(level) = self.levels.of_pair(from, to) {
                *out = level.exp();
            }
        }
    }

    fn squares(&self, from: usize, out: &mut [f32]) {
        out.fill(1e-8);
        for axis in &self.axes {
            let at = axis[from];
            for (out, x) in out.iter_mut().zip(axis) {
                *out += (x - at) * (x - at);
            }
        }
    }

    /// The most that two nodes' times to a third one can differ: the distance of their points and
    /// the difference of their heights. Two nodes behind one slow line are alike, though far from
    /// each other.
    pub fn unlikeness(&self, from: usize, out: &mut [f32]) {
        self.squares(from, out);
        let height = self.heights[from];
        for (out, other) in out.iter_mut().zip(&self.heights) {
            *out = out.sqrt() + (height - other).abs();
        }
        if self.levels.is_empty() {
            return;
        }
        for (to, out) in out.iter_mut().enumerate() {
            *out = match (self.levels.of(from), self.levels.of(to)) {
                (None, None) => *out,
                (Some(one), Some(other)) => (one - other).abs(),
                _ => f32::INFINITY,
            };
        }
    }

    pub fn distance(&self, a: usize, b: usize) -> f32 {
        if let Some(level) = self.levels.of_pair(a, b) {
            return level.exp();
        }
        let apart = self.axes.iter().map(|axis| (axis[a] - axis[b]).powi(2));
        (1e-8 + apart.sum::<f32>()).sqrt() + (self.heights[a] + self.heights[b])
    }
}
