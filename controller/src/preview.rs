//! Computes the bindings and statuses that the controller would write, for the console's view of
//! manifest files without an API server.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::Result;
use futures::future::join_all;
use tautline_api::{
    ConstraintPolicyBinding,
    constraint::{Compliance, ConstraintPolicyOfferStatus},
};
use tautline_core::{
    Snapshot,
    binding::{binding_count, desired_bindings},
    binding_quota::{BindingLimits, BindingQuota},
    compliance_state::UnixTime,
};
use tautline_provider_client::{ClientConfig, ProviderClient};

use crate::{
    binding_spec::{BindingSpec, Key, key, key_of, namespace_of},
    binding_status::{compliance_state, next_status, to_api_time},
    clock::Now,
    executor::{api, evaluate::evaluate},
    metrics::Metrics,
    offer_status::{self, BindingSummary},
    question::Question,
    reconciler::{KindStates, NewBinding},
};

const MAX_CONCURRENT_EVALUATIONS: usize = 16;

/// The bindings and statuses that a controller would write, for a cluster without an API server. A
/// preview does not act on violations.
#[derive(Debug)]
pub struct Preview {
    providers: ProviderClient,
    metrics: Metrics,
    bindings: BTreeMap<Key, Arc<ConstraintPolicyBinding>>,
    offers: BTreeMap<Key, ConstraintPolicyOfferStatus>,
}

impl Preview {
    /// Creates a preview without bindings.
    ///
    /// # Errors
    /// Fails if a TLS file cannot be read.
    pub fn new(config: ClientConfig) -> Result<Self> {
        let calls = tautline_provider_client::Metrics::default();
        Ok(Self {
            providers: ProviderClient::new(config, calls)?,
            metrics: Metrics::default(),
            bindings: BTreeMap::new(),
            offers: BTreeMap::new(),
        })
    }

    /// Returns the bindings, sorted by namespace and name.
    pub fn bindings(&self) -> Vec<Arc<ConstraintPolicyBinding>> {
        self.bindings.values().cloned().collect()
    }

    /// Returns the status of an offer.
    pub fn offer_status(
        &self,
        namespace: &str,
        name: &str,
    ) -> Option<&ConstraintPolicyOfferStatus> {
        self.offers.get(&key(namespace, name))
    }

    /// Creates and evaluates the bindings of all offers.
    pub async fn evaluate(&mut self, snapshot: &Snapshot) {
        let now = Now::read().unix;
        let mut desired = Vec::new();
        let mut questions = BTreeMap::new();
        let mut quota = BindingQuota::new(BindingLimits::default());
        for entry in snapshot.offers() {
            let offer = &entry.offer;
            let of_offer = key_of(offer);
            quota.call_for(&of_offer, offer.created_unix, binding_count(entry), 0);
            let trusted = &self.providers.config().trusted;
            questions.insert(of_offer, Question::new(snapshot, trusted, offer));
        }
        quota.share_out();
        for entry in snapshot.offers() {
            let offer = &entry.offer;
            let grant = quota.grant(&key_of(offer));
            let tuples = desired_bindings(entry, grant.count);
            desired.extend(tuples.into_iter().map(|(name, targets)| {
                let offer = Arc::clone(offer);
                NewBinding {
                    offer,
                    name,
                    targets,
                }
            }));
        }
        let mut evaluated = Vec::with_capacity(desired.len());
        for chunk in desired.chunks(MAX_CONCURRENT_EVALUATIONS) {
            let calls = chunk.iter().map(|new| {
                let question = &questions[&key_of(&new.offer)];
                self.evaluate_one(snapshot, question, new, now)
            });
            evaluated.extend(join_all(calls).await);
        }
        self.bindings = evaluated.into_iter().collect();
        self.offers = self.offer_statuses(snapshot, &quota, now);
    }

    async fn evaluate_one(
        &self,
        snapshot: &Snapshot,
        question: &Question,
        new: &NewBinding,
        now: UnixTime,
    ) -> (Key, Arc<ConstraintPolicyBinding>) {
        let key = new.key();
        let mut binding = match self.bindings.get(&key) {
            Some(known) => (**known).clone(),
            None => {
                let mut binding = api::object(new);
                binding.metadata.creation_timestamp = Some(to_api_time(now));
                binding
            }
        };
        let spec = BindingSpec::from(&binding);
        let calls = (&self.providers, &self.metrics);
        let evaluation = evaluate(calls, snapshot, &spec, question).await;
        let before = binding.status.take().unwrap_or_default();
        let state = compliance_state(&before).next(evaluation.compliance, new.offer.grace, now);
        binding.status = Some(next_status(&before, evaluation, &state, now));
        (key, Arc::new(binding))
    }

