//! Selects the nodes of a matrix: those of a zone, or groups of them while they are too many for
//! tiles.

use std::{collections::BTreeMap, ops::Range};

use tautline_core::{Snapshot, model::Node};
use tautline_latency::{ZONE, report::NO_ZONE};

use crate::admin::clean_value;

/// The maximum number of nodes in one request, if there are fewer groups.
const MAX_SAMPLE_NODES: usize = 160;

/// Returns the names of the nodes by zone, both sorted.
pub(super) fn zones(snapshot: &Snapshot) -> BTreeMap<String, Vec<String>> {
    let mut zones: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for node in snapshot.nodes() {
        let nodes = zones.entry(zone_of(node)).or_default();
        nodes.push(node.name.to_string());
    }
    zones.values_mut().for_each(|nodes| nodes.sort_unstable());
    zones
}

/// Returns the name of a node's zone, as the provider's answers are read.
pub(super) fn zone_of(node: &Node) -> String {
    clean_value(node.labels.get(ZONE).unwrap_or(NO_ZONE))
}

/// Splits a number of names into at most `most` groups of neighbours. All groups but the last have
/// the same size.
pub(super) fn groups(names: usize, most: usize) -> Vec<Range<usize>> {
    let size = names.div_ceil(most.max(1)).max(1);
    let starts = (0..names).step_by(size);
    starts.map(|from| from..(from + size).min(names)).collect()
}

/// Returns the label of a group of names: the first name, and the number of further ones.
pub(super) fn label(names: &[String], group: &Range<usize>) -> String {
    let first = names.get(group.start).map_or("", String::as_str);
    match group.len() {
        0 | 1 => first.to_owned(),
        more => format!("{first} +{}", more - 1),
    }
}

/// Returns the names that a path of groups selects: `3,7/1,2` selects the groups 3 and 7, and of
/// their names the groups 1 and 2. Returns `None` if there is no such group.
pub(super) fn narrow(mut names: Vec<String>, path: &str, most: usize) -> Option<Vec<String>> {
    for step in path.split('/').filter(|step| !step.is_empty()) {
        let (one, other) = step.split_once(',')?;
        let (one, other): (usize, usize) = (one.parse().ok()?, other.parse().ok()?);
        if names.len() <= most {
            return None;
        }
        let groups = groups(names.len(), most);
        let mut chosen = names.get(groups.get(one)?.clone())?.to_vec();
        if one != other {
            chosen.extend_from_slice(names.get(groups.get(other)?.clone())?);
        }
        chosen.sort_unstable();
        names = chosen;
    }
    Some(names)
}

/// Returns evenly spaced names of each group, or all names if there are few.
pub(super) fn sample<'a>(names: &'a [String], groups: &[Range<usize>]) -> Vec<Vec<&'a str>> {
    let each = (MAX_SAMPLE_NODES / groups.len().max(1)).max(1);
    let of = |group: &Range<usize>| {
        let count = group.len().min(each);
        let at = |i: usize| group.start + i * group.len() / count.max(1);
        (0..count)
            .filter_map(|i| names.get(at(i)).map(String::as_str))
            .collect()
    };
    groups.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|i| format!("n{i:04}")).collect()
    }

    #[test]
    fn groups_hold_all_names_once() {
        for (count, most) in [(0, 9), (1, 9), (9, 9), (10, 9), (5_000, 24), (7, 0)] {
            let groups = groups(count, most);
            assert!(groups.len() <= most.max(1), "{groups:?}");
            assert_eq!(groups.iter().map(Range::len).sum::<usize>(), count);
        }
    }

    #[test]
    fn narrow_follows_a_path() {
        let all = names(5_000);
        let of = |path| narrow(all.clone(), path, 20);
        assert_eq!(of("").unwrap().len(), 5_000);
        assert_eq!(of("3,7").unwrap().len(), 500);
        assert_eq!(of("3,3/0,1").unwrap(), all[750..776]);
        for wrong in ["3", "3,x", "20,1", "3,7/0,1/0,1/0,1/0,0/0,0", "-1,2"] {
            assert!(of(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn sample_is_bounded_and_covers_all_groups() {
        let all = names(5_000);
        let groups = groups(5_000, 24);
        let sample = sample(&all, &groups);
        assert!(sample.iter().all(|group| !group.is_empty()));
        assert!(sample.iter().map(Vec::len).sum::<usize>() <= MAX_SAMPLE_NODES);
    }
}
