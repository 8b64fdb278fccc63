use std::sync::Arc;

use super::snapshot::{Member, Snapshot};
use crate::{
    cow_map::CowMap,
    model::{Pod, Target, TargetKind},
};

pub(super) fn selects_pod(target: &Target, pod: &Pod) -> bool {
    target.kind == TargetKind::Pod && target.selector.matches(&pod.labels)
}

/// Returns the objects that a target selects. For a target of a kind other than Pod it returns
/// `known` if the objects are equal, so that the target does not look changed.
pub(super) fn members_of(
    target: &Target,
    namespace: &str,
    now: &Snapshot,
    known: &CowMap<Member>,
) -> CowMap<Member> {
    let mut members = CowMap::default();
    let selector = &target.selector;
    let (api_version, kind) = target.selected_kind();
    if target.kind == TargetKind::Pod {
        for pod in now.pods.values().filter(|p| *p.namespace == *namespace) {
            if selects_pod(target, pod) {
                members.insert(&pod.name, Member::Pod(Arc::clone(pod)));
            }
        }
        return members;
    }
    let others = now.dynamic_objects.values().filter(|o| {
        let here = o.namespace.is_empty() || *o.namespace == *namespace;
        here && *o.api_version == *api_version && *o.kind == *kind && selector.matches(&o.labels)
    });
    if target.kind == TargetKind::Endpoint {
        let slices = now.slices.values().filter(|s| {
            *s.namespace == *namespace && !s.service.is_empty() && selector.matches(&s.labels)
        });
        let names = slices.map(|s| &s.service).chain(others.map(|o| &o.name));
        for name in names {
            members.insert(name, Member::Endpoint(Arc::clone(name)));
        }
    } else {
        for other in others {
            members.insert(&other.name, Member::Object(Arc::clone(other)));
        }
    }
    if members.len() == known.len() && members.iter().all(|(name, m)| known.get(name) == Some(m)) {
        return known.clone();
    }
    members
}
