//! `tautline ui`: a read-only web console of a cluster, or of manifests, served on loopback.
//!
//! The pages are made on the server. Each is a view, which `?format=json` shows as JSON, and its
//! rendering. Server-sent events tell the browser which kinds have changed; htmx then replaces
//! the page's live part.

#![warn(missing_docs)]

mod assets;
mod console;
mod controller;
mod draw;
mod events;
mod extender;
mod guard;
mod inspections;
mod layout;
mod list;
mod live;
mod pages;
mod request;
mod server;
pub mod shell;
pub mod source;
#[cfg(test)]
mod testing;
mod when;

pub use console::Console;
pub use live::watch;
pub use server::serve;
