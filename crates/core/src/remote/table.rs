//! The pods of other clusters as watches report them, and their use after the last contact.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Fault, MAX_REMOTE_PODS, RemotePod, RemotePods, RemoteState, Scope};

/// The pods of other clusters by scope. Callers pass the time.
#[derive(Debug, Default)]
pub struct RemoteTable {
    scopes: BTreeMap<Scope, Watched>,
    /// The time for which the pods of each cluster are used after the last contact; 0 if absent.
    graces: BTreeMap<Arc<str>, Duration>,
    /// The last fault of each lost cluster, until the cluster answers.
    faults: BTreeMap<Arc<str>, Fault>,
}

#[derive(Debug, Default)]
struct Watched {
    pods: BTreeMap<Arc<str>, Arc<RemotePod>>,
    /// The last time at which the pods were as the cluster had them.
    last_contact: Option<Instant>,
    fault: Option<Fault>,
    /// The state that [`RemoteTable::changes`] returned last; `None` if it returned other pods.
    published: Option<RemoteState>,
}

impl Watched {
    fn fault(&self) -> Option<Fault> {
        let too_many = self.pods.len() > MAX_REMOTE_PODS;
        self.fault.or(too_many.then_some(Fault::TooManyPods))
    }

    fn state(&self, grace: Duration, now: Instant) -> RemoteState {
        let is_within = |last| now.saturating_duration_since(last) < grace;
        match self.fault() {
            None => RemoteState::Current,
            Some(fault) if self.last_contact.is_some_and(is_within) => {
                RemoteState::LastKnown(fault)
            }
            Some(fault) => RemoteState::Unavailable(fault),
        }
    }

    /// Records a contact, unless the pods are not as the cluster has them.
    fn touch(&mut self, now: Instant) {
        if self.fault().is_none() {
            self.last_contact = Some(now);
        }
    }
}

impl RemoteTable {
    /// Adds and removes scopes until they are those that offers name; returns the removed ones.
    pub fn want(&mut self, scopes: &BTreeSet<Scope>) -> Vec<Scope> {
        let clusters: BTreeSet<&Arc<str>> = scopes.iter().map(|s| &s.cluster).collect();
        self.faults.retain(|cluster, _| clusters.contains(cluster));
        for scope in scopes {
            let fault = self.faults.get(&scope.cluster).copied();
            let scope = self.scopes.entry(scope.clone());
            scope.or_insert_with(|| Watched {
                fault: fault.or(Some(Fault::Connecting)),
                ..Watched::default()
            });
        }
        let gone = self.scopes.keys().filter(|s| !scopes.contains(*s));
        let gone: Vec<Scope> = gone.cloned().collect();
        self.scopes.retain(|scope, _| scopes.contains(scope));
        gone
    }

    /// Sets the time for which the pods of a cluster are used after the last contact.
    pub fn set_grace(&mut self, cluster: &str, grace: Duration) {
        self.graces.insert(cluster.into(), grace);
    }

    /// Returns a pod of a scope.
    pub fn pod(&self, scope: &Scope, name: &str) -> Option<&RemotePod> {
        self.scopes.get(scope)?.pods.get(name).map(|pod| &**pod)
    }

    /// Replaces the pods of a scope by a complete list. Equal pods stay the same `Arc`.
    pub fn listed(&mut self, scope: &Scope, pods: Vec<RemotePod>, now: Instant) {
        let Some(watched) = self.scopes.get_mut(scope) else {
            return;
        };
        let known = std::mem::take(&mut watched.pods);
        let pods = pods.into_iter().map(|pod| {
            let equal = known.get(&pod.name).filter(|known| ***known == pod);
            let pod = equal.cloned().unwrap_or_else(|| Arc::new(pod));
            (Arc::clone(&pod.name), pod)
        });
        watched.pods = pods.collect();
        self.faults.remove(&scope.cluster);
        (watched.fault, watched.published) = (None, None);
        watched.touch(now);
    }

