//! The sender of a request, and the memory of its requests.

use tautline_provider_client::PlanningQuestion;
use tautline_runtime::http::Connection;
use tautline_traces::Caller;

use crate::wire::WireError;

/// The size up to which requests always pass, such as kube-scheduler's with the names of 500 nodes.
const FREE_BYTES: usize = 64 << 10;
/// The copies of the nodes' names: in a question, in its encoding, and in the message to a
/// provider.
const NODE_NAME_COPIES: usize = 3;

#[derive(Clone, Copy)]
pub(crate) struct Client<'a> {
    pub caller: &'a Caller,
    pub connection: &'a Connection,
}

impl Client<'_> {
    /// Counts the memory of a request's question, and of `more` bytes that are read of it, until the
    /// request is answered.
    pub fn charge(
        &self,
        request: &str,
        question: &PlanningQuestion,
        more: usize,
    ) -> Result<(), WireError> {
        if request.len() <= FREE_BYTES {
            return Ok(());
        }
        let bytes = question.heap_bytes() + NODE_NAME_COPIES * question.nodes.heap_bytes() + more;
        let charged = self.connection.charge(bytes);
        charged.map_err(|_| WireError::Memory)
    }
}
