//! Publishes Kubernetes events on offers, such as a rule that is ignored because no provider
//! answers. Each combination of offer, rule and code is published once in an interval.

use std::{sync::Arc, time::Duration};

use tautline_core::{Snapshot, providers::ambiguous_provider};
use tautline_provider_client::{PlanningRound, ProviderClient};
use tautline_runtime::events::{self, EventNote, reference_to_own};

use crate::{plans::PodPlan, underlay::code::NEEDS_BIND};

const EVENT_INTERVAL: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub(crate) struct OfferEvents(pub(crate) Arc<events::Events>);

impl OfferEvents {
    /// Publishes the ignored rules of a round, and providers chosen only by age or name.
    pub fn publish_rules(
        &self,
        snapshot: &Snapshot,
        providers: &ProviderClient,
        round: &PlanningRound,
    ) {
        let namespace = round.subject.namespace.as_str();
        for (record, code) in round.ignored() {
            self.publish(
                snapshot,
                namespace,
                &record.offer,
                &record.rule.name,
                code,
                || {
                    let error = record.error.as_deref().unwrap_or(code);
                    format!(
                        "rule {} does not count while pods are placed: {error}",
                        record.rule.name
                    )
                },
            );
        }
        let trusted = &providers.config().trusted;
        for record in &round.rules {
            let Some(chosen) = &record.provider else {
                continue;
            };
            let rule = &record.rule.name;
            if let Some(other) = ambiguous_provider(snapshot, rule, namespace, trusted) {
                self.publish(
                    snapshot,
                    namespace,
                    &record.offer,
                    rule,
                    "ProviderAmbiguous",
                    || {
                        format!(
                            "rule {rule} is answered by {chosen}; {}/{} ties with it: unlabel one, \
                         or set the annotation constraint.ciena.com/priority",
                            other.namespace, other.name
                        )
                    },
                );
            }
        }
    }

    /// Publishes that Discover was not called because the extender does not bind.
    pub fn publish_underlay(&self, snapshot: &Snapshot, plan: &PodPlan) {
        let Some(result) = plan.underlay.as_ref().filter(|u| u.code == NEEDS_BIND) else {
            return;
        };
        let namespace = plan.subject.namespace.as_str();
        for record in &plan.rules {
            self.publish(snapshot, namespace, &record.offer, "", NEEDS_BIND, || {
                format!(
                    "no node meets the rules, and the underlay {} is not called: its offers are \
                     allocated at bind; start the extender with --bind",
                    result.service
                )
            });
        }
    }

    fn publish(
        &self,
        snapshot: &Snapshot,
        namespace: &str,
        offer: &str,
        rule: &str,
        code: &'static str,
        text: impl FnOnce() -> String,
    ) {
        let key = format!("{namespace}/{offer}/{rule}/{code}");
        self.0.publish_once(key, EVENT_INTERVAL, || {
            let entry = snapshot.offer(namespace, offer)?;
            Some(EventNote {
                regarding: reference_to_own(
                    "ConstraintPolicyOffer",
                    namespace,
                    offer,
                    &entry.offer.uid,
                ),
                secondary: None,
                warning: true,
                reason: code.to_owned(),
                action: "Schedule",
                text: text(),
            })
        });
    }
}
