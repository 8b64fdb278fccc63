//! Kubernetes' mutating admission policies, worked out without an API server:
//! the expressions ([`cel`]), and nothing of HTTP, clients or threads.

pub mod cel;
