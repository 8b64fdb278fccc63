//! The UIDs of bound pods that were deleted, for readers that compare snapshots: a pod that came
//! and went between two snapshots is in neither snapshot.

use std::collections::VecDeque;

/// The maximum number of UIDs; the oldest are dropped.
const MAX_UIDS: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct GonePods {
    /// The number of UIDs that were dropped from `uids`.
    dropped: u64,
    uids: VecDeque<Box<str>>,
}

impl GonePods {
    pub fn push(&mut self, uid: &str) {
        self.uids.push_back(uid.into());
        if self.uids.len() > MAX_UIDS {
            self.uids.pop_front();
            self.dropped += 1;
        }
    }

    /// Returns the UIDs since `mark`, at most the last 4,096, and advances `mark`.
    pub fn since(&self, mark: &mut u64) -> Vec<Box<str>> {
        let known = mark.saturating_sub(self.dropped);
        *mark = self.dropped + self.uids.len() as u64;
        let known = usize::try_from(known).unwrap_or(usize::MAX);
        self.uids.iter().skip(known).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reader_gets_each_uid_once() {
        let (mut gone, mut mark) = (GonePods::default(), 0);
        assert!(gone.since(&mut mark).is_empty());
        gone.push("a");
        gone.push("b");
        assert_eq!(gone.since(&mut mark), ["a".into(), "b".into()]);
        assert!(gone.since(&mut mark).is_empty());
        gone.push("c");
        assert_eq!(gone.since(&mut mark), ["c".into()]);
        assert_eq!(gone.since(&mut 0).len(), 3);
        for i in 0..MAX_UIDS {
            gone.push(&i.to_string());
        }
        assert_eq!(gone.since(&mut mark).len(), MAX_UIDS);
        assert_eq!(&*gone.since(&mut 0)[0], "0");
    }
}
