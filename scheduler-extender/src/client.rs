//! The sender of a request, and the memory of its requests.

use tautline_provider_client::PlanningQuestion;
use tautline_runtime::http::Connection;
use tautline_traces::Caller;

use crate::wire::WireError;

/// Requests of so many bytes always pass, such as kube-scheduler's with the names of 500 nodes.
const FREE_BYTES: usize = 64 << 10;
/// The names of nodes in a question, in its encoding, and in the message to a provider.
const COPIES: usize = 3;

#[derive(Clone, Copy)]
pub(crate) struct Client<'a> {
    pub caller: &'a Caller,
    pub connection: &'a Connection,
}

impl Client<'_> {
    /// Counts what was read of a request of this length, until it is answered.
    pub fn charge(&self, request: &str, question: &PlanningQuestion) -> Result<(), WireError> {
        if request.len() <= FREE_BYTES {
            return Ok(());
        }
        let bytes = question.heap_bytes() + COPIES * question.nodes.heap_bytes();
        let charged = self.connection.charge(bytes);
        charged.map_err(|_| WireError::Memory)
    }
}
