//! Stores equal values of pods once: a cluster has far fewer nodes, namespaces and workloads than
//! pods.

use std::{hash::Hash, sync::Arc};

use hashbrown::HashSet;

use crate::{model::Pod, selector::PodTerm};

#[derive(Debug, Default)]
pub(super) struct Interner {
    names: Pool<str>,
    labels: Pool<str>,
    amounts: Pool<[(Box<str>, i64)]>,
    pod_terms: Pool<[PodTerm]>,
}

impl Interner {
    pub(super) fn share(&mut self, pod: &mut Pod) {
        self.names.share(&mut pod.namespace);
        if let Some(node) = &mut pod.node {
            self.names.share(node);
        }
        self.labels.share(pod.labels.packed_mut());
        self.amounts.share(pod.requests.amounts_mut());
        self.pod_terms.share(&mut pod.pod_terms);
    }
}

#[derive(Debug)]
struct Pool<T: ?Sized> {
    values: HashSet<Arc<T>>,
    /// The number of values at which unused ones are dropped.
    sweep_at: usize,
}

impl<T: ?Sized> Default for Pool<T> {
    fn default() -> Self {
        Self {
            values: HashSet::default(),
            sweep_at: 1024,
        }
    }
}

impl<T: ?Sized + Eq + Hash> Pool<T> {
    fn share(&mut self, value: &mut Arc<T>) {
        if let Some(known) = self.values.get(&**value) {
            *value = Arc::clone(known);
            return;
        }
        if self.values.len() >= self.sweep_at {
            self.values.retain(|v| Arc::strong_count(v) > 1);
            self.sweep_at = (self.values.len() * 2).max(1024);
        }
        self.values.insert(Arc::clone(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_keeps_one_copy_and_drops_unused_values() {
        let mut pool = Pool::<str>::default();
        let [mut a, mut b]: [Arc<str>; 2] = ["web".into(), "web".into()];
        pool.share(&mut a);
        pool.share(&mut b);
        assert!(Arc::ptr_eq(&a, &b));
        for i in 0..5000 {
            pool.share(&mut i.to_string().into());
        }
        assert!(pool.values.len() <= 1025, "{}", pool.values.len());
        let mut again: Arc<str> = "web".into();
        pool.share(&mut again);
        assert!(Arc::ptr_eq(&a, &again));
    }
}
