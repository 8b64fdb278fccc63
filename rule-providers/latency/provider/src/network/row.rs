//! All the ways to one node.

use std::{borrow::Cow, sync::Arc};

use hashbrown::HashMap;
use tautline_rtt_model::{Estimate, NodeId, Row};

use super::Network;
use crate::{
    fitting::Fitted,
    ledger::{Directory, Id},
    reading::Reading,
};

/// Who is known at one time: a question about many ways looks each name up once.
pub(crate) struct View {
    network: Network,
    directory: Arc<Directory>,
    fitted: Option<Arc<Fitted>>,
}

/// A node as a view knows it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spot {
    id: Option<Id>,
    fitted: Option<NodeId>,
}

/// What is known of the ways to one node, as it was when asked.
#[derive(Clone, Debug)]
pub struct PeerRow {
    directory: Arc<Directory>,
    readings: HashMap<Id, Reading>,
    fitted: Option<Arc<Fitted>>,
    estimates: Option<Arc<Row>>,
    #[cfg(test)]
    fixed: (Network, String),
}

impl Network {
    pub(crate) fn view(&self) -> View {
        View {
            directory: self.0.ledger.lock().directory(),
            fitted: self.0.fitted.load_full(),
            network: self.clone(),
        }
    }

    /// All the ways to one node: for questions about many. Some microseconds, and
    /// some 100 more at 5,000 nodes when it is the first since a fit.
    pub fn row(&self, peer: &str) -> PeerRow {
        self.view().row(peer)
    }
}

impl View {
    pub fn spot(&self, node: &str) -> Spot {
        spot(&self.directory, self.fitted.as_deref(), node)
    }

    pub fn row(&self, peer: &str) -> PeerRow {
        let id = self.directory.get(peer).copied();
        let readings = id.map(|id| {
            let now = self.network.now();
            self.network.0.ledger.lock().row(id, now)
        });
        let fitted = self.fitted.clone();
        PeerRow {
            directory: Arc::clone(&self.directory),
            readings: readings.unwrap_or_default().into_iter().collect(),
            estimates: fitted.as_ref().zip(id).and_then(|(f, id)| f.row(id)),
            fitted,
            #[cfg(test)]
            fixed: (self.network.clone(), peer.to_owned()),
        }
    }
}

fn spot(directory: &Directory, fitted: Option<&Fitted>, node: &str) -> Spot {
    let id = directory.get(node).copied();
    Spot {
        id,
        fitted: id.and_then(|id| fitted?.node(id)),
    }
}

impl PeerRow {
    /// The way between the row's node and this one.
    pub fn reading(&self, node: &str) -> Reading {
        self.reading_at(node, self.spot(node)).into_owned()
    }

    /// What is predicted for the pair; `None` if a node is not known.
    pub fn estimate(&self, node: &str) -> Option<Estimate> {
        self.estimate_at(node, self.spot(node))
    }

    pub(crate) fn spot(&self, node: &str) -> Spot {
        spot(&self.directory, self.fitted.as_deref(), node)
    }

    /// [`PeerRow::reading`] of a node that was looked up.
    pub(crate) fn reading_at(&self, _node: &str, spot: Spot) -> Cow<'_, Reading> {
        #[cfg(test)]
        if let Some(fixed) = self.fixed.0.0.fixed.reading(&self.fixed.1, _node) {
            return Cow::Owned(fixed);
        }
        const NOTHING: &Reading = &Reading::Nothing;
        let reading = spot.id.and_then(|id| self.readings.get(&id));
        Cow::Borrowed(reading.unwrap_or(NOTHING))
    }

    /// [`PeerRow::estimate`] of a node that was looked up.
    pub(crate) fn estimate_at(&self, _node: &str, spot: Spot) -> Option<Estimate> {
        #[cfg(test)]
        if let Some(fixed) = self.fixed.0.0.fixed.estimate(&self.fixed.1, _node) {
            return Some(fixed);
        }
        self.estimates.as_ref()?.estimate(spot.fitted?)
    }
}
