//! Kubernetes events on offers whose rules do not count because no provider
//! answers, and the like: once for each offer, rule and code in a while.

use std::{sync::Arc, time::Duration};

use tautline_core::Snapshot;
use tautline_provider_client::{PlanningRound, ProviderClient};
use tautline_runtime::events::{self, EventNote, reference_to_own};

use crate::{plans::Planned, underlay::code::NEEDS_BIND};

/// The same is not said again for so long.
const QUIET: Duration = Duration::from_secs(300);

/// What the extender says of offers.
#[derive(Debug)]
pub(crate) struct Events(pub(crate) Arc<events::Events>);

impl Events {
    /// Notes what an operator should know of a round: rules that were ignored,
    /// and providers of which only age or name decided.
    pub(crate) fn round(
        &self,
        snapshot: &Snapshot,
        discovery: &ProviderClient,
        round: &PlanningRound,
    ) {
        let namespace = round.subject.namespace.as_str();
        for (record, code) in round.ignored() {
            self.say(
                snapshot,
                namespace,
                &record.offer,
                &record.rule.name,
                code,
                || {
                    let why = record.error.as_deref().unwrap_or(code);
                    format!(
                        "rule {} does not count while pods are placed: {why}",
                        record.rule.name
                    )
                },
            );
        }
        for record in &round.rules {
            let Some(chosen) = &record.provider else {
                continue;
            };
            let rule = &record.rule.name;
            if let Some(rival) = discovery.ambiguous_provider(snapshot, rule, namespace) {
                self.say(
                    snapshot,
                    namespace,
                    &record.offer,
                    rule,
                    "ProviderAmbiguous",
                    || {
                        format!(
                            "rule {rule} is answered by {chosen}; {}/{} ties with it: unlabel one, \
                         or set the annotation constraint.ciena.com/priority",
                            rival.namespace, rival.name
                        )
                    },
                );
            }
        }
    }

    /// Notes that an underlay could not be asked because nobody would allocate.
    pub(crate) fn underlay(&self, snapshot: &Snapshot, plan: &Planned) {
        let Some(asked) = plan.underlay.as_ref().filter(|u| u.code == NEEDS_BIND) else {
            return;
        };
        let namespace = plan.subject.namespace.as_str();
        for record in &plan.rules {
            self.say(snapshot, namespace, &record.offer, "", NEEDS_BIND, || {
                format!(
                    "no node keeps to the rules, and the underlay {} is not asked: what it \
                     offers is allocated at bind; start the extender with --bind",
                    asked.service
                )
            });
        }
    }

    fn say(
        &self,
        snapshot: &Snapshot,
        namespace: &str,
        offer: &str,
        rule: &str,
        code: &'static str,
        text: impl FnOnce() -> String,
    ) {
        let key = format!("{namespace}/{offer}/{rule}/{code}");
        self.0.publish_once(key, QUIET, || {
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