    fn offer_statuses(
        &self,
        snapshot: &Snapshot,
        quota: &BindingQuota,
        now: UnixTime,
    ) -> BTreeMap<Key, ConstraintPolicyOfferStatus> {
        let mut compliances: BTreeMap<Key, (usize, usize)> = BTreeMap::new();
        for (of_binding, binding) in &self.bindings {
            let of_offer = key(namespace_of(of_binding), &binding.spec.offer);
            let (existing, compliant) = compliances.entry(of_offer).or_default();
            let status = binding.status.as_ref();
            let complies = status.is_some_and(|s| s.compliance == Compliance::Compliant);
            *existing += 1;
            *compliant += usize::from(complies);
        }
        let statuses = snapshot.offers().map(|entry| {
            let of_offer = key_of(&entry.offer);
            let (existing, compliant) = compliances.get(&of_offer).copied().unwrap_or_default();
            let summary = BindingSummary {
                grant: quota.grant(&of_offer),
                existing,
                stand_ins: 0,
                compliant,
                write_error: None,
            };
            let (kinds, limits) = (KindStates::default(), BindingLimits::default());
            let condition = offer_status::condition(entry, &summary, snapshot, &kinds, &limits);
            let before = self.offers.get(&of_offer).cloned().unwrap_or_default();
            let (name, generation) = (&entry.offer.name, entry.offer.generation);
            let status = offer_status::status(name, generation, &summary, condition, &before, now);
            (of_offer, status)
        });
        statuses.collect()
    }
}

#[cfg(test)]
mod tests {
    use tautline_core::{
        Index,
        index::Object,
        model::{Offer, Pod, Policy, Rule, Target, TargetKind},
        planning::code,
        remote::{RemotePods, RemoteState, RemoteTarget, Scope},
        selector::Selector,
    };

    use super::*;

    fn index() -> Index {
        let mut index = Index::default();
        index.apply(Object::Policy(Policy {
            namespace: "shop".into(),
            name: "near".into(),
            rules: vec![Rule {
                name: "latency".into(),
                ..Rule::default()
            }],
        }));
        index.apply(Object::Offer(Offer {
            namespace: "shop".into(),
            name: "web".into(),
            policies: vec!["near".into()],
            targets: vec![Target {
                name: "source".into(),
                kind: TargetKind::Pod,
                api_version: String::new(),
                selector: Selector::default(),
            }],
            ..Offer::default()
        }));
        for name in ["web-0", "web-1"] {
            index.apply(Object::Pod(Pod {
                namespace: "shop".into(),
                name: name.into(),
                ..Pod::default()
            }));
        }
        index
    }

    #[tokio::test]
    async fn preview_has_the_bindings_of_offers_and_keeps_their_times() {
        let mut preview = Preview::new(ClientConfig::default()).unwrap();
        let mut index = index();
        preview.evaluate(&index.snapshot()).await;
        let first = preview.bindings();
        assert_eq!(first.len(), 2);
        let status = first[0].status.as_ref().unwrap();
        assert_eq!(status.compliance, Compliance::Error);
        assert!(
            status.first_reason.starts_with("NoProvider: "),
            "{status:?}"
        );
        let of_offer = preview.offer_status("shop", "web").unwrap();
        assert_eq!(
            (of_offer.binding_count, of_offer.compliant_binding_count),
            (2, 0)
        );

        index.delete(tautline_core::index::Kind::Pod, "shop/web-1");
        preview.evaluate(&index.snapshot()).await;
        assert_eq!(
            preview.bindings(),
            first[..1],
            "nothing about it has changed"
        );
        assert_eq!(
            preview.offer_status("shop", "web").unwrap().binding_count,
            1
        );
    }

    #[tokio::test]
    async fn preview_knows_the_pods_of_another_cluster_only_if_the_snapshot_has_them() {
        let mut preview = Preview::new(ClientConfig::default()).unwrap();
        let mut index = index();
        let entry = index.snapshot().offer("shop", "web").unwrap().clone();
        index.apply(Object::Offer(Offer {
            remote_targets: vec![RemoteTarget {
                name: "db".into(),
                cluster: "east".into(),
                selector: Selector::default(),
            }],
            ..Offer::clone(&entry.offer)
        }));
        preview.evaluate(&index.snapshot()).await;
        assert!(preview.bindings().is_empty());
        let ready = |preview: &Preview| {
            let status = preview.offer_status("shop", "web").unwrap();
            (
                status.conditions[0].reason.clone(),
                status.conditions[0].message.clone(),
            )
        };
        assert_eq!(ready(&preview).0, code::CLUSTER_UNAVAILABLE);
        index.apply(Object::RemotePods(RemotePods {
            scope: Scope {
                cluster: "east".into(),
                namespace: "shop".into(),
            },
            state: RemoteState::Current,
            pods: BTreeMap::new(),
        }));
        preview.evaluate(&index.snapshot()).await;
        assert_eq!(ready(&preview).1, "target db selects nothing");
    }
}
