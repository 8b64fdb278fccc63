//! A stream's place in the network, and who has one.

use std::collections::HashMap;

use tautline_proto::latency::Hello;
use tokio::sync::{mpsc, watch};
use tonic::Status;

use super::{Network, Order};
use crate::{assign::List, ledger::Id};

/// Orders that an agent has not been sent yet.
pub(super) const MOST_ORDERS: usize = 8;

/// The way to an agent's stream; without it the stream ends.
#[derive(Debug)]
pub(crate) struct Handle {
    pub stream: u64,
    pub list: watch::Sender<List>,
    /// Boxed, as a channel keeps room for 32.
    pub orders: mpsc::Sender<Box<Order>>,
}

/// A stream's place: what it is told, and that it speaks.
pub(crate) struct Seat {
    network: Network,
    pub id: Id,
    pub stream: u64,
    pub list: watch::Receiver<List>,
    pub orders: mpsc::Receiver<Box<Order>>,
    /// Whether the agent has closed it, rather than fallen silent.
    pub closed: bool,
    /// The list of targets that the agent has; 0 for none.
    pub told: u64,
}

impl Network {
    /// Seats the stream of an agent that has proved who it is, in the place of an
    /// older one of its node.
    ///
    /// # Errors
    /// The node is not known.
    pub(crate) fn seat(&self, hello: &Hello) -> Result<Seat, Status> {
        let snapshot = self.0.feed.snapshot();
        let Some(node) = snapshot.node(&hello.node) else {
            let why = format!(
                "the cluster has no node {} (yet); connect again",
                hello.node
            );
            return Err(Status::failed_precondition(why));
        };
        let (list, lists) = watch::channel(List::default());
        let (order, orders) = mpsc::channel(MOST_ORDERS);
        let now = self.now();
        let mut streams = self.0.streams.lock();
        let (id, stream) = self.0.ledger.lock().join(&node.uid, hello, now);
        let seat = Seat {
            network: self.clone(),
            id,
            stream,
            list: lists,
            orders,
            closed: false,
            told: 0,
        };
        let handle = Handle {
            stream,
            list,
            orders: order,
        };
        streams.insert(id, handle);
        self.counted(&streams);
        drop(streams);
        self.heard(now);
        self.0.fit.ring();
        self.0.assign.notify_one();
        Ok(seat)
    }

    /// Ends the streams of instances that are no more.
    pub(crate) fn unseat(&self, gone: &[Id]) {
        if gone.is_empty() {
            return;
        }
        {
            let mut streams = self.0.streams.lock();
            for id in gone {
                streams.remove(id);
            }
            self.counted(&streams);
        }
        self.0.fit.ring();
        self.0.assign.notify_one();
    }

    /// How many agents are connected.
    pub(crate) fn agents(&self) -> usize {
        self.0.streams.lock().len()
    }

    fn counted(&self, streams: &HashMap<Id, Handle>) {
        self.0.metrics.agents.set(streams.len() as i64);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let inner = &self.network.0;
        let mut streams = inner.streams.lock();
        if streams
            .get(&self.id)
            .is_some_and(|h| h.stream == self.stream)
        {
            streams.remove(&self.id);
            self.network.counted(&streams);
        }
        let now = self.network.now();
        inner
            .ledger
            .lock()
            .leave(self.id, self.stream, self.closed, now);
    }
}
