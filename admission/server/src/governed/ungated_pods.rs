//! Reports ungated pods in the condition `Gated` of their offer. They were created before the offer
//! that governs them and lack the gate resource, so the scheduler never calls the extender for
//! them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tautline_api::ConstraintPolicyOffer;
use tautline_core::{
    Snapshot,
    index::{Kind, Member, OfferEntry},
    model::Pod,
    names::GATE_RESOURCE,
};
use tautline_runtime::{
    api_call::{ApiCallError, within},
    cluster_store::ClusterStore,
    events::{EventNote, Events, reference_to_own},
};

const CONDITION: &str = "Gated";
/// The field manager that owns the condition in server-side apply.
const MANAGER: &str = "tautline-admission";
const CALL_DEADLINE: Duration = Duration::from_secs(10);
/// The delay after each check, in which further changes are gathered.
const GATHER_DELAY: Duration = Duration::from_secs(1);
/// The most pods that a message names.
const MAX_NAMES: usize = 10;

pub(crate) struct UngatedPods {
    pub store: ClusterStore,
    pub client: Client,
    pub events: Arc<Events>,
}

impl UngatedPods {
    pub(crate) async fn run(self) {
        let mut changes = self.store.changes();
        let mut before = None;
        // The reported pods by the UID of their offer.
        let mut reported: BTreeMap<Box<str>, Vec<String>> = BTreeMap::new();
        loop {
            let now = *changes.borrow_and_update();
            if before.is_none_or(|b| now.changed(&b, &[Kind::Pod, Kind::Offer])) {
                before = Some(now);
                let snapshot = self.store.snapshot();
                let earlier = std::mem::take(&mut reported);
                for (entry, names) in find_ungated(&snapshot) {
                    let offer = &entry.offer;
                    if earlier.get(&offer.uid) != Some(&names)
                        && let Err(error) = self.report(entry, &names).await
                    {
                        before = None;
                        if error.code() != Some(409) {
                            tracing::warn!(offer = %offer.name, %error, "cannot write the condition Gated");
                        }
                        continue;
                    }
                    reported.insert(offer.uid.clone(), names);
                }
            }
            tokio::time::sleep(GATHER_DELAY).await;
            if before.is_some() && changes.changed().await.is_err() {
                return;
            }
        }
    }

    async fn report(&self, entry: &OfferEntry, names: &[String]) -> Result<(), ApiCallError> {
        let (offer, namespace) = (&entry.offer, &*entry.offer.namespace);
        let api: Api<ConstraintPolicyOffer> = Api::namespaced(self.client.clone(), namespace);
        let Some(found) = within(CALL_DEADLINE, api.get_opt(&offer.name)).await? else {
            return Ok(());
        };
        let version = found.metadata.resource_version;
        let status = found.status.unwrap_or_default();
        let current = status.conditions.into_iter().find(|c| c.type_ == CONDITION);
        let (current, message) = match (current, names) {
            (None, []) => return Ok(()),
            (current, names) => (current, message(names)),
        };
        if current.as_ref().is_some_and(|h| h.message == message) {
            return Ok(());
        }
        let (state, reason) = match names {
            [] => ("True", "AllAsk"),
            _ => ("False", "PodsBeforeOffer"),
        };
        let since = current.filter(|h| h.status == state);
        let condition = Condition {
            type_: CONDITION.to_owned(),
            status: state.to_owned(),
            reason: reason.to_owned(),
            last_transition_time: since
                .map_or_else(|| Time(Timestamp::now()), |h| h.last_transition_time),
            message: message.clone(),
            observed_generation: None,
        };
        let patch = json!({
            "apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicyOffer",
            "metadata": {"name": &*offer.name, "uid": offer.uid, "resourceVersion": version},
            "status": {"conditions": [condition]},
        });
        let params = PatchParams::apply(MANAGER).force();
        let patch = Patch::Apply(patch);
        within(
            CALL_DEADLINE,
            api.patch_status(&offer.name, &params, &patch),
        )
        .await?;
        if !names.is_empty() {
            self.events.publish(EventNote {
                regarding: reference_to_own(
                    "ConstraintPolicyOffer",
                    namespace,
                    &offer.name,
                    &offer.uid,
                ),
                secondary: None,
                warning: true,
                reason: reason.to_owned(),
                action: "Gate",
                text: message,
            });
        }
        Ok(())
    }
}

fn message(names: &[String]) -> String {
    if names.is_empty() {
        return format!("every pending pod requests {GATE_RESOURCE}");
    }
    let shown = &names[..names.len().min(MAX_NAMES)];
    let more = match names.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "pending pods were created before the offer and do not request {GATE_RESOURCE}: {}{more}; the \
         scheduler places them without the extender: delete them so that they are created again",
        shown.join(", ")
    )
}

fn find_ungated(snapshot: &Snapshot) -> Vec<(&OfferEntry, Vec<String>)> {
    let ungated = |pod: &Pod| pod.waits_for_node() && pod.requests.milli(GATE_RESOURCE) == 0;
    let offers = snapshot.offers().filter(|e| !e.offer.terminating);
    offers
        .map(|entry| {
            let members = entry.members.iter().flat_map(|m| m.values());
            let mut names: Vec<String> = members
                .filter_map(|m| match m {
                    Member::Pod(pod) if ungated(pod) => Some(pod.name.to_string()),
                    _ => None,
                })
                .collect();
            names.sort();
            names.dedup();
            (entry, names)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use tautline_core::{Index, index::Object};

    use super::{super::tests::offer, *};

    #[test]
    fn only_pending_pods_without_the_request_are_reported() {
        let mut index = Index::default();
        index.apply(Object::Offer(offer()));
        let pod = |name: &str, node: Option<&str>, asks: i64| {
            Object::Pod(Pod {
                namespace: "shop".into(),
                name: name.into(),
                labels: [("app", "web")].into_iter().collect(),
                node: node.map(Into::into),
                requests: [(GATE_RESOURCE, asks)].into_iter().collect(),
                ..Pod::default()
            })
        };
        index.apply(pod("bound", Some("n"), 0));
        index.apply(pod("asks", None, 1000));
        index.apply(pod("old-b", None, 0));
        index.apply(pod("old-a", None, 0));
        let snapshot = index.snapshot();
        let found = find_ungated(&snapshot);
        assert_eq!(found[0].1, ["old-a", "old-b"]);
        assert!(message(&found[0].1).contains("governed: old-a, old-b; the scheduler"));
        let many: Vec<String> = (0..12).map(|i| format!("p{i}")).collect();
        assert!(
            message(&many).contains("p9 and 2 more;"),
            "{}",
            message(&many)
        );
    }
}
