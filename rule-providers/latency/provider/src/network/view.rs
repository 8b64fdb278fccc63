//! A view for reads of many pairs, in which each node's name is looked up once.

use std::{borrow::Cow, sync::Arc};

use hashbrown::HashMap;
use tautline_rtt_model::{Estimate, NodeId, Row};

#[cfg(test)]
use super::test_measurements::TestMeasurements;
use super::{
    estimates::{Estimates, PublishedFit},
    measured_pairs::MeasuredPairs,
    pair_store::{Directory, InstanceId},
};
use crate::measurement::Measurement;

pub(crate) struct NetworkView {
    pairs: Arc<MeasuredPairs>,
    directory: Arc<Directory>,
    fit: Option<Arc<PublishedFit>>,
    #[cfg(test)]
    fixed: Arc<TestMeasurements>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeRef {
    id: Option<InstanceId>,
    fitted: Option<NodeId>,
}

/// The round-trip times between a node and all others, at the time when the row was read.
#[derive(Clone, Debug)]
pub struct PeerRow {
    directory: Arc<Directory>,
    measurements: HashMap<InstanceId, Measurement>,
    fit: Option<Arc<PublishedFit>>,
    estimates: Option<Arc<Row>>,
    #[cfg(test)]
    fixed: (Arc<TestMeasurements>, String),
}

impl NetworkView {
    pub fn new(
        pairs: Arc<MeasuredPairs>,
        estimates: &Estimates,
        #[cfg(test)] fixed: Arc<TestMeasurements>,
    ) -> Self {
        let directory = pairs.lock().directory();
        Self {
            directory,
            fit: estimates.load_full(),
            pairs,
            #[cfg(test)]
            fixed,
        }
    }

    pub fn find(&self, node: &str) -> NodeRef {
        find(&self.directory, self.fit.as_deref(), node)
    }

    pub fn row(&self, peer: &str) -> PeerRow {
        let id = self.directory.get(peer).copied();
        let measurements = id.map(|id| {
            let now = self.pairs.now();
            self.pairs.lock().row(id, now)
        });
        let fit = self.fit.clone();
        PeerRow {
            directory: Arc::clone(&self.directory),
            measurements: measurements.unwrap_or_default().into_iter().collect(),
            estimates: fit.as_ref().zip(id).and_then(|(f, id)| f.row(id)),
            fit,
            #[cfg(test)]
            fixed: (Arc::clone(&self.fixed), peer.to_owned()),
        }
    }
}

fn find(directory: &Directory, fit: Option<&PublishedFit>, node: &str) -> NodeRef {
    let id = directory.get(node).copied();
    NodeRef {
        id,
        fitted: id.and_then(|id| fit?.node(id)),
    }
}

impl PeerRow {
    #[cfg(test)]
    pub(crate) fn measurement(&self, node: &str) -> Measurement {
        self.measurement_at(node, self.find(node)).into_owned()
    }

    /// Returns the estimate of the last fit, or `None` if the fit lacks one of the nodes or both
    /// are the same.
    pub fn estimate(&self, node: &str) -> Option<Estimate> {
        self.estimate_at(node, self.find(node))
    }

    pub(crate) fn find(&self, node: &str) -> NodeRef {
        find(&self.directory, self.fit.as_deref(), node)
    }

    pub(crate) fn measurement_at(&self, _name: &str, node: NodeRef) -> Cow<'_, Measurement> {
        #[cfg(test)]
        if let Some(fixed) = self.fixed.0.measurement(&self.fixed.1, _name) {
            return Cow::Owned(fixed);
        }
        const MISSING: &Measurement = &Measurement::Missing;
        let measurement = node.id.and_then(|id| self.measurements.get(&id));
        Cow::Borrowed(measurement.unwrap_or(MISSING))
    }

    pub(crate) fn estimate_at(&self, _name: &str, node: NodeRef) -> Option<Estimate> {
        #[cfg(test)]
        if let Some(fixed) = self.fixed.0.estimate(&self.fixed.1, _name) {
            return Some(fixed);
        }
        self.estimates.as_ref()?.estimate(node.fitted?)
    }
}
