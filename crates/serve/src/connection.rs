//! Tracks one connection of a server port, and charges the bytes of its request and response to the
//! memory limits of the port and of the client's address.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering::Relaxed},
};

use crate::{
    connections::{Activity, Opened, Phase, Source},
    port::Port,
};

/// The bytes that each connection may use even if memory is used up. They are enough for
/// kube-scheduler's requests with node names.
const FREE_BYTES: i64 = 64 << 10;

/// The error that the memory for requests is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

/// One connection of a port, and the memory of its request.
#[derive(Debug)]
pub struct Connection {
    port: Port,
    id: u64,
    pub(crate) activity: Arc<Activity>,
    source: Arc<Source>,
    charged: AtomicI64,
}

impl Connection {
    pub(crate) fn new<T>(port: Port, opened: Opened<T>) -> Self {
        Self {
            port,
            id: opened.id,
            activity: opened.activity,
            source: opened.source,
            charged: AtomicI64::new(0),
        }
    }

    fn bytes(&self) -> i64 {
        self.port.metrics().request_bytes.get()
    }

    /// The port of the connection.
    pub fn port(&self) -> &Port {
        &self.port
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.activity.enter(phase, self.port.now());
    }

    /// Records that an HTTP/2 stream has started. The connection is not idle until the stream ends.
    pub fn open_stream(&self) {
        self.activity.open_stream();
    }

    /// Records that an HTTP/2 stream has ended.
    pub fn close_stream(&self) {
        self.activity.close_stream(self.port.now());
    }

    fn add(&self, bytes: i64) -> (i64, i64, i64) {
        (
            self.charged.fetch_add(bytes, Relaxed) + bytes,
            self.source.bytes.fetch_add(bytes, Relaxed) + bytes,
            self.port.metrics().request_bytes.inc_by(bytes) + bytes,
        )
    }

    /// Charges more bytes of the request in progress. They stay charged until its response is sent.
    ///
    /// # Errors
    /// The memory of all requests, or of this address' requests, is used up.
    pub fn charge(&self, bytes: usize) -> Result<(), OutOfMemory> {
        let bytes = signed(bytes);
        let (charged, of_source, all) = self.add(bytes);
        if charged > FREE_BYTES && self.exceeds(of_source, all) {
            self.add(-bytes);
            return Err(OutOfMemory);
        }
        Ok(())
    }

    /// Returns whether the memory has room for a body of this length now.
    pub(crate) fn fits(&self, bytes: usize) -> bool {
        let bytes = signed(bytes);
        let of_source = self.source.bytes.load(Relaxed) + bytes;
        bytes <= FREE_BYTES || !self.exceeds(of_source, self.bytes() + bytes)
    }

    /// Charges the response instead of its request. The response exists already, so it may exceed
    /// the limit; it fails only if the limit is exceeded without it.
    pub(crate) fn charge_answer(&self, bytes: usize) -> Result<(), OutOfMemory> {
        let bytes = signed(bytes);
        let more = bytes - self.charged.load(Relaxed);
        if more <= 0 {
            return Ok(());
        }
        if bytes > FREE_BYTES && self.exceeds(self.source.bytes.load(Relaxed), self.bytes()) {
            return Err(OutOfMemory);
        }
        self.add(more);
        Ok(())
    }

    fn exceeds(&self, of_source: i64, all: i64) -> bool {
        let most = self.port.most_bytes();
        all > most || of_source > most / 2
    }

    pub(crate) fn release(&self) {
        let charged = self.charged.swap(0, Relaxed);
        if charged != 0 {
            self.source.bytes.fetch_sub(charged, Relaxed);
            self.port.metrics().request_bytes.dec_by(charged);
        }
    }

    pub(crate) fn closed(&self) {
        self.port.closed(self.id);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.release();
    }
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX / 4)
}
