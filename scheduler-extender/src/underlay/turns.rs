//! One bind of a pod at a time.

use std::collections::HashSet;

use parking_lot::Mutex;

/// UIDs of pods whose bind uses the underlay now. kube-scheduler may give up on a
/// bind and try again while the first still runs; two at once would undo each
/// other's work.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashSet<String>>);

pub(super) struct Turn<'a>(&'a Turns, &'a str);

impl Turns {
    pub(super) fn take<'a>(&'a self, uid: &'a str) -> Option<Turn<'a>> {
        let free = self.0.lock().insert(uid.to_owned());
        // Not `then_some`: dropping a turn ends it.
        free.then(|| Turn(self, uid))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.0.lock().remove(self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bind_of_a_pod_at_a_time() {
        let turns = Turns::default();
        let first = turns.take("u").unwrap();
        assert!(turns.take("u").is_none());
        assert!(turns.take("u").is_none(), "a refusal frees nothing");
        assert!(turns.take("v").is_some());
        drop(first);
        assert!(turns.take("u").is_some());
    }
}
