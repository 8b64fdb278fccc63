//! A stream's place in the network, and who has one.

use std::{collections::HashMap, time::Duration};

use tautline_proto::latency::Hello;
use tokio::sync::{mpsc, watch};
use tonic::Status;

use super::{
    Network, Order,
    parking::{Parked, STAYS},
};
use crate::{
    assign::{List, unnamed},
    ledger::Id,
};

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
    /// Whether the agent may be sent away, and how long it stays at the least.
    pub parks: bool,
    pub stays: Duration,
    /// The list of targets that the agent has; 0 for none.
    pub told: u64,
    /// Whether it has told of a measurement.
    pub measured: bool,
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
        let mut parked = self.0.parking.lock();
        let mut ledger = self.0.ledger.lock();
        let away = ledger.id(&hello.node).and_then(|id| parked.remove(&id));
        // Another process of the agent knows nothing of it.
        let back = away.filter(|away| away.key == hello.parked);
        let (id, stream) = match back {
            Some(_) => ledger.rejoin(&node.uid, hello, now),
            None => ledger.join(&node.uid, hello, now),
        };
        let mut seat = Seat {
            network: self.clone(),
            id,
            stream,
            list: lists,
            orders,
            closed: false,
            parks: hello.parks,
            stays: Duration::ZERO,
            told: 0,
            measured: false,
        };
        let mut news = true;
        if let Some(back) = back {
            seat.told = back.list;
            news = back.is_wanted();
            if news {
                seat.stays = STAYS;
            } else {
                list.send_replace(unnamed(self, &ledger, id));
            }
            for (since, waits) in back.orders {
                if let Some(waits) = waits.later(now.saturating_sub(since)) {
                    // There is room for all.
                    _ = order.try_send(Box::new(waits));
                }
            }
        }
        let handle = Handle {
            stream,
            list,
            orders: order,
        };
        streams.insert(id, handle);
        self.counted(&streams, &parked);
        drop((ledger, parked, streams));
        self.heard(now);
        if news {
            self.0.fit.ring();
            self.0.assign.notify_one();
        }
        Ok(seat)
    }

    /// Ends the streams of instances that are no more.
    pub(crate) fn unseat(&self, gone: &[Id]) {
        if gone.is_empty() {
            return;
        }
        {
            let mut streams = self.0.streams.lock();
            let mut parked = self.0.parking.lock();
            for id in gone {
                streams.remove(id);
                parked.remove(id);
            }
            self.counted(&streams, &parked);
        }
        self.0.fit.ring();
        self.0.assign.notify_one();
    }

    /// How many agents are connected or away.
    pub(crate) fn agents(&self) -> usize {
        let streams = self.0.streams.lock();
        streams.len() + self.0.parking.lock().len()
    }

    pub(super) fn counted(&self, streams: &HashMap<Id, Handle>, parked: &HashMap<Id, Parked>) {
        let metrics = &self.0.metrics;
        metrics.agents.set((streams.len() + parked.len()) as i64);
        metrics.parked.set(parked.len() as i64);
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
            self.network.counted(&streams, &inner.parking.lock());
        }
        let now = self.network.now();
        inner
            .ledger
            .lock()
            .leave(self.id, self.stream, self.closed, now);
    }
}
