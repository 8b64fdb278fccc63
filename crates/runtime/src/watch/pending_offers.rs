//! Offers that wait until their pods are watched: earlier, pods would be planned without peers.

use std::{collections::BTreeSet, sync::Arc};

use parking_lot::Mutex;
use tautline_core::{
    index::{Kind, Object},
    model::{Offer, TargetKind, key},
    selector::Selector,
    selector_union::SelectorUnion,
};
use tokio::sync::watch::Sender;

use super::scope::Scope;
use crate::cluster_store::ClusterStore;

/// Connects the watch on offers, which decides the wanted pods, with the watch on pods.
#[derive(Clone, Debug)]
pub(super) struct PendingOffers {
    store: ClusterStore,
    wanted: Sender<Scope>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    all: SelectorUnion,
    in_sync: Scope,
    /// Keys of pending offers that the list in progress has not had so far.
    not_relisted: BTreeSet<String>,
}

impl PendingOffers {
    pub(super) fn new(store: ClusterStore, wanted: Sender<Scope>) -> Self {
        Self {
            store,
            wanted,
            state: Arc::new(Mutex::new(State {
                all: SelectorUnion::default(),
                in_sync: Scope::Selected(SelectorUnion::default()),
                not_relisted: BTreeSet::new(),
            })),
        }
    }

    /// Returns the object if it may be active now; else it becomes active later.
    pub(super) fn admit(&self, object: Object) -> Option<Object> {
        let Object::Offer(offer) = object else {
            return Some(object);
        };
        let key = key(&offer.namespace, &offer.name);
        let mut state = self.state.lock();
        state.not_relisted.remove(&key);
        if state.covers(&offer) {
            self.remove_pending(&key);
            return Some(Object::Offer(offer));
        }
        selectors(&offer).for_each(|s| state.all.add(s));
        let waiting = self.store.pending_offers();
        waiting.send_modify(|waiting| _ = waiting.insert(key, Arc::new(offer)));
        self.wanted.send_if_modified(|wanted| {
            let new = Scope::selected(&state.all);
            let wider = matches!(wanted, Scope::Selected(_)) && *wanted != new;
            if wider {
                *wanted = new;
            }
            wider
        });
        None
    }

    pub(super) fn remove(&self, key: &str) {
        let _state = self.state.lock();
        self.remove_pending(key);
    }

    pub(super) fn relist_started(&self) {
        let mut state = self.state.lock();
        state.not_relisted = self
            .store
            .pending_offers()
            .borrow()
            .keys()
            .cloned()
            .collect();
    }

    pub(super) fn retain(&self, key: &str) {
        self.state.lock().not_relisted.remove(key);
    }

    /// Pending offers that the list lacks are deleted, even if they became active meanwhile.
    pub(super) fn relist_done(&self) {
        let mut state = self.state.lock();
        for key in std::mem::take(&mut state.not_relisted) {
            self.remove_pending(&key);
            self.store.delete(Kind::Offer, &key);
        }
    }

    pub(super) fn pods_in_sync(&self, scope: &Scope) {
        let mut state = self.state.lock();
        state.in_sync = scope.clone();
        let all: Vec<Arc<Offer>> = self
            .store
            .pending_offers()
            .borrow()
            .values()
            .cloned()
            .collect();
        for offer in all.into_iter().filter(|offer| state.covers(offer)) {
            // The lock prevents a later version from being overtaken.
            self.store.apply(Object::Offer(Offer::clone(&offer)));
            self.remove_pending(&key(&offer.namespace, &offer.name));
        }
    }

    fn remove_pending(&self, key: &str) {
        let waiting = self.store.pending_offers();
        waiting.send_if_modified(|waiting| waiting.remove(key).is_some());
    }
}

impl State {
    fn covers(&self, offer: &Offer) -> bool {
        match &self.in_sync {
            Scope::Selected(union) => selectors(offer).all(|s| union.covers(s)),
            Scope::Placed | Scope::All => true,
        }
    }
}

fn selectors(offer: &Offer) -> impl Iterator<Item = &Selector> {
    let pods = offer.targets.iter().filter(|t| t.kind == TargetKind::Pod);
    pods.filter_map(|t| t.selector.as_ref())
}

#[cfg(test)]
mod tests {
    use tautline_core::model::Target;
    use tokio::sync::watch;

    use super::*;

    fn offer(name: &str, app: &str) -> Offer {
        let target = Target {
            name: "client".into(),
            kind: TargetKind::Pod,
            api_version: String::new(),
            selector: Some(Selector {
                match_labels: vec![("app".to_owned(), app.to_owned())],
                ..Selector::default()
            }),
        };
        Offer {
            namespace: "ns".into(),
            name: name.into(),
            targets: vec![target],
            ..Offer::default()
        }
    }

