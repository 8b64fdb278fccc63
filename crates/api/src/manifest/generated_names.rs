//! Names the objects that have only a `generateName`, as for `kubectl create`.

use super::Item;
use crate::Metadata;

/// Gives each object that has only a `generateName` a name, as the API server does: the prefix, and
/// a number in place of five random characters.
pub fn generate_names<W>(objects: &mut [(W, Item)]) {
    let mut number = 0;
    let mut name = |prefix: &str| {
        number += 1;
        format!("{prefix}{number:05}")
    };
    for (_, item) in objects {
        if let Item::Workload(workload) = item {
            workload.generate_name(&mut name);
        } else if let Some(metadata) = metadata(item)
            && metadata.name.as_ref().is_none_or(String::is_empty)
            && let Some(prefix) = &metadata.generate_name
        {
            metadata.name = Some(name(prefix));
        }
    }
}

fn metadata(item: &mut Item) -> Option<&mut Metadata> {
    Some(match item {
        Item::Pod(o) => &mut o.metadata,
        Item::Node(o) => &mut o.metadata,
        Item::Namespace(o) => &mut o.metadata,
        Item::DeviceClass(o) => &mut o.metadata,
        Item::ResourceSlice(o) => &mut o.metadata,
        Item::ResourceClaim(o) => &mut o.metadata,
        Item::ResourceClaimTemplate(o) => &mut o.metadata,
        Item::Service(o) => &mut o.metadata,
        Item::EndpointSlice(o) => &mut o.metadata,
        Item::ConfigMap(o) => &mut o.metadata,
        Item::Policy(o) => &mut o.metadata,
        Item::Offer(o) => &mut o.metadata,
        Item::CostProvider(o) => &mut o.metadata,
        Item::RuleProvider(o) => &mut o.metadata,
        Item::Storage(_) | Item::Admission(_) | Item::Workload(_) | Item::Other(_) => {
            return None;
        }
    })
}
