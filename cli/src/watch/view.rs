//! Keeps the bindings that `tautline watch` shows, turns updates into changes of compliance, and
//! renders the lines of the screen.

use std::{collections::BTreeMap, fmt, sync::Arc};

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use tautline_api::{ConstraintPolicyBinding, constraint::Compliance};
use tautline_runtime::watch_changes::{self, Changes};

use super::{
    screen::Size,
    updates::{GuardedBinding, Update},
};
use crate::{
    age,
    bindings::{Counts, FilterArgs, sort_key},
    scope::Scope,
    table::{cut, plain},
    tables,
};

type Key = (String, String);
type Bindings = BTreeMap<Key, Arc<ConstraintPolicyBinding>>;

pub(super) struct BindingsView {
    scope: Scope,
    filter: FilterArgs,
    bindings: Bindings,
    changes: Changes<GuardedBinding>,
    ready: bool,
    lost: Option<(Timestamp, String)>,
    /// The unreadable bindings, with the errors.
    unreadable: BTreeMap<Key, String>,
}

#[derive(Debug)]
pub(super) struct Change {
    time: Timestamp,
    key: Key,
    old: Option<Compliance>,
    new: Option<Compliance>,
    reason: String,
}

impl BindingsView {
    pub(super) fn new(scope: Scope, filter: FilterArgs) -> Self {
        Self {
            scope,
            filter,
            bindings: Bindings::new(),
            changes: Changes::default(),
            ready: false,
            lost: None,
            unreadable: BTreeMap::new(),
        }
    }

    /// Returns true once the first list is complete.
    pub(super) fn ready(&self) -> bool {
        self.ready
    }

    /// Returns the error that ended the connection, if it is down.
    pub(super) fn connection_error(&self) -> Option<String> {
        self.lost.as_ref().map(|(_, why)| plain(why))
    }

    /// Applies an update, and returns the changes; the first list is no change.
    pub(super) fn apply(&mut self, news: Update, now: Timestamp) -> Vec<Change> {
        let event = match news {
            Update::Event(event) => *event,
            Update::Disconnected(why) => {
                let since = self.lost.take().map_or(now, |(since, _)| since);
                self.lost = Some((since, why));
                return Vec::new();
            }
        };
        let mut changes = Vec::new();
        match self.changes.next(event, |guarded| guarded) {
            None => {}
            Some(watch_changes::Change::Replaced(list)) => {
                self.unreadable.clear();
                let mut new = Bindings::new();
                for guarded in list {
                    let key = key(&guarded);
                    // The last readable version stays.
                    let binding = self
                        .read(guarded)
                        .or_else(|| self.bindings.get(&key).cloned());
                    new.extend(binding.map(|b| (key, b)));
                }
                let old = std::mem::replace(&mut self.bindings, new);
                if self.ready {
                    let gone = old.iter().filter(|(k, _)| !self.bindings.contains_key(*k));
                    changes.extend(gone.filter_map(|(k, b)| self.change(k, Some(b), None, now)));
                    let here = self.bindings.iter();
                    changes
                        .extend(here.filter_map(|(k, b)| self.change(k, old.get(k), Some(b), now)));
                }
                (self.ready, self.lost) = (true, None);
            }
            Some(watch_changes::Change::Applied(guarded)) => {
                let key = key(&guarded);
                if let Some(new) = self.read(guarded) {
                    let old = self.bindings.insert(key.clone(), new.clone());
                    changes.extend(self.change(&key, old.as_ref(), Some(&new), now));
                }
            }
            Some(watch_changes::Change::Deleted(guarded)) => {
                let key = key(&guarded);
                self.unreadable.remove(&key);
                let old = self.bindings.remove(&key);
                changes.extend(self.change(&key, old.as_ref(), None, now));
            }
        }
        changes
    }

    fn read(&mut self, guarded: GuardedBinding) -> Option<Arc<ConstraintPolicyBinding>> {
        let key = key(&guarded);
        match guarded.0 {
            Ok(binding) => {
                self.unreadable.remove(&key);
                Some(Arc::new(binding))
            }
            Err(error) => {
                self.unreadable.insert(key, error.error);
                None
            }
        }
    }

    fn change(
        &self,
        key: &Key,
        old: Option<&Arc<ConstraintPolicyBinding>>,
        new: Option<&Arc<ConstraintPolicyBinding>>,
        time: Timestamp,
    ) -> Option<Change> {
        let fits = [old, new]
            .into_iter()
            .flatten()
            .any(|b| self.filter.matches(b));
        let reason = new.and_then(|b| b.status.as_ref());
        let change = Change {
            time,
            key: key.clone(),
            old: old.map(|b| b.compliance()),
            new: new.map(|b| b.compliance()),
            reason: reason.map(|s| plain(&s.first_reason)).unwrap_or_default(),
        };
        (fits && change.old != change.new).then_some(change)
    }

    /// Returns "namespace shop, bindings: 3 (1 Error, 2 Compliant)", which also counts bindings
    /// that are not shown.
    pub(super) fn summary(&self) -> String {
        let all = self.bindings.values().map(AsRef::as_ref);
        let standing = if self.ready {
            Counts::of(all.filter(|b| self.filter.matches_offer(b))).to_string()
        } else {
            "reading".into()
        };
        let shown = match self.filter.compliances() {
            Some(names) => format!("; only {names}"),
            None => String::new(),
        };
        let offer = self.filter.offer_suffix();
        format!("{}, bindings{offer}: {standing}{shown}", self.scope)
    }

    /// Returns the lines of one drawing, which fit the size.
    pub(super) fn frame(&self, size: Size, now: Timestamp) -> Vec<String> {
        let mut lines = vec![format!("{}  {}", age::second(now), self.summary())];
        if let Some((since, why)) = &self.lost {
            let age = age::since(*since, now);
            lines.push(format!("CONNECTION LOST {age} ago, trying again: {why}"));
        }
        if let Some(((namespace, object), why)) = self.unreadable.first_key_value() {
            let count = self.unreadable.len();
            lines.push(format!(
                "{count} cannot be read: {namespace}/{object}: {why}"
            ));
        }
        let mut shown: Vec<&Arc<ConstraintPolicyBinding>> = self
            .bindings
            .values()
            .filter(|b| self.filter.matches(b))
            .collect();
        shown.sort_by_cached_key(|b| sort_key(b));
        // The table's header and the line with the number of hidden rows come below.
        let room = size.rows.saturating_sub(lines.len() + 1);
        let hidden = match shown.len() {
            all if all <= room => 0,
            all => all - room.saturating_sub(1).min(all),
        };
        shown.truncate(shown.len() - hidden);
        if !shown.is_empty() {
            let shown: Vec<&ConstraintPolicyBinding> = shown.iter().map(|b| b.as_ref()).collect();
            let table = tables::bindings_within(&shown, self.scope.is_all(), now, size.columns);
            lines.extend(table.lines().map(str::to_owned));
        }
        if hidden > 0 {
            lines.push(format!("... and {hidden} more"));
        }
        lines.truncate(size.rows);
        lines
            .iter()
            .map(|line| cut(&plain(line), size.columns))
            .collect()
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (namespace, object) = &self.key;
        let line = format!(
            "{} {namespace}/{object} {} -> {} {}",
            age::second(self.time),
            self.old.map_or("new", Compliance::name),
            self.new.map_or("gone", Compliance::name),
            self.reason
        );
        f.write_str(line.trim_end())
    }
}

fn key(guarded: &GuardedBinding) -> Key {
    (guarded.namespace().unwrap_or_default(), guarded.name_any())
}

#[cfg(test)]
mod tests;
