//! Serves `GET /gpu/use[?nodes=a,b]` on the admin port: the use of the nodes' cards.

use std::{collections::HashSet, time::Instant};

use serde::Serialize;
use tautline_sdk::AdminPage;

use crate::{provider::GpuSlice, use_store::NodeUse};

const PATH: &str = "/gpu/use";
const NODES: &str = "nodes=";

#[derive(Serialize)]
struct Page<'a> {
    nodes: Vec<Node<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Node<'a> {
    node: &'a str,
    age_seconds: u64,
    cards: Vec<Card<'a>>,
    containers: Vec<Container<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Card<'a> {
    card: &'a str,
    memory_bytes: u64,
    busy_milli: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Container<'a> {
    namespace: &'a str,
    pod: &'a str,
    container: &'a str,
    card: &'a str,
    memory_bytes: u64,
    sm_milli: u32,
}

impl GpuSlice {
    /// Returns the page of a path on the admin port, with its query; `None`: there is no such page.
    pub fn admin_page(&self, path: &str) -> Option<AdminPage> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let nodes = query.split('&').find_map(|field| field.strip_prefix(NODES));
        let nodes = nodes.map(|nodes| nodes.split(',').collect());
        (path == PATH).then(|| self.use_page(Instant::now(), nodes))
    }

    /// Returns the page with the nodes in `only`, or with all nodes if it is `None`.
    fn use_page(&self, now: Instant, only: Option<HashSet<&str>>) -> AdminPage {
        let state = self.state.lock();
        let all = state.uses.all_fresh(now).into_iter();
        let all = all.filter(|(node, ..)| only.as_ref().is_none_or(|o| o.contains(node)));
        let nodes = all.map(|(node, age, of)| Node {
            node,
            age_seconds: age.as_secs(),
            cards: cards(of),
            containers: containers(of),
        });
        let page = Page {
            nodes: nodes.collect(),
        };
        match serde_json::to_string(&page) {
            Ok(body) => AdminPage::json(body),
            Err(error) => AdminPage::text(500, error),
        }
    }
}

fn cards(of: &NodeUse) -> Vec<Card<'_>> {
    let card = of.cards.iter().map(|card| Card {
        card: &card.card,
        memory_bytes: card.memory_bytes,
        busy_milli: card.busy_milli,
    });
    card.collect()
}

fn containers(of: &NodeUse) -> Vec<Container<'_>> {
    let container = of.containers.iter().map(|seen| Container {
        namespace: &seen.of.namespace,
        pod: &seen.of.pod,
        container: &seen.of.container,
        card: &seen.of.card,
        memory_bytes: seen.of.memory_bytes,
        sm_milli: seen.of.sm_milli,
    });
    container.collect()
}
