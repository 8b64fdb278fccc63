//! Turns kube-runtime's watch events into three changes: a list arrives as one change, not object
//! by object.

use kube_runtime::watcher::{Error, Event};

/// A change of the watched objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<T> {
    /// The complete list: objects that it lacks are gone.
    Replaced(Vec<T>),
    /// An object was added or modified.
    Applied(T),
    /// An object was deleted; this is its last state.
    Deleted(T),
}

/// Turns events into changes, and holds a list until it is complete.
#[derive(Debug)]
pub struct Changes<T>(Vec<T>);

impl<T> Default for Changes<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Changes<T> {
    /// Returns the change that an event completes, if any. `convert` runs as each object arrives.
    pub fn next<K>(&mut self, event: Event<K>, convert: impl FnOnce(K) -> T) -> Option<Change<T>> {
        match event {
            Event::Init => self.0.clear(),
            Event::InitApply(object) => self.0.push(convert(object)),
            Event::InitDone => return Some(Change::Replaced(std::mem::take(&mut self.0))),
            Event::Apply(object) => return Some(Change::Applied(convert(object))),
            Event::Delete(object) => return Some(Change::Deleted(convert(object))),
        }
        None
    }
}

/// The message of a refused watch: the kind is not served (404, 405) or may not be read (403).
pub fn refusal(error: &Error) -> Option<&str> {
    match error {
        Error::InitialListFailed(kube::Error::Api(status))
        | Error::WatchStartFailed(kube::Error::Api(status))
            if matches!(status.code, 403..=405) =>
        {
            Some(&status.message)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_gives_a_list_once_it_is_complete() {
        let mut changes = Changes::default();
        let mut next = |event| changes.next(event, i64::from);
        assert_eq!(next(Event::Init), None);
        assert_eq!(next(Event::InitApply(1)), None);
        assert_eq!(next(Event::Init), None);
        assert_eq!(next(Event::InitApply(2)), None);
        assert_eq!(next(Event::InitDone), Some(Change::Replaced(vec![2])));
        assert_eq!(next(Event::Apply(3)), Some(Change::Applied(3)));
        assert_eq!(next(Event::Delete(2)), Some(Change::Deleted(2)));
    }
}