    #[test]
    fn offer_is_active_once_its_pods_are_watched() {
        let (wanted, follows) = watch::channel(Scope::selected(&SelectorUnion::default()));
        let store = ClusterStore::default();
        let pending = PendingOffers::new(store.clone(), wanted);
        let app_of = |name: &str| {
            let snapshot = store.snapshot();
            let offer = snapshot.offer("ns", name).map(|e| Arc::clone(&e.offer));
            let target = offer.map(|o| o.targets[0].selector.clone().unwrap());
            target.map(|s| s.match_labels[0].1.clone())
        };
        let admit = |o: Offer| pending.admit(Object::Offer(o)).is_some();
        let other = Object::Pod(tautline_core::model::Pod::default());
        assert!(pending.admit(other).is_some(), "what is no offer");

        for (name, app) in [("a", "web"), ("b", "web"), ("c", "web"), ("d", "db")] {
            assert!(!admit(offer(name, app)), "{name}");
        }
        pending.remove("ns/c");
        let web = {
            let mut union = SelectorUnion::default();
            selectors(&offer("a", "web")).for_each(|s| union.add(s));
            Scope::selected(&union)
        };
        pending.pods_in_sync(&web);
        assert_eq!(app_of("a").as_deref(), Some("web"));
        assert_eq!(app_of("b").as_deref(), Some("web"));
        assert_eq!((app_of("c"), app_of("d")), (None, None));
        assert!(admit(offer("e", "web")), "followed already");

        // A later version replaces a pending one, which does not count yet.
        assert!(!admit(offer("a", "cache")) && !admit(offer("b", "cache")));
        assert!(admit(offer("b", "web")));
        let all = follows.borrow().clone();
        assert_eq!(all.selectors().labels.unwrap(), "app in (cache,db,web)");
        pending.pods_in_sync(&all);
        assert_eq!(app_of("a").as_deref(), Some("cache"));
        assert_eq!(app_of("b").as_deref(), Some("web"));
        assert_eq!(app_of("d").as_deref(), Some("db"));
    }

    #[test]
    fn scope_all_never_shrinks() {
        let (wanted, follows) = watch::channel(Scope::selected(&SelectorUnion::default()));
        let pending = PendingOffers::new(ClusterStore::default(), wanted.clone());
        wanted.send_replace(Scope::All);
        assert!(pending.admit(Object::Offer(offer("a", "web"))).is_none());
        assert_eq!(*follows.borrow(), Scope::All);
        pending.pods_in_sync(&Scope::All);
        assert!(pending.admit(Object::Offer(offer("b", "db"))).is_some());
    }

    #[test]
    fn relist_deletes_pending_offers_that_it_lacks() {
        let (wanted, follows) = watch::channel(Scope::selected(&SelectorUnion::default()));
        let store = ClusterStore::default();
        let pending = PendingOffers::new(store.clone(), wanted);
        let admit = |o: Offer| pending.admit(Object::Offer(o)).is_some();
        for name in ["a", "b", "c", "d"] {
            assert!(!admit(offer(name, "web")));
        }
        pending.relist_started();
        assert!(!admit(offer("a", "db")));
        pending.retain("ns/b");
        pending.remove("ns/c");
        // d is not in the list, and becomes active during it.
        pending.pods_in_sync(&follows.borrow());
        assert!(store.snapshot().offer("ns", "d").is_some());
        pending.relist_done();
        let count: Vec<String> = (store.snapshot().offers())
            .map(|e| e.offer.name.to_string())
            .collect();
        assert_eq!(count, ["a", "b"]);
        assert!(store.pending_offers().borrow().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn wait_for_pending_offers_waits_for_matching_offers() {
        let (wanted, follows) = watch::channel(Scope::selected(&SelectorUnion::default()));
        let store = ClusterStore::default();
        let pending = PendingOffers::new(store.clone(), wanted);
        assert!(pending.admit(Object::Offer(offer("a", "web"))).is_none());
        let most = std::time::Duration::from_millis(200);
        assert!(
            store
                .wait_for_pending_offers(|o| &*o.name == "b", most)
                .await
                .is_ok()
        );
        let still = store
            .wait_for_pending_offers(|o| &*o.name == "a", most)
            .await;
        assert_eq!(&*still.unwrap_err().name, "a");
        let (settled, ()) = tokio::join!(
            store.wait_for_pending_offers(|o| &*o.name == "a", most),
            async {
                tokio::task::yield_now().await;
                pending.pods_in_sync(&follows.borrow());
            }
        );
        assert!(settled.is_ok());
        assert!(store.snapshot().offer("ns", "a").is_some());
    }
}
