//! Coordinates for fast reads: an axis at a time, and with heights as they are.

use crate::coords::{Coords, D};

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
            axes: (0..D).map(axis).collect(),
            heights: coords.log_heights.iter().map(|log| log.exp()).collect(),
        }
    }

    /// Writes the distances of a node to all.
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

    /// Writes the most that a node's and each other node's times to a third one can differ: the
    /// distance of their points and the difference of their heights. Two nodes behind one slow line
    /// are alike, though far from each other.
    pub fn unlikeness(&self, from: usize, out: &mut [f32]) {
        self.squares(from, out);
        let height = self.heights[from];
        for (out, other) in out.iter_mut().zip(&self.heights) {
            *out = out.sqrt() + (height - other).abs();
        }
    }

    /// Returns the distance of two nodes.
    pub fn distance(&self, a: usize, b: usize) -> f32 {
        let apart = self.axes.iter().map(|axis| (axis[a] - axis[b]).powi(2));
        (1e-8 + apart.sum::<f32>()).sqrt() + (self.heights[a] + self.heights[b])
    }
}
