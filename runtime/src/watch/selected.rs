//! Offers that wait until the pods that they may select are followed: one that counted
//! before would have pods planned as if their peers were not there.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tautline_core::{
    index::Object,
    model::{Offer, TargetKind, key},
    selector::Selector,
    union::Union,
};
use tokio::sync::watch::Sender;

use super::scope::Scope;
use crate::feed::Feed;

/// Between the watch of offers, which says what pods are to be followed, and that of
/// pods, which says what it follows.
#[derive(Clone, Debug)]
pub(super) struct Selected {
    wanted: Sender<Scope>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    all: Union,
    followed: Scope,
    waiting: BTreeMap<String, Offer>,
}

impl Selected {
    /// `wanted` is what the watch of pods is to follow.
    pub(super) fn new(wanted: Sender<Scope>) -> Self {
        Self {
            wanted,
            state: Arc::new(Mutex::new(State {
                all: Union::default(),
                followed: Scope::Selected(Union::default()),
                waiting: BTreeMap::new(),
            })),
        }
    }

    /// Gives the object back if it may count now; else it does as soon as it may.
    pub(super) fn admit(&self, object: Object) -> Option<Object> {
        let Object::Offer(offer) = object else {
            return Some(object);
        };
        let key = key(&offer.namespace, &offer.name);
        let mut state = self.state.lock();
        state.waiting.remove(&key);
        if state.follows(&offer) {
            return Some(Object::Offer(offer));
        }
        selectors(&offer).for_each(|s| state.all.add(s));
        state.waiting.insert(key, offer);
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

    /// An offer is gone.
    pub(super) fn forget(&self, key: &str) {
        self.state.lock().waiting.remove(key);
    }

    /// Offers are listed anew: who waits comes again, or is gone.
    pub(super) fn forget_all(&self) {
        self.state.lock().waiting.clear();
    }

    /// Pods are followed so far: offers that waited for it count.
    pub(super) fn follows(&self, scope: &Scope, feed: &Feed) {
        let mut state = self.state.lock();
        state.followed = scope.clone();
        for (key, offer) in std::mem::take(&mut state.waiting) {
            if state.follows(&offer) {
                // While this is locked no later version of it can overtake it.
                feed.apply(Object::Offer(offer));
            } else {
                state.waiting.insert(key, offer);
            }
        }
    }
}

impl State {
    fn follows(&self, offer: &Offer) -> bool {
        match &self.followed {
            Scope::Selected(union) => selectors(offer).all(|s| union.covers(s)),
            Scope::Placed | Scope::All => true,
        }
    }
}

/// Of the pods that an offer's targets select.
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
    fn an_offer_counts_once_its_pods_are_followed() {
        let (wanted, follows) = watch::channel(Scope::selected(&Union::default()));
        let (selected, feed) = (Selected::new(wanted), Feed::default());
        let app_of = |name: &str| {
            let snapshot = feed.snapshot();
            let offer = snapshot.offer("ns", name).map(|e| Arc::clone(&e.offer));
            let target = offer.map(|o| o.targets[0].selector.clone().unwrap());
            target.map(|s| s.match_labels[0].1.clone())
        };
        let admit = |o: Offer| selected.admit(Object::Offer(o)).is_some();
        let other = Object::Pod(tautline_core::model::Pod::default());
        assert!(selected.admit(other).is_some(), "what is no offer");

        for (name, app) in [("a", "web"), ("b", "web"), ("c", "web"), ("d", "db")] {
            assert!(!admit(offer(name, app)), "{name}");
        }
        selected.forget("ns/c");
        let web = {
            let mut union = Union::default();
            selectors(&offer("a", "web")).for_each(|s| union.add(s));
            Scope::selected(&union)
        };
        selected.follows(&web, &feed);
        assert_eq!(app_of("a").as_deref(), Some("web"));
        assert_eq!(app_of("b").as_deref(), Some("web"));
        assert_eq!((app_of("c"), app_of("d")), (None, None));
        assert!(admit(offer("e", "web")), "followed already");

        // A later version takes the place of one that waits, and one that waits is not
        // what counts so far.
        assert!(!admit(offer("a", "cache")) && !admit(offer("b", "cache")));
        assert!(admit(offer("b", "web")));
        let all = follows.borrow().clone();
        assert_eq!(all.selectors().labels.unwrap(), "app in (cache,db,web)");
        selected.follows(&all, &feed);
        assert_eq!(app_of("a").as_deref(), Some("cache"));
        assert_eq!(app_of("b").as_deref(), Some("web"));
        assert_eq!(app_of("d").as_deref(), Some("db"));
    }

    #[test]
    fn all_pods_stay_wanted() {
        let (wanted, follows) = watch::channel(Scope::selected(&Union::default()));
        let selected = Selected::new(wanted.clone());
        wanted.send_replace(Scope::All);
        assert!(selected.admit(Object::Offer(offer("a", "web"))).is_none());
        assert_eq!(*follows.borrow(), Scope::All);
        selected.follows(&Scope::All, &Feed::default());
        assert!(selected.admit(Object::Offer(offer("b", "db"))).is_some());
    }
}
