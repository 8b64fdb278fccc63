//! The offers of one namespace, by the pod labels that they require: each change of a pod looks up
//! the offers that may select the pod.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::{
    cow_map::CowMap,
    model::{Offer, Pod, TargetKind, WatchedObject},
    reference::Reference,
    remote::RemotePod,
    selector::{Labels, Selector},
};

/// An offer with its members.
#[derive(Clone, Debug)]
pub struct OfferEntry {
    /// The offer.
    pub offer: Arc<Offer>,
    /// The selected objects by name, for each target in the offer's order.
    pub members: Vec<CowMap<Member>>,
    /// The selected pods of other clusters by name, for each remote target in the offer's order.
    pub remote: Vec<CowMap<Member>>,
}

impl OfferEntry {
    /// Returns the names of all targets with the selected objects: the targets of this cluster,
    /// then those of other clusters.
    pub fn all_members(&self) -> impl Iterator<Item = (&Arc<str>, &CowMap<Member>)> {
        let local = self.offer.targets.iter().map(|t| &t.name);
        let remote = self.offer.remote_targets.iter().map(|t| &t.name);
        local.zip(&self.members).chain(remote.zip(&self.remote))
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        let mut members = self.all_members().zip(other.all_members());
        Arc::ptr_eq(&self.offer, &other.offer)
            && members.all(|((_, a), (_, b))| a.diff(b).next().is_none())
    }
}

/// An object that a target selects.
#[derive(Clone, Debug, PartialEq)]
pub enum Member {
    /// A pod.
    Pod(Arc<Pod>),
    /// A Service's endpoints, by the Service's name.
    Endpoint(Arc<str>),
    /// An object of another kind.
    Object(Arc<WatchedObject>),
    /// A pod of another cluster.
    Remote(Arc<RemotePod>),
}

impl Member {
    /// Returns the reference that bindings and providers use; `namespace` is the offer's.
    pub fn reference(&self, namespace: &str) -> Reference {
        match self {
            Self::Pod(pod) => Reference::pod(&pod.namespace, &pod.name),
            Self::Endpoint(name) => Reference {
                namespace: namespace.to_owned(),
                api_version: "v1".to_owned(),
                kind: "Endpoints".to_owned(),
                name: name.to_string(),
                ..Reference::default()
            },
            Self::Object(o) => Reference {
                namespace: o.namespace.to_string(),
                api_version: o.api_version.to_string(),
                kind: o.kind.to_string(),
                name: o.name.to_string(),
                ..Reference::default()
            },
            Self::Remote(pod) => pod.reference(),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Offers {
    list: Vec<Arc<OfferEntry>>,
    by_label: Arc<ByLabel>,
}

/// The names of offers by the label that their Pod targets require.
#[derive(Clone, Debug, Default)]
struct ByLabel {
    labels: HashMap<Box<str>, Vec<Arc<str>>>,
    /// The offers with a Pod target that requires no label value.
    any: Vec<Arc<str>>,
}

impl Offers {
    pub(super) fn list(&self) -> &[Arc<OfferEntry>] {
        &self.list
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    fn position(&self, name: &str) -> Result<usize, usize> {
        self.list
            .binary_search_by(|entry| (*entry.offer.name).cmp(name))
    }

    pub(super) fn get(&self, name: &str) -> Option<&Arc<OfferEntry>> {
        self.list.get(self.position(name).ok()?)
    }

    /// Returns the positions of the offers that may select a pod with these labels, ascending.
    pub(super) fn candidates(&self, labels: &Labels) -> Vec<usize> {
        let ByLabel { labels: by, any } = &*self.by_label;
        let names = labels.packed().filter_map(|pair| by.get(pair)).flatten();
        let mut at: Vec<usize> = names
            .chain(any)
            .filter_map(|name| self.position(name).ok())
            .collect();
        at.sort_unstable();
        at.dedup();
        at
    }

    pub(super) fn entry_mut(&mut self, at: usize) -> &mut OfferEntry {
        Arc::make_mut(&mut self.list[at])
    }

    pub(super) fn put(&mut self, entry: OfferEntry) {
        self.remove(&Arc::clone(&entry.offer.name));
        let by_label = Arc::make_mut(&mut self.by_label);
        each_list(by_label, &entry.offer, |names| {
            names.push(Arc::clone(&entry.offer.name));
        });
        if let Err(at) = self.position(&entry.offer.name) {
            self.list.insert(at, Arc::new(entry));
        }
    }

    pub(super) fn remove(&mut self, name: &str) -> bool {
        let Ok(at) = self.position(name) else {
            return false;
        };
        let old = self.list.remove(at);
        let by_label = Arc::make_mut(&mut self.by_label);
        each_list(by_label, &old.offer, |names| names.retain(|n| **n != *name));
        by_label.labels.retain(|_, names| !names.is_empty());
        true
    }
}

/// Changes the list of each Pod target of the offer, twice if two targets share the list.
fn each_list(by_label: &mut ByLabel, offer: &Offer, mut change: impl FnMut(&mut Vec<Arc<str>>)) {
    let pods = offer.targets.iter().filter(|t| t.kind == TargetKind::Pod);
    for target in pods {
        match required_label(&target.selector) {
            Some(label) => change(by_label.labels.entry(label).or_default()),
            None => change(&mut by_label.any),
        }
    }
}

fn required_label(selector: &Selector) -> Option<Box<str>> {
    let (key, value) = selector.match_labels.first()?;
    Labels::pack(key, value)
}
