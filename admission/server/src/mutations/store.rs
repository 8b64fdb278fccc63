//! Stores the active policies. The last valid version of a policy remains active while a newer one
//! is invalid.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use kube::Resource;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tautline_api::{MutationPolicy, MutationPolicyBinding};
use tautline_mutating_policy::{
    CompiledPolicy, LoadedObject, Policies, Problem, check,
    model::{Binding, FailurePolicy, ParamKind, Rule, ScopeType},
};
use tautline_runtime::events::{EventNote, Events};
use tokio::sync::watch;

use super::{metrics::Counters, raw::RawObject};

#[derive(Clone, Default)]
pub(crate) struct ActivePolicies {
    pub policies: Policies,
    pub params: HashSet<ParamKind>,
    pub rules: Vec<Value>,
    pub fail: bool,
    pub complete: bool,
}

struct Entry<T> {
    uid: String,
    version: String,
    valid: Option<Arc<T>>,
    usable: bool,
}

/// The objects of a kind by name; `None` until they are listed.
type Known<T> = Option<BTreeMap<String, Entry<T>>>;

#[derive(Default)]
struct Objects {
    policies: Known<CompiledPolicy>,
    bindings: Known<Binding>,
}

pub(crate) struct PolicyStore {
    objects: Mutex<Objects>,
    active: watch::Sender<Arc<ActivePolicies>>,
    events: Arc<Events>,
    counters: Counters,
}

impl PolicyStore {
    pub(crate) fn new(events: Arc<Events>, counters: Counters) -> Self {
        Self {
            objects: Mutex::default(),
            active: watch::Sender::default(),
            events,
            counters,
        }
    }

    pub(crate) fn active(&self) -> Arc<ActivePolicies> {
        self.active.borrow().clone()
    }

    pub(crate) fn changes(&self) -> watch::Receiver<Arc<ActivePolicies>> {
        self.active.subscribe()
    }

    pub(crate) fn update_policies(&self, all: &[Arc<RawObject<MutationPolicy>>]) {
        let mut objects = self.objects.lock();
        self.load(&mut objects.policies, all, |loaded| match loaded {
            LoadedObject::Policy(policy) => Some(policy),
            LoadedObject::Binding(_) => None,
        });
        self.publish(&objects);
    }

    pub(crate) fn update_bindings(&self, all: &[Arc<RawObject<MutationPolicyBinding>>]) {
        let mut objects = self.objects.lock();
        self.load(&mut objects.bindings, all, |loaded| match loaded {
            LoadedObject::Binding(binding) => Some(binding),
            LoadedObject::Policy(_) => None,
        });
        self.publish(&objects);
    }

    fn load<K: Resource<DynamicType = ()>, T>(
        &self,
        known: &mut Known<T>,
        all: &[Arc<RawObject<K>>],
        pick: impl Fn(LoadedObject) -> Option<Arc<T>>,
    ) {
        let mut before = known.take().unwrap_or_default();
        let load = |object: &Arc<RawObject<K>>| {
            let meta = &object.metadata;
            let [name, uid, version] = [&meta.name, &meta.uid, &meta.resource_version]
                .map(|text| text.clone().unwrap_or_default());
            let entry = match before.remove(&name).filter(|e| e.uid == uid) {
                Some(same) if same.version == version => same,
                before => {
                    let old = before.and_then(|e| e.valid);
                    let (valid, usable) = match check(&object.manifest()) {
                        Ok((loaded, _)) => (pick(loaded), true),
                        Err(problems) => {
                            self.report_unusable::<K>(object, &problems, old.is_some());
                            (old, false)
                        }
                    };
                    Entry {
                        uid,
                        version,
                        valid,
                        usable,
                    }
                }
            };
            (name, entry)
        };
        *known = Some(all.iter().map(load).collect());
    }

    fn report_unusable<K: Resource<DynamicType = ()>>(
        &self,
        object: &RawObject<K>,
        problems: &[Problem],
        has_valid_version: bool,
    ) {
        let kind = K::kind(&());
        let stays = if has_valid_version {
            "the last valid version stays active"
        } else {
            "it is not active"
        };
        let text = format!("{}; {stays}", lines(problems).join("; "));
        tracing::warn!(%kind, name = object.metadata.name, problem = %text, "invalid");
        self.events.publish(load_warning(object, "Unusable", text));
    }

