//! Stores the current slice policy, which is parsed at each change. The last valid version remains
//! active.

use std::sync::Arc;

use arc_swap::ArcSwap;
use k8s_openapi::api::core::v1::ConfigMap;
use prometheus_client::metrics::gauge::Gauge;
use tautline_gpu_sharing::Policy;
use tautline_runtime::events::Events;

use crate::mutations::load_warning;

pub(crate) const MAP: &str = "cast-slice-policy";
const KEY: &str = "policy.json";

#[derive(Clone, Debug, Default)]
pub(crate) struct LoadedPolicy {
    /// The active policy; `None` if there is no ConfigMap, or if no version of it was valid.
    pub policy: Option<Arc<Policy>>,
    /// The reason why the current version of the ConfigMap cannot be used.
    pub fault: Option<String>,
}

tautline_runtime::metrics! {
    pub(crate) struct Gauges {
        unusable: Gauge => "slice_policy_unusable",
            "1: the slice policy is invalid; the last valid one stays active";
        bad_rules: Gauge => "slice_policy_bad_rules",
            "Invalid rules of the active slice policy: their pods are refused";
    }
}

#[derive(Debug)]
pub(crate) struct PolicyStore {
    current: ArcSwap<LoadedPolicy>,
    events: Arc<Events>,
    gauges: Gauges,
}

impl PolicyStore {
    pub(crate) fn new(events: Arc<Events>, gauges: Gauges) -> Self {
        Self {
            current: ArcSwap::default(),
            events,
            gauges,
        }
    }

    pub(crate) fn current(&self) -> Arc<LoadedPolicy> {
        self.current.load_full()
    }

    pub(crate) fn update(&self, map: Option<ConfigMap>) {
        let text = map.as_ref().and_then(|m| m.data.as_ref()?.get(KEY));
        let (Some(map), Some(text)) = (&map, text) else {
            if self.current().policy.is_some() {
                tracing::info!("the slice policy was deleted; only annotations count");
            }
            self.set(LoadedPolicy::default());
            return;
        };
        match Policy::parse(text) {
            Ok(policy) => {
                tracing::info!(rules = policy.rules(), "slice policy loaded");
                for bad in policy.bad_rules() {
                    let text = format!("{KEY}: {bad}; pods whose first match it is are refused");
                    self.events.publish(load_warning(map, "BadRule", text));
                }
                for warning in policy.warnings() {
                    self.events
                        .publish(load_warning(map, "Doubtful", format!("{KEY}: {warning}")));
                }
                self.set(LoadedPolicy {
                    policy: Some(Arc::new(policy)),
                    fault: None,
                });
            }
            Err(error) => {
                let active = self.current().policy.clone();
                let stays = match active {
                    Some(_) => "the last valid policy stays active",
                    None => "only annotations count",
                };
                let fault = format!("{KEY}: {error}");
                tracing::warn!(%error, "the slice policy cannot be used; {stays}");
                self.events.publish(load_warning(
                    map,
                    "PolicyUnusable",
                    format!("{fault}; {stays}"),
                ));
                self.set(LoadedPolicy {
                    policy: active,
                    fault: Some(fault),
                });
            }
        }
    }

    fn set(&self, loaded: LoadedPolicy) {
        let bad = loaded.policy.as_ref().map_or(0, |p| p.bad_rules().len());
        self.gauges.unusable.set(loaded.fault.is_some().into());
        self.gauges
            .bad_rules
            .set(i64::try_from(bad).unwrap_or(i64::MAX));
        self.current.store(Arc::new(loaded));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(text: &str) -> Option<ConfigMap> {
        serde_json::from_value(json!({"data": {KEY: text}})).ok()
    }

    #[test]
    fn last_valid_policy_stays_until_the_config_map_is_deleted() {
        let gauges = Gauges::default();
        let store = PolicyStore::new(Events::new().0, gauges.clone());
        let counted = || (gauges.unusable.get(), gauges.bad_rules.get());
        let rules = || store.current().policy.as_ref().map(|p| p.rules());
        store.update(map("{\"rules\": 1}"));
        assert_eq!(rules(), None);
        assert!(store.current().fault.is_some());
        assert_eq!(counted(), (1, 0));
        store.update(map("{\"rules\": [{\"sliceRatio\": 99}]}"));
        assert_eq!((rules(), counted()), (Some(1), (0, 1)));
        store.update(map("{"));
        assert_eq!((rules(), counted()), (Some(1), (1, 1)));
        assert!(store.current().fault.is_some());
        store.update(None);
        assert_eq!((rules(), counted()), (None, (0, 0)));
        assert!(store.current().fault.is_none());
    }
}