    /// Adds or replaces a pod of a scope, or removes it if `pod` is `None`.
    pub fn put(&mut self, scope: &Scope, name: &str, pod: Option<RemotePod>) {
        let Some(watched) = self.scopes.get_mut(scope) else {
            return;
        };
        // Most changes of a pod are of fields that are not read.
        if watched.pods.get(name).map(|known| &**known) == pod.as_ref() {
            return;
        }
        watched.published = None;
        match pod {
            Some(pod) => _ = watched.pods.insert(name.into(), Arc::new(pod)),
            None => _ = watched.pods.remove(name),
        }
    }

    fn of_cluster(&mut self, cluster: &str) -> impl Iterator<Item = &mut Watched> {
        let all = self.scopes.iter_mut();
        all.filter(move |(scope, _)| *scope.cluster == *cluster)
            .map(|(_, watched)| watched)
    }

    /// Records an answer of a cluster: the pods of its scopes without a fault are current.
    pub fn alive(&mut self, cluster: &str, now: Instant) {
        self.faults.remove(cluster);
        self.of_cluster(cluster)
            .for_each(|watched| watched.touch(now));
    }

    /// Records the loss of a cluster, until its namespaces are listed again. The pods stay, also
    /// after the grace, so that bindings keep their names.
    pub fn lost(&mut self, cluster: &str, fault: Fault) {
        self.faults.insert(cluster.into(), fault);
        self.of_cluster(cluster)
            .for_each(|watched| watched.fault = Some(fault));
    }

    /// Records the loss of one namespace of a cluster, until it is listed again.
    pub fn lost_scope(&mut self, scope: &Scope, fault: Fault) {
        if let Some(watched) = self.scopes.get_mut(scope) {
            watched.fault = Some(fault);
        }
    }

