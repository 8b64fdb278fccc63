//! The open streams of WatchCosts of a server, which are bounded.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use tonic::Status;

/// The maximum number of streams at once.
const MAX_STREAMS: usize = 16;
/// The maximum number of streams of one address, so that a stranger leaves some to the extenders.
const MAX_OF_ADDRESS: usize = 8;
/// The streams of a server.
#[derive(Debug, Default)]
pub(crate) struct CostStreams {
    /// The address of each stream. A stream is open while its permit exists.
    open: Mutex<Vec<(Option<IpAddr>, Weak<()>)>>,
    /// The stream that has placed each pod, by UID.
    pub(crate) placed: Mutex<HashMap<String, Weak<()>>>,
}

impl CostStreams {
    /// Admits a stream of an address within the bounds, and returns its permit.
    pub(crate) fn admit(&self, address: Option<IpAddr>) -> Result<Arc<()>, Status> {
        let mut open = self.open.lock();
        open.retain(|(_, stream)| stream.strong_count() > 0);
        let of_address = open.iter().filter(|(from, _)| *from == address).count();
        if open.len() >= MAX_STREAMS || of_address >= MAX_OF_ADDRESS {
            let what = format!(
                "too many streams of WatchCosts: {MAX_STREAMS}, and {MAX_OF_ADDRESS} of one address"
            );
            return Err(Status::resource_exhausted(what));
        }
        let permit = Arc::new(());
        open.push((address, Arc::downgrade(&permit)));
        Ok(permit)
    }
}
