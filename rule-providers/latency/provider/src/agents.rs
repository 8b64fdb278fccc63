//! The gRPC service that agents connect to: one stream a node.

mod limit;
mod stream;
mod wire;

#[cfg(test)]
mod tests;

use std::sync::{Arc, atomic::Ordering};

use tautline_proto::latency::{FromAgent, ToAgent};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Status, Streaming};

use crate::{
    identity::{Identity, Shown},
    keys::Keys,
    network::Network,
};

/// Streams whose agents have not said yet who they are.
const MOST_STRANGERS: usize = 1024;
/// Messages to an agent that it has not taken yet.
const MOST_UNSENT: usize = 4;

/// What an agent is told; why the stream ends is the last. Boxed, as a channel keeps
/// room for 32 of its messages from the first one on.
type Told = Box<Result<ToAgent, Status>>;

/// The service.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub network: Network,
    pub identity: Arc<Identity>,
    pub keys: Keys,
    strangers: Arc<Semaphore>,
    /// Ends the streams.
    pub stop: CancellationToken,
}

impl Service {
    pub fn new(network: Network, identity: Identity, keys: Keys, stop: CancellationToken) -> Self {
        Self {
            network,
            identity: Arc::new(identity),
            keys,
            strangers: Arc::new(Semaphore::new(MOST_STRANGERS)),
            stop,
        }
    }

    /// The keys have changed: agents are told anew.
    pub fn rekeyed(network: &Network) {
        network.0.epoch.fetch_add(1, Ordering::Relaxed);
        network.0.assign.notify_one();
    }

    /// Begins a stream; gives what its agent is to be told.
    ///
    /// # Errors
    /// Too many agents have not said yet who they are.
    fn follow(
        &self,
        request: Request<Streaming<FromAgent>>,
    ) -> Result<mpsc::Receiver<Told>, Status> {
        let stranger = Arc::clone(&self.strangers).try_acquire_owned();
        let stranger = stranger.map_err(|_| {
            Status::resource_exhausted("too many agents connect at once; connect again")
        })?;
        let shown = Shown::of(&request);
        let (send, told) = mpsc::channel(MOST_UNSENT);
        let stream = stream::Stream {
            service: self.clone(),
            remote: request.remote_addr(),
            inbound: request.into_inner(),
            outbound: send.clone(),
        };
        tokio::spawn(async move {
            let ended = stream.run(shown, stranger).await;
            // If the agent takes nothing more it need not know why.
            _ = send.try_send(Box::new(Err(ended)));
        });
        Ok(told)
    }
}
