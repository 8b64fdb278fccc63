use std::sync::Arc;

use super::store::{InstanceId, PairStore};

/// The changes of the pair store since they were last taken.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// The new instances, each with its name and its node.
    pub joined: Vec<(InstanceId, Arc<str>, Arc<str>)>,
    pub left: Vec<InstanceId>,
    pub samples: Vec<ChangedSample>,
    pub dropped: Vec<(InstanceId, InstanceId)>,
    /// True if an unreachable target was measured again.
    pub regained: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ChangedSample {
    pub from: InstanceId,
    pub to: InstanceId,
    pub micros: f32,
    /// Half the width of the 80 % interval of `micros`, as a natural logarithm.
    pub spread: Option<f32>,
}

impl PairStore {
    pub fn take_changes(&mut self) -> Changes {
        let mut changes = Changes {
            left: std::mem::take(&mut self.left),
            dropped: std::mem::take(&mut self.dropped),
            regained: std::mem::take(&mut self.regained),
            ..Changes::default()
        };
        for id in std::mem::take(&mut self.joined) {
            if let Some(i) = self.instances.get(&id) {
                let (name, node) = (Arc::clone(&i.name), Arc::clone(&i.node));
                changes.joined.push((id, name, node));
            }
        }
        for (from, to) in std::mem::take(&mut self.changed) {
            let Some(source) = self.instances.get_mut(&from) else {
                continue;
            };
            if let Ok(at) = source.targets.binary_search_by_key(&to, |t| t.0) {
                let pair = &mut source.targets[at].1;
                pair.changed = false;
                let sample = pair.sample().map(|(micros, spread)| ChangedSample {
                    from,
                    to,
                    micros,
                    spread,
                });
                changes.samples.extend(sample);
            }
        }
        changes
    }

    pub fn mark_all_changed(&mut self) {
        (self.left, self.dropped) = (Vec::new(), Vec::new());
        self.joined = self.ids();
        self.changed.clear();
        for (from, instance) in &mut self.instances {
            for (to, pair) in &mut instance.targets {
                pair.changed = true;
                self.changed.push((*from, *to));
            }
        }
    }
}
