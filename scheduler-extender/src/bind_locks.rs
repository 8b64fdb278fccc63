use std::collections::HashSet;

use parking_lot::Mutex;

/// The UIDs of pods whose bind uses the underlay now. kube-scheduler may retry a bind while the
/// first still runs, and concurrent binds would undo each other's work.
#[derive(Debug, Default)]
pub(crate) struct BindLocks(Mutex<HashSet<String>>);

pub(crate) struct BindLock<'a>(&'a BindLocks, &'a str);

impl BindLocks {
    /// Locks the pod with this UID; returns `None` if another bind has locked it.
    pub fn try_lock<'a>(&'a self, uid: &'a str) -> Option<BindLock<'a>> {
        let free = self.0.lock().insert(uid.to_owned());
        // `then_some` would drop a lock here, which would unlock the other bind's pod.
        free.then(|| BindLock(self, uid))
    }
}

impl Drop for BindLock<'_> {
    fn drop(&mut self) {
        self.0.0.lock().remove(self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn try_lock_refuses_a_locked_pod() {
        let locks = BindLocks::default();
        let first = locks.try_lock("u").unwrap();
        assert!(locks.try_lock("u").is_none());
        assert!(
            locks.try_lock("u").is_none(),
            "a refused lock unlocks nothing"
        );
        assert!(locks.try_lock("v").is_some());
        drop(first);
        assert!(locks.try_lock("u").is_some());
    }
}
