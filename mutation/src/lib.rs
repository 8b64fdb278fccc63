//! Kubernetes' mutating admission policies, worked out without an API server:
//! the expressions ([`cel`]), and nothing of HTTP, clients or threads.

pub mod cel;
mod manifest;
pub mod model;
mod request;

pub use manifest::Problem;
pub use request::{Kind, Request, Resource};
