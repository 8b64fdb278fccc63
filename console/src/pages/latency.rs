//! `/latency` shows round-trip times between zones, with `?zone=Z` the nodes of a zone, and with
//! `?node=N` a node and the other nodes of its zone.

mod limit;
mod network;
pub(super) mod pair;
pub(super) mod picture;
mod render;
mod scope;
mod tiles;

use self::{
    network::{MAX_NAME_CHARS, view},
    render::render,
    scope::Level,
};
use crate::{
    console::quote,
    draw::clean,
    request::{PageRequest, PageResult},
};

pub(super) async fn page(request: &PageRequest) -> PageResult {
    let view = view(request).await?;
    let command = match &view.level {
        Level::Zones => "latency matrix".to_owned(),
        Level::Nodes { zone, .. } | Level::OneNode { zone, .. } => {
            let zone = quote(&clean(zone, MAX_NAME_CHARS));
            format!("latency matrix --zone {zone}")
        }
    };
    request.respond("Latency", &command, &view, |view| render(view, request))
}

#[cfg(test)]
mod tests;
