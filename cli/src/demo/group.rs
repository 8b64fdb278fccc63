//! The demo's last step: the workers of a job one by one, and as a group.

use anyhow::Result;
use tautline_api::{
    constraint::ConstraintPolicyOfferSpec,
    manifest::{self, Item},
};
use tautline_core::trust::TrustedNamespaces;

use crate::{local::LocalScheduler, output, table};

/// The files of the example `examples/groups/`.
const FILES: [&str; 2] = [
    include_str!("../../../examples/groups/1-training.yaml"),
    include_str!("../../../examples/groups/tests/cluster.yaml"),
];

/// Shows where the workers go without and with the offer's `group`.
pub(super) async fn show() -> Result<()> {
    output::write(
        "8. Another cluster: eight workers of a job, each on a quarter of a card, all within 100us of\n   \
            each other. Rack 1 has two cards, rack 2 has one. One after another they fill rack 2, and the\n   \
            rest finds no card within the limit. With `group` in the offer the places of all are planned\n   \
            before the first is bound (examples/groups).\n\n",
    )?;
    let one_by_one = nodes(|spec| {
        let selector = spec.targets.first().and_then(|t| t.label_selector.clone());
        spec.group = None;
        for target in &mut spec.targets {
            if target.peers.take().is_some() {
                target.label_selector.clone_from(&selector);
            }
        }
    });
    let (one_by_one, as_group) = (one_by_one.await?, nodes(|_| {}).await?);
    let rows = one_by_one.into_iter().zip(as_group);
    let rows = rows.map(|((pod, alone), (_, together))| vec![pod, alone, together]);
    let table = table::grid(&["POD", "ONE BY ONE", "AS A GROUP"], rows);
    output::write(&format!("{table}\n"))
}

/// Returns the workers with their nodes, after a change of the offer.
async fn nodes(change: impl Fn(&mut ConstraintPolicyOfferSpec)) -> Result<Vec<(String, String)>> {
    let mut objects = Vec::new();
    for file in FILES {
        objects.extend(manifest::parse(file)?.into_iter().map(|item| ((), item)));
    }
    let with_pods = manifest::add_template_pods(objects).into_iter();
    let mut items: Vec<Item> = with_pods.map(|((), item)| item).collect();
    for item in &mut items {
        if let Item::Offer(offer) = item {
            change(&mut offer.spec);
        }
    }
    let local = LocalScheduler::start(&items, TrustedNamespaces::default()).await?;
    let mut nodes = Vec::new();
    for pod in &local.pending {
        let placement = local.place(pod).await?;
        let node = placement.node.unwrap_or_else(|| "pending".to_owned());
        nodes.push((placement.pod, node));
    }
    local.stop().await;
    Ok(nodes)
}
