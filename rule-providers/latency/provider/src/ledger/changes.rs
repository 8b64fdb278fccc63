//! What has changed, for whoever fits.

use std::sync::Arc;

use super::{Id, Ledger};

/// What a fit has not seen yet.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Instance, its name, its node.
    pub joined: Vec<(Id, Arc<str>, Arc<str>)>,
    pub left: Vec<Id>,
    /// From, to, microseconds.
    pub samples: Vec<(Id, Id, f32)>,
    pub dropped: Vec<(Id, Id)>,
}

impl Ledger {
    /// What has changed since this was last asked.
    pub fn changes(&mut self) -> Changes {
        let mut changes = Changes {
            left: std::mem::take(&mut self.left),
            dropped: std::mem::take(&mut self.dropped),
            ..Changes::default()
        };
        for id in std::mem::take(&mut self.joined) {
            if let Some(i) = self.instances.get(&id) {
                changes
                    .joined
                    .push((id, Arc::clone(&i.name), Arc::clone(&i.node)));
            }
        }
        for (from, to) in std::mem::take(&mut self.changed) {
            let Some(source) = self.instances.get_mut(&from) else {
                continue;
            };
            if let Ok(at) = source.ways.binary_search_by_key(&to, |w| w.0) {
                let way = &mut source.ways[at].1;
                way.changed = false;
                changes
                    .samples
                    .extend(way.micros().map(|micros| (from, to, micros)));
            }
        }
        changes
    }

    /// Makes all that is known a change: for a fit that starts anew.
    pub fn tell_all(&mut self) {
        (self.left, self.dropped) = (Vec::new(), Vec::new());
        self.joined = self.ids();
        self.changed.clear();
        for (from, instance) in &mut self.instances {
            for (to, way) in &mut instance.ways {
                way.changed = true;
                self.changed.push((*from, *to));
            }
        }
    }
}
