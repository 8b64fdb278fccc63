//! Compares a plan with a saved one: the pods that have moved, and those that came and went.

use std::{collections::BTreeMap, fmt, path::Path};

use anyhow::{Context, Error, Result, bail};
use serde::{Deserialize, Serialize};
use tautline_api::manifest;
use tautline_runtime::input_files::InputFiles;

use crate::{
    local::Placement,
    table::{plain, titled},
};

/// The API version and the kind of a plan's document.
pub(super) const API_VERSION: &str = "tautline.io/v1alpha1";
pub(super) const KIND: &str = "Plan";

/// The nodes of pods, by namespace and name.
type Nodes = BTreeMap<(String, String), Option<String>>;

/// A plan that `-o yaml` or `-o json` has printed.
pub(super) struct SavedPlan(Nodes);

#[derive(Deserialize)]
struct SavedPod {
    namespace: String,
    pod: String,
    node: Option<String>,
}

/// The pods of a comparison: of one namespace, or one pod.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scope<'a> {
    pub(super) namespace: Option<&'a str>,
    pub(super) pod: Option<&'a str>,
}

/// The differences, sorted by the pods' namespaces and names.
#[derive(Debug, Serialize)]
pub(super) struct Changes(Vec<Change>);

#[derive(Debug, Serialize)]
struct Change {
    namespace: String,
    pod: String,
    change: Kind,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Kind {
    /// It goes to another node.
    Moved,
    /// It had a node, and stays pending.
    NowPending,
    /// It was pending, and has a node.
    NowPlaced,
    /// The saved plan does not have it.
    Added,
    /// The pod is only in the saved plan.
    Removed,
}

impl SavedPlan {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let at = || format!("--compare {}", path.display());
        let text = InputFiles::default().named(path).map_err(Error::msg);
        Self::parse(&text.with_context(at)?).with_context(at)
    }

    fn parse(text: &str) -> Result<Self> {
        let document = manifest::documents(text)?.into_iter().next();
        let value = document.map(|document| document.value).unwrap_or_default();
        if value["apiVersion"] != API_VERSION || value["kind"] != KIND {
            bail!(
                "is no plan ({KIND} of {API_VERSION}); save one with `tautline plan -o yaml >FILE`"
            );
        }
        let pods: Vec<SavedPod> =
            serde_json::from_value(value["pods"].clone()).context("pods: is malformed")?;
        let nodes = pods.into_iter().map(|p| ((p.namespace, p.pod), p.node));
        Ok(Self(nodes.collect()))
    }

    pub(super) fn changes(&self, now: &[Placement], scope: Scope<'_>) -> Changes {
        let now: Nodes = now
            .iter()
            .map(|p| ((p.namespace.clone(), p.pod.clone()), p.node.clone()))
            .collect();
        let in_scope = |(namespace, pod): &(String, String)| {
            scope.namespace.is_none_or(|wanted| wanted == namespace)
                && scope.pod.is_none_or(|wanted| wanted == pod)
        };
        let mut keys: Vec<_> = self.0.keys().filter(|key| in_scope(key)).collect();
        keys.extend(now.keys().filter(|key| !self.0.contains_key(*key)));
        keys.sort();
        let change = |key: &(String, String)| {
            let (from, to) = (self.0.get(key), now.get(key));
            let change = match (from, to) {
                (None, _) => Kind::Added,
                (_, None) => Kind::Removed,
                (Some(from), Some(to)) if from == to => return None,
                (Some(None), _) => Kind::NowPlaced,
                (_, Some(None)) => Kind::NowPending,
                (Some(Some(_)), Some(Some(_))) => Kind::Moved,
            };
            Some(Change {
                namespace: key.0.clone(),
                pod: key.1.clone(),
                change,
                from: from.cloned().flatten(),
                to: to.cloned().flatten(),
            })
        };
        Changes(keys.into_iter().filter_map(change).collect())
    }
}

impl Changes {
    /// Returns whether a pod has lost the node that it had.
    pub(super) fn has_moves(&self) -> bool {
        let lost = [Kind::Moved, Kind::NowPending];
        self.0.iter().any(|change| lost.contains(&change.change))
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|change| plain(&change.to_string()))
    }

    pub(super) fn text(&self, file: &str) -> String {
        let title = format!("Changes since {}", plain(file));
        if self.0.is_empty() {
            return format!("{title}: none\n");
        }
        titled(&title, &self.lines().collect::<Vec<_>>().join("\n"))
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |node: &Option<String>| node.clone().unwrap_or_else(|| "pending".to_owned());
        let (namespace, pod) = (&self.namespace, &self.pod);
        let (from, to) = (place(&self.from), place(&self.to));
        match self.change {
            Kind::Added => write!(f, "pod {namespace}/{pod} is new: {to}"),
            Kind::Removed => write!(f, "pod {namespace}/{pod} is gone: it was {from}"),
            Kind::Moved => write!(f, "pod {namespace}/{pod} moves: {from} -> {to}"),
            Kind::NowPending | Kind::NowPlaced => {
                write!(f, "pod {namespace}/{pod}: {from} -> {to}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAVED: &str = "apiVersion: tautline.io/v1alpha1\nkind: Plan\nsummary: {nodes: 3}\npods:\n\
        - {namespace: shop, pod: a, node: n1}\n- {namespace: shop, pod: b, node: n1}\n\
        - {namespace: shop, pod: c, node: n2}\n- {namespace: shop, pod: d}\n\
        - {namespace: shop, pod: e, node: n3}\n- {namespace: bank, pod: f, node: n3}\n";

    fn placement(pod: &str, node: Option<&str>) -> Placement {
        Placement {
            namespace: "shop".to_owned(),
            pod: pod.to_owned(),
            node: node.map(str::to_owned),
            ..Placement::default()
        }
    }

    #[test]
    fn changes_are_those_of_the_scope() {
        let saved = SavedPlan::parse(SAVED).unwrap();
        let now = [
            placement("a", Some("n1")),
            placement("b", Some("n2")),
            placement("c", None),
            placement("d", Some("n1")),
            placement("g", None),
        ];
        let of_shop = Scope {
            namespace: Some("shop"),
            pod: None,
        };
        let changes = saved.changes(&now, of_shop);
        assert!(changes.has_moves());
        assert_eq!(
            changes.text("plan.yaml"),
            "Changes since plan.yaml:\n  pod shop/b moves: n1 -> n2\n  pod shop/c: n2 -> pending\n  \
             pod shop/d: pending -> n1\n  pod shop/e is gone: it was n3\n  \
             pod shop/g is new: pending\n"
        );
        let all = saved.changes(&now, Scope::default());
        assert!(all.text("x").contains("pod bank/f is gone"), "{all:?}");
        let only_d = Scope {
            pod: Some("d"),
            ..of_shop
        };
        let placed = saved.changes(&now[3..4], only_d);
        assert!(!placed.has_moves(), "a pod that gets a node has not moved");
        let only_a = Scope {
            pod: Some("a"),
            ..of_shop
        };
        let same = saved.changes(&now[..1], only_a);
        assert_eq!(same.text("x"), "Changes since x: none\n");
    }

    #[test]
    fn other_files_are_refused() {
        for text in ["", "[]", "kind: Plan\napiVersion: v1\n"] {
            let error = SavedPlan::parse(text).map(drop).unwrap_err().to_string();
            assert!(error.starts_with("is no plan"), "{text}: {error}");
        }
    }
}
