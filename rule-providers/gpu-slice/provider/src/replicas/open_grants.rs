//! Grants of this replica that are neither confirmed nor released; a hand-over waits for them.

use std::{collections::HashMap, time::Instant};

use parking_lot::Mutex;

#[derive(Debug, Default)]
pub(super) struct OpenGrants(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The number of calls that may be about to grant.
    calls: usize,
    /// The grants by id, each with the number of Reserve calls that returned it, and its end.
    held: HashMap<String, (usize, Instant)>,
}

/// A call that may grant; it is over when this value is dropped.
pub(super) struct Call<'a>(&'a OpenGrants);

impl OpenGrants {
    pub(super) fn begin(&self) -> Call<'_> {
        self.0.lock().calls += 1;
        Call(self)
    }

    pub(super) fn confirmed(&self, id: &str) {
        self.0.lock().held.remove(id);
    }

    pub(super) fn released(&self, id: &str) {
        let held = &mut self.0.lock().held;
        if let Some((answers, _)) = held.get_mut(id) {
            *answers -= 1;
            if *answers == 0 {
                held.remove(id);
            }
        }
    }

    pub(super) fn is_quiet(&self, now: Instant) -> bool {
        let state = self.0.lock();
        state.calls == 0 && state.held.values().all(|(_, until)| now >= *until)
    }
}

impl Call<'_> {
    pub(super) fn granted(self, id: &str, until: Instant) {
        let mut state = self.0.0.lock();
        let now = Instant::now();
        state.held.retain(|_, (_, until)| now < *until);
        let held = state.held.entry(id.to_owned()).or_insert((0, until));
        *held = (held.0 + 1, held.1.max(until));
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.0.lock().calls -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn is_quiet_once_every_grant_has_ended() {
        let (open, now) = (OpenGrants::default(), Instant::now());
        let later = now + Duration::from_secs(10);
        let call = open.begin();
        assert!(!open.is_quiet(later));
        call.granted("a", later);
        open.begin().granted("a", later);
        drop(open.begin());
        assert!(!open.is_quiet(now) && open.is_quiet(later));
        open.released("a");
        assert!(!open.is_quiet(now), "one of two answers is still out");
        open.released("a");
        open.released("a");
        assert!(open.is_quiet(now));
        open.begin().granted("b", later);
        open.confirmed("b");
        assert!(open.is_quiet(now));
    }
}
