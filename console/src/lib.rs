//! Serves `tautline ui`, a read-only web console of a cluster or of manifests, on loopback. Each
//! page consists of a view, which is data alone, and its rendering as HTML.
//!
//! ```text
//! source: a cluster or manifests ──▶ page: view ──▶ HTML, or JSON with ?format=json
//! every few seconds, while the tab is seen ──▶ htmx replaces the live part
//! ```

#![warn(missing_docs)]

mod admin;
mod console;
mod draw;
mod figures;
mod form;
mod history;
mod inspections;
mod layout;
mod links;
mod pages;
mod request;
mod server;
pub mod source;
mod sparkline;
mod table;
#[cfg(test)]
mod tests;

pub use admin::{Missing, latency_answer};
pub use console::{Console, quote, watch, watch_devices};
pub use links::link;
pub use pages::latency_picture;
pub use server::serve;
