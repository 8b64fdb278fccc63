//! A copy of the coordinates for fast reads: one vector per axis, and heights instead of their
//! logarithms.

use crate::coords::{Coords, POINT_DIMENSIONS};

/// The coordinates of all nodes.
#[derive(Clone, Debug)]
pub(crate) struct Axes {
    axes: Vec<Vec<f32>>,
    heights: Vec<f32>,
}

impl Axes {
    pub fn new(coords: &Coords) -> Self {
        let axis = |d: usize| coords.points.iter().map(|point| point[d]).collect();
        Self {
            axes: (0..POINT_DIMENSIONS).map(axis).collect(),
            heights: coords.log_heights.iter().map(|log| log.exp()).collect(),
        }
    }

    /// Writes the distance from `from` to every node, in units of the fit's scale.
    pub fn distances(&self, from: usize, out: &mut [f32]) {
        self.squares(from, out);
        let height = self.heights[from];
        for (out, other) in out.iter_mut().zip(&self.heights) {
            *out = out.sqrt() + (height + other);
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

    /// Writes, for each node, an upper bound on the difference between its time and the time of
    /// `from` to any third node: the distance of their points plus the difference of their heights.
    /// Two nodes behind one slow line are alike, though far from each other.
    pub fn unlikeness(&self, from: usize, out: &mut [f32]) {
        self.squares(from, out);
        let height = self.heights[from];
        for (out, other) in out.iter_mut().zip(&self.heights) {
            *out = out.sqrt() + (height - other).abs();
        }
    }

    /// Returns the distance between two nodes, in units of the fit's scale.
    pub fn distance(&self, a: usize, b: usize) -> f32 {
        let apart = self.axes.iter().map(|axis| (axis[a] - axis[b]).powi(2));
        (1e-8 + apart.sum::<f32>()).sqrt() + (self.heights[a] + self.heights[b])
    }
}
