#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod accept;
pub mod admin;
mod connection;
mod connections;
pub mod http;
pub mod limits;
pub mod metrics;
#[cfg_attr(not(unix), path = "os_other.rs")]
mod os;
mod port;
mod port_metrics;
pub mod stream;
pub mod tasks;
pub mod tls;
