//! Keeps what a fit leaves to the next one.

use crate::{NodeId, coords::Place, recovery::History};

/// The coordinates of each node; `None` for a node without samples.
pub(crate) type Places = Vec<Option<Place>>;

/// The parts of a fit from which the next one continues.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastFit {
    /// The unit of the coordinates, in microseconds.
    pub scale: f32,
    /// True if the usual corrections did harm, because samples are noisy.
    pub noisy: bool,
    pub places: Places,
    /// The places of fits without the held-out pairs, one for each fold.
    pub unseen: Vec<Places>,
    /// The part of the network in which each node is; empty if unknown.
    pub parts: Vec<u32>,
    /// The mean error on held-out pairs, in logarithm; `None` if these are too few.
    pub missed: Option<f32>,
    pub history: History,
}

impl LastFit {
    /// Forgets the places of a node.
    pub fn forget(&mut self, node: NodeId) {
        for places in self.unseen.iter_mut().chain([&mut self.places]) {
            if let Some(place) = places.get_mut(node.slot()) {
                *place = None;
            }
        }
    }
}