    /// Returns the scopes whose pods or states have changed since the last call, also by the end of
    /// a grace. Of too many pods it returns the first by name.
    pub fn changes(&mut self, now: Instant) -> Vec<RemotePods> {
        let graces = &self.graces;
        let changed = self.scopes.iter_mut().filter_map(|(scope, watched)| {
            let grace = graces.get(&scope.cluster).copied().unwrap_or_default();
            let state = watched.state(grace, now);
            if watched.published.replace(state) == Some(state) {
                return None;
            }
            let pods = watched.pods.iter().take(MAX_REMOTE_PODS);
            Some(RemotePods {
                scope: scope.clone(),
                state,
                pods: pods.map(|(n, p)| (Arc::clone(n), Arc::clone(p))).collect(),
            })
        });
        changed.collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GRACE: Duration = Duration::from_secs(300);

    fn scope(namespace: &str) -> Scope {
        Scope {
            cluster: "east".into(),
            namespace: namespace.into(),
        }
    }

    fn pod(name: &str) -> RemotePod {
        RemotePod {
            name: name.into(),
            ..RemotePod::default()
        }
    }

    fn pods(count: usize) -> Vec<RemotePod> {
        (0..count).map(|i| pod(&format!("p{i:05}"))).collect()
    }

    /// The table of one scope.
    fn table() -> RemoteTable {
        let mut table = RemoteTable::default();
        table.set_grace("east", GRACE);
        table.want(&BTreeSet::from([scope("shop")]));
        table
    }

    /// The state and the number of pods if they have changed.
    fn change(table: &mut RemoteTable, now: Instant) -> Option<(RemoteState, usize)> {
        let all = table.changes(now);
        assert!(all.len() < 2);
        all.first().map(|of| (of.state, of.pods.len()))
    }

    #[test]
    fn pods_of_a_lost_cluster_are_used_for_its_grace() {
        use RemoteState::{Current, LastKnown, Unavailable};
        let (mut table, start) = (table(), Instant::now());
        let connecting = Some((Unavailable(Fault::Connecting), 0));
        assert_eq!(change(&mut table, start), connecting);
        table.alive("east", start);
        assert_eq!(
            change(&mut table, start),
            None,
            "an answer alone brings no pods"
        );
        table.listed(&scope("shop"), vec![pod("db-0")], start);
        assert_eq!(change(&mut table, start), Some((Current, 1)));
        assert_eq!(change(&mut table, start + 2 * GRACE), None);
        table.alive("west", start + GRACE);
        table.lost("west", Fault::Unreachable);
        assert_eq!(change(&mut table, start), None);
        table.lost("east", Fault::Unreachable);
        table.alive("east", start + GRACE);
        let last = start + GRACE - Duration::from_secs(1);
        let known = Some((LastKnown(Fault::Unreachable), 1));
        assert_eq!(change(&mut table, last), known);
        table.lost("east", Fault::Unauthorized);
        let known = Some((LastKnown(Fault::Unauthorized), 1));
        assert_eq!(change(&mut table, last), known);
        let ended = Some((Unavailable(Fault::Unauthorized), 1));
        assert_eq!(change(&mut table, start + GRACE), ended, "the pods stay");
        table.listed(&scope("shop"), Vec::new(), start + GRACE);
        assert_eq!(change(&mut table, start + GRACE), Some((Current, 0)));
    }

    #[test]
    fn answers_of_a_cluster_prolong_the_use_of_its_pods() {
        let (mut table, start) = (table(), Instant::now());
        table.listed(&scope("shop"), vec![pod("db-0")], start);
        table.alive("east", start + GRACE);
        table.lost_scope(&scope("shop"), Fault::Forbidden);
        let known = RemoteState::LastKnown(Fault::Forbidden);
        assert_eq!(change(&mut table, start + GRACE), Some((known, 1)));
        let ended = RemoteState::Unavailable(Fault::Forbidden);
        assert_eq!(change(&mut table, start + 2 * GRACE), Some((ended, 1)));
        let forever = Duration::MAX;
        table.set_grace("east", forever);
        assert_eq!(change(&mut table, start + 9 * GRACE), Some((known, 1)));
    }

    #[test]
    fn fault_of_one_namespace_leaves_the_others() {
        let (mut table, now) = (table(), Instant::now());
        let other = scope("bank");
        let both = BTreeSet::from([scope("shop"), other.clone()]);
        assert!(table.want(&both).is_empty());
        table.listed(&scope("shop"), Vec::new(), now);
        table.listed(&other, Vec::new(), now);
        assert_eq!(table.changes(now).len(), 2);
        table.lost_scope(&other, Fault::Forbidden);
        let changed = table.changes(now + GRACE);
        assert_eq!(changed.len(), 1);
        assert_eq!(changed[0].scope, other);
        assert_eq!(changed[0].fault(), Some(Fault::Forbidden));
        let gone = table.want(&BTreeSet::from([scope("shop")]));
        assert_eq!(gone.as_slice(), std::slice::from_ref(&other));
        table.put(&other, "db-0", Some(pod("db-0")));
        assert!(table.changes(now).is_empty(), "the scope is gone");
    }

    #[test]
    fn equal_pod_is_no_change() {
        let (mut table, now) = (table(), Instant::now());
        table.listed(&scope("shop"), vec![pod("db-0")], now);
        table.changes(now);
        table.put(&scope("shop"), "db-0", Some(pod("db-0")));
        table.put(&scope("shop"), "db-1", None);
        assert_eq!(change(&mut table, now), None);
        let moved = RemotePod {
            place: Some("10.0.0.1:10250".into()),
            ..pod("db-0")
        };
        table.put(&scope("shop"), "db-0", Some(moved));
        assert_eq!(change(&mut table, now), Some((RemoteState::Current, 1)));
        table.put(&scope("shop"), "db-0", None);
        assert_eq!(change(&mut table, now), Some((RemoteState::Current, 0)));
    }

    #[test]
    fn pod_that_is_listed_again_is_the_same() {
        let (mut table, now) = (table(), Instant::now());
        let mut list = |place: Option<&str>| {
            let moved = RemotePod {
                place: place.map(Into::into),
                ..pod("db-1")
            };
            table.listed(&scope("shop"), vec![pod("db-0"), moved], now);
            let pods = table.changes(now).remove(0).pods;
            ["db-0", "db-1"].map(|name| Arc::clone(&pods[name]))
        };
        let (before, after) = (list(None), list(Some("10.0.0.1:10250")));
        assert!(Arc::ptr_eq(&before[0], &after[0]));
        assert_ne!(before[1], after[1]);
    }

    #[test]
    fn new_namespace_of_a_lost_cluster_has_its_fault_until_the_cluster_answers() {
        let (mut table, now, shop) = (table(), Instant::now(), scope("shop"));
        let mut fault = |change: &dyn Fn(&mut RemoteTable)| {
            change(&mut table);
            table.want(&BTreeSet::from([shop.clone()]));
            table.changes(now);
            table.want(&BTreeSet::from([shop.clone(), scope("bank")]));
            table.changes(now)[0].fault()
        };
        let lost = |table: &mut RemoteTable| table.lost("east", Fault::Unauthorized);
        assert_eq!(fault(&|_| {}), Some(Fault::Connecting));
        assert_eq!(fault(&lost), Some(Fault::Unauthorized));
        let alive = |table: &mut RemoteTable| table.alive("east", now);
        assert_eq!(fault(&alive), Some(Fault::Connecting));
        fault(&lost);
        let listed = |table: &mut RemoteTable| table.listed(&shop, Vec::new(), now);
        assert_eq!(fault(&listed), Some(Fault::Connecting));
        fault(&lost);
        table.want(&BTreeSet::new());
        assert!(table.faults.is_empty(), "no offer names the cluster");
    }

    #[test]
    fn too_many_pods_are_a_fault_until_they_are_fewer() {
        let (mut table, now, shop) = (table(), Instant::now(), scope("shop"));
        let fault = Fault::TooManyPods;
        table.listed(&shop, pods(MAX_REMOTE_PODS + 1), now);
        let never = RemoteState::Unavailable(fault);
        assert_eq!(change(&mut table, now), Some((never, MAX_REMOTE_PODS)));
        table.alive("east", now);
        assert_eq!(change(&mut table, now), None);
        table.put(&shop, "p00000", None);
        let current = Some((RemoteState::Current, MAX_REMOTE_PODS));
        assert_eq!(change(&mut table, now), current);
        table.alive("east", now);
        table.put(&shop, "q", Some(pod("q")));
        let known = Some((RemoteState::LastKnown(fault), MAX_REMOTE_PODS));
        assert_eq!(change(&mut table, now), known);
        table.put(&shop, "q", None);
        assert_eq!(change(&mut table, now), current);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Listed,
        Put,
        Alive,
        Lost,
        LostScope,
        Wait(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            Just(Step::Listed),
            Just(Step::Put),
            Just(Step::Alive),
            Just(Step::Lost),
            Just(Step::LostScope),
            (1u64..200).prop_map(Step::Wait),
        ]
    }

    proptest! {
        /// Pods are used only once listed, and for the grace after the last contact.
        #[test]
        fn pods_are_used_within_the_grace_only(steps in proptest::collection::vec(step(), 0..60)) {
            let (mut table, mut now) = (table(), Instant::now());
            let (mut contact, mut lost, mut published) = (None, false, None);
            for step in steps {
                match step {
                    Step::Listed => {
                        table.listed(&scope("shop"), vec![pod("a")], now);
                        (contact, lost) = (Some(now), false);
                    }
                    Step::Put => table.put(&scope("shop"), "b", Some(pod("b"))),
                    Step::Alive => {
                        table.alive("east", now);
                        if !lost && contact.is_some() {
                            contact = Some(now);
                        }
                    }
                    Step::Lost => {
                        table.lost("east", Fault::Unreachable);
                        lost = true;
                    }
                    Step::LostScope => {
                        table.lost_scope(&scope("shop"), Fault::Forbidden);
                        lost = true;
                    }
                    Step::Wait(seconds) => now += Duration::from_secs(seconds),
                }
                published = table.changes(now).pop().or(published);
                let state = published.as_ref().map(|pods| pods.state);
                let usable = match state {
                    Some(RemoteState::Current) => !lost,
                    Some(RemoteState::LastKnown(_)) => lost,
                    Some(RemoteState::Unavailable(_)) | None => false,
                };
                let within = contact.is_some_and(|at| !lost || now < at + GRACE);
                prop_assert_eq!(usable, within, "{:?}", state);
            }
        }
    }
}
