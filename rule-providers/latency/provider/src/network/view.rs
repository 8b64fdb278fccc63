//! Reads of many pairs, in which each node's name is looked up once, and the estimates of the last
//! fit.

use std::{sync::Arc, time::Instant};

use hashbrown::HashMap;
use parking_lot::Mutex;
use tautline_rtt_model::{Estimate, Fit, NodeId, Row};

use super::{
    Network,
    pair_store::{Directory, InstanceId},
};
use crate::measurement::Measurement;

/// The maximum number of cached rows of a fit; at 5,000 nodes each row has 40 KB.
const MAX_ROWS: usize = 32;

#[derive(Debug)]
pub(crate) struct PublishedFit {
    fit: Arc<Fit>,
    ids: HashMap<InstanceId, NodeId>,
    pub at: Instant,
    /// The cached rows by peer; requests often name the same peers.
    rows: Mutex<HashMap<InstanceId, Arc<Row>>>,
}

impl PublishedFit {
    pub fn new(fit: Arc<Fit>, ids: HashMap<InstanceId, NodeId>, at: Instant) -> Self {
        Self {
            fit,
            ids,
            at,
            rows: Mutex::default(),
        }
    }

    fn row(&self, peer: InstanceId) -> Option<Arc<Row>> {
        if let Some(row) = self.rows.lock().get(&peer) {
            return Some(Arc::clone(row));
        }
        let row = Arc::new(self.fit.row(*self.ids.get(&peer)?)?);
        let mut rows = self.rows.lock();
        if rows.len() >= MAX_ROWS {
            rows.clear();
        }
        rows.insert(peer, Arc::clone(&row));
        Some(row)
    }
}

/// The instances and the fit to which the names of nodes lead.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    directory: Arc<Directory>,
    fit: Option<Arc<PublishedFit>>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeRef {
    id: Option<InstanceId>,
    fitted: Option<NodeId>,
}

/// The round-trip times between a node and all others, at the time when the row was read.
#[derive(Clone, Debug)]
pub struct PeerRow {
    pub(crate) names: Names,
    measurements: HashMap<InstanceId, Measurement>,
    estimates: Option<Arc<Row>>,
}

impl Network {
    pub(crate) fn names(&self) -> Names {
        Names {
            directory: self.pairs.lock().directory(),
            fit: self.estimates.load_full(),
        }
    }

    /// Returns the round-trip times between a node and all others. This takes some microseconds; at
    /// 5,000 nodes the first row of a node after a fit takes some 100 more.
    pub fn row(&self, peer: &str) -> PeerRow {
        self.names().row(self, peer)
    }
}

impl Names {
    pub fn find(&self, node: &str) -> NodeRef {
        let id = self.directory.get(node).copied();
        let fit = self.fit.as_ref();
        NodeRef {
            id,
            fitted: id.and_then(|id| fit?.ids.get(&id).copied()),
        }
    }

    pub fn row(&self, network: &Network, peer: &str) -> PeerRow {
        let id = self.directory.get(peer).copied();
        let (mut measurements, mut is_predicted) = (HashMap::new(), true);
        if let Some(id) = id {
            let store = network.pairs.lock();
            measurements.extend(store.row(id, network.now()));
            // Predictions outlive the samples: a server outside that is down would seem near to all
            // nodes that do not visit it.
            let is_outside = store.get(id).is_some_and(|i| i.is_outside);
            let mut all = measurements.values();
            is_predicted = !is_outside || all.any(|m| matches!(m, Measurement::Fresh(_)));
        }
        let fit = self.fit.as_ref().filter(|_| is_predicted);
        PeerRow {
            measurements,
            estimates: fit.zip(id).and_then(|(fit, id)| fit.row(id)),
            names: self.clone(),
        }
    }
}

impl PeerRow {
    /// Returns the estimate of the last fit, or `None` if the fit lacks one of the nodes or both
    /// are the same.
    pub fn estimate(&self, node: &str) -> Option<Estimate> {
        self.estimate_of(self.names.find(node))
    }

    pub(crate) fn measurement_of(&self, node: NodeRef) -> &Measurement {
        let measurement = node.id.and_then(|id| self.measurements.get(&id));
        measurement.unwrap_or(&Measurement::Missing)
    }

    pub(crate) fn estimate_of(&self, node: NodeRef) -> Option<Estimate> {
        self.estimates.as_ref()?.estimate(node.fitted?)
    }
}