    fn publish(&self, objects: &Objects) {
        let (policies, unusable_policies) = loaded(&objects.policies);
        let (bindings, unusable_bindings) = loaded(&objects.bindings);
        let bound = policies
            .iter()
            .filter(|p| bindings.iter().any(|b| b.policy == p.policy.name));
        let mut active = ActivePolicies {
            complete: objects.policies.is_some() && objects.bindings.is_some(),
            ..ActivePolicies::default()
        };
        let mut rules = BTreeMap::new();
        for policy in bound.map(|p| &p.policy) {
            active.params.extend(policy.param_kind.clone());
            active.fail |= policy.failure == FailurePolicy::Fail;
            for rule in policy.constraints.rules.iter().map(webhook_rule) {
                rules.insert(rule.to_string(), rule);
            }
        }
        active.rules = rules.into_values().collect();
        active.policies = Policies::new(policies, bindings);
        let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let count = number(active.policies.len());
        self.counters.active.set(count);
        let unusable = unusable_policies + unusable_bindings;
        self.counters.unusable.set(number(unusable));
        self.active.send_replace(Arc::new(active));
    }
}

/// Returns the valid versions of objects, and the number of objects whose current version is
/// invalid.
fn loaded<T>(known: &Known<T>) -> (Vec<Arc<T>>, usize) {
    let entries = || known.iter().flat_map(BTreeMap::values);
    let valid = entries().filter_map(|e| e.valid.clone()).collect();
    (valid, entries().filter(|e| !e.usable).count())
}

/// Returns a warning about an object that was loaded.
pub(crate) fn load_warning<K>(object: &K, reason: &str, text: String) -> EventNote
where
    K: Resource<DynamicType = ()>,
{
    EventNote {
        regarding: object.object_ref(&()),
        secondary: None,
        warning: true,
        reason: reason.to_owned(),
        action: "Load",
        text,
    }
}

pub(crate) fn lines(problems: &[Problem]) -> Vec<String> {
    let line = |p: &Problem| format!("{}: {}", p.field, p.message);
    problems.iter().map(line).collect()
}

/// Returns a policy's rule in the form of a webhook's rule. `*` becomes the operations of policies,
/// which do not include DELETE.
fn webhook_rule(rule: &Rule) -> Value {
    let known = ["CREATE", "UPDATE", "CONNECT"].map(str::to_owned);
    let operations = if rule.operations.iter().any(|o| o == "*") {
        &known[..]
    } else {
        &rule.operations
    };
    let scope = match rule.scope {
        ScopeType::All => "*",
        ScopeType::Cluster => "Cluster",
        ScopeType::Namespaced => "Namespaced",
    };
    json!({
        "apiGroups": rule.groups, "apiVersions": rule.versions, "operations": operations,
        "resources": rule.resources, "scope": scope,
    })
}

#[cfg(test)]
mod tests {

    use super::*;

    fn raw<K>(name: &str, version: u32, spec: Value) -> Arc<RawObject<K>>
    where
        K: Resource<DynamicType = ()>,
    {
        let meta = json!({"name": name, "uid": name, "resourceVersion": version.to_string()});
        let object = json!({"metadata": meta, "spec": spec});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn policy(version: u32, expression: &str) -> Arc<RawObject<MutationPolicy>> {
        let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]});
        raw(
            "p",
            version,
            json!({
                "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
                "matchConstraints": {"resourceRules": [rule]},
                "failurePolicy": "Ignore", "reinvocationPolicy": "Never",
                "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
            }),
        )
    }

    #[test]
    fn last_valid_version_stays_active() {
        let store = PolicyStore::new(Events::new().0, Counters::default());
        let len = || store.active().policies.len();
        let add = "[JSONPatch{op: \"add\", path: \"/metadata/labels\", value: {\"a\": \"b\"}}]";
        store.update_policies(&[policy(1, add)]);
        assert_eq!(len(), 0);
        assert!(store.active().rules.is_empty() && !store.active().complete);
        store.update_bindings(&[raw("b", 1, json!({"policyName": "p"}))]);
        assert_eq!(len(), 1);
        let now = store.active();
        assert_eq!(
            now.rules[0]["operations"],
            json!(["CREATE", "UPDATE", "CONNECT"])
        );
        assert!(!now.fail && now.params.len() == 1 && now.complete);
        store.update_policies(&[policy(2, "nothing.of(")]);
        assert_eq!((len(), store.counters.unusable.get()), (1, 1));
        store.update_policies(&[]);
        assert_eq!((len(), store.counters.unusable.get()), (0, 0));
        store.update_policies(&[policy(3, "nothing.of(")]);
        assert_eq!((len(), store.counters.unusable.get()), (0, 1));
    }
}
