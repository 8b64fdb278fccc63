//! Matches requests with policies and bindings, as k8s.io/apiserver 0.36.3 does
//! (pkg/admission/plugin/policy/matching and webhook/predicates).

use serde_json::Value;
use tautline_core::selector::{Labels, Selector};

use crate::cluster::ClusterView;
use crate::model::{MatchPolicy, MatchResources, Rule, ScopeType};
use crate::request::{Request, Resource};

/// The reason why a policy or binding does not match: the first of these checks that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Mismatch {
    /// `namespaceSelector` does not select the namespace.
    NamespaceSelector,
    /// `objectSelector` selects neither the object nor the old object.
    ObjectSelector,
    /// A rule of `excludeResourceRules` matches.
    Excluded,
    /// The rules of `resourceRules` do not match.
    ResourceRules,
    /// The binding's `paramRef` matches no parameter, and `parameterNotFoundAction` is Allow.
    NoParams,
}

/// The error if a Namespace whose labels are needed does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("namespaces {0:?} not found")]
pub struct NamespaceNotFound(pub String);

/// The parts of a request that are matched, computed once for all policies.
pub(crate) struct MatchInput<'a> {
    request: &'a Request,
    object: Option<Labels>,
    old: Option<Labels>,
    namespace: Result<Option<Labels>, NamespaceNotFound>,
}

impl<'a> MatchInput<'a> {
    /// Creates the input. `object` is the request's object with the changes so far.
    pub fn new(request: &'a Request, object: &Value, cluster: &dyn ClusterView) -> Self {
        let of = |o: &Value| (!o.is_null()).then(|| labels(o));
        Self {
            request,
            object: of(object),
            old: of(&request.old_object),
            namespace: namespace_labels(request, object, cluster),
        }
    }

    /// Returns the reason why `resources` does not match; `None` if it matches.
    pub fn matches(
        &self,
        resources: &MatchResources,
    ) -> Result<Option<Mismatch>, NamespaceNotFound> {
        // A missing Namespace is an error only if everything else matches.
        let mut missing = None;
        if resources.namespaces != Selector::default() {
            match &self.namespace {
                Ok(Some(labels)) if !resources.namespaces.matches(labels) => {
                    return Ok(Some(Mismatch::NamespaceSelector));
                }
                Ok(_) => {}
                Err(error) => missing = Some(error.clone()),
            }
        }
        if resources.objects != Selector::default() {
            let selected = |l: &Option<Labels>| {
                let labels = l.as_ref();
                labels.is_some_and(|l| resources.objects.matches(l))
            };
            if !selected(&self.object) && !selected(&self.old) {
                return Ok(Some(Mismatch::ObjectSelector));
            }
        }
        if self.any(&resources.exclude, resources.policy) {
            return Ok(Some(Mismatch::Excluded));
        }
        if !resources.rules.is_empty() && !self.any(&resources.rules, resources.policy) {
            return Ok(Some(Mismatch::ResourceRules));
        }
        missing.map_or(Ok(None), Err)
    }

    fn any(&self, rules: &[Rule], policy: MatchPolicy) -> bool {
        let given = &self.request.resource;
        let requested = self.request.request_resource.as_ref().unwrap_or(given);
        let exact = |resource| rules.iter().any(|r| self.rule(r, resource));
        exact(requested) || policy == MatchPolicy::Equivalent && requested != given && exact(given)
    }

    fn rule(&self, rule: &Rule, resource: &Resource) -> bool {
        let request = self.request;
        let is = |items: &[String], text: &str| items.iter().any(|i| i == "*" || i == text);
        // A Namespace is cluster-scoped although its requests carry its name.
        let cluster_wide = request.namespace.is_empty()
            || resource.group.is_empty()
                && resource.version == "v1"
                && resource.resource == "namespaces";
        let scope = match rule.scope {
            ScopeType::All => true,
            ScopeType::Cluster => cluster_wide,
            ScopeType::Namespaced => !cluster_wide,
        };
        let named = |pattern: &String| {
            let (name, sub) = pattern.split_once('/').unwrap_or((pattern, ""));
            (name == "*" || name == resource.resource)
                && (sub == "*" || sub == request.sub_resource)
        };
        scope
            && is(&rule.operations, &request.operation)
            && is(&rule.groups, &resource.group)
            && is(&rule.versions, &resource.version)
            && rule.resources.iter().any(named)
            && (rule.names.is_empty() || rule.names.contains(&request.name))
    }
}

/// Returns the labels for a namespaceSelector; `None` if the selector does not apply.
fn namespace_labels(
    request: &Request,
    object: &Value,
    cluster: &dyn ClusterView,
) -> Result<Option<Labels>, NamespaceNotFound> {
    let of_namespaces = request.resource.resource == "namespaces";
    if request.namespace.is_empty() && !of_namespaces {
        return Ok(None);
    }
    // The cached Namespace is missing or older than the object of the request.
    let fresh = ["CREATE", "UPDATE"].contains(&request.operation.as_str());
    if of_namespaces && request.sub_resource.is_empty() && fresh {
        return Ok(Some(labels(object)));
    }
    let namespace = cluster.namespace(&request.namespace);
    let namespace = namespace.ok_or_else(|| NamespaceNotFound(request.namespace.clone()))?;
    Ok(Some(labels(&namespace)))
}

pub(crate) fn labels(object: &Value) -> Labels {
    let labels = object
        .pointer("/metadata/labels")
        .and_then(Value::as_object);
    let pairs = labels.into_iter().flatten();
    pairs.filter_map(|(k, v)| Some((k, v.as_str()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StaticCluster;
    use serde_json::json;

    fn resources(rule: Value, more: Value) -> MatchResources {
        let mut constraints = json!({"resourceRules": [rule]});
        for (field, value) in more.as_object().unwrap() {
            constraints[field] = value.clone();
        }
        let manifest = json!({"apiVersion": "tautline.io/v1alpha1", "kind": "MutationPolicy",
            "metadata": {"name": "p"}, "spec": {"matchConstraints": constraints,
                "reinvocationPolicy": "Never",
                "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}]}});
        match crate::model::parse(&manifest).unwrap().document {
            crate::model::Document::Policy(policy) => policy.constraints,
            crate::model::Document::Binding(_) => panic!(),
        }
    }

    fn rule(field: &str, value: Value) -> Value {
        let mut rule = json!({"apiGroups": [""], "apiVersions": ["v1"],
            "operations": ["CREATE"], "resources": ["pods"]});
        rule[field] = value;
        rule
    }

    fn pod() -> Request {
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "namespace": "blue", "labels": {"app": "web"}}});
        Request::create(pod).unwrap()
    }

    fn cluster() -> StaticCluster {
        let blue = json!({"kind": "Namespace", "metadata": {"name": "blue",
            "labels": {"team": "x", "kubernetes.io/metadata.name": "blue"}}});
        StaticCluster::from_iter([blue])
    }

    fn of(request: &Request, resources: &MatchResources) -> Option<Mismatch> {
        let (object, cluster) = (request.object.clone(), cluster());
        let subject = MatchInput::new(request, &object, &cluster);
        subject.matches(resources).unwrap()
    }

    #[test]
    fn rules_match_as_in_the_api_server() {
        let cases = [
            ("resources", json!(["pods"]), true),
            ("resources", json!(["*"]), true),
            ("resources", json!(["*/*"]), true),
            ("resources", json!(["pods/*"]), true),
            ("resources", json!(["pods/status"]), false),
            ("resources", json!(["services"]), false),
            ("apiGroups", json!(["*"]), true),
            ("apiGroups", json!(["apps"]), false),
            ("apiVersions", json!(["v2"]), false),
            ("operations", json!(["UPDATE"]), false),
            ("operations", json!(["*"]), true),
            ("resourceNames", json!(["a", "b"]), true),
            ("resourceNames", json!(["b"]), false),
            ("scope", json!("Namespaced"), true),
            ("scope", json!("Cluster"), false),
        ];
        for (field, value, expected) in cases {
            let shown = format!("{field} {value}");
            let wanted = (!expected).then_some(Mismatch::ResourceRules);
            let rule = rule(field, value);
            assert_eq!(
                of(&pod(), &resources(rule.clone(), json!({}))),
                wanted,
                "{shown}"
            );
            let excluded = expected.then_some(Mismatch::Excluded);
            let any = self::rule("resources", json!(["*/*"]));
            let more = json!({"excludeResourceRules": [rule]});
            assert_eq!(of(&pod(), &resources(any, more)), excluded, "{shown}");
        }
        let mut status = pod();
        status.sub_resource = "status".to_owned();
        let of_status = |items| of(&status, &resources(rule("resources", items), json!({})));
        assert_eq!(of_status(json!(["pods/status"])), None);
        assert_eq!(of_status(json!(["*"])), Some(Mismatch::ResourceRules));
        assert_eq!(of_status(json!(["*/status"])), None);
    }

    #[test]
    fn selectors_use_namespace_object_and_old_object() {
        let any = || rule("scope", json!("*"));
        let by = |more: Value| of(&pod(), &resources(any(), more));
        let labels = |key: &str, value: &str| json!({"matchLabels": {key: value}});
        assert_eq!(by(json!({"namespaceSelector": labels("team", "x")})), None);
        let other = by(json!({"namespaceSelector": labels("team", "y")}));
        assert_eq!(other, Some(Mismatch::NamespaceSelector));
        assert_eq!(by(json!({"objectSelector": labels("app", "web")})), None);
        let web = resources(any(), json!({"objectSelector": labels("app", "db")}));
        assert_eq!(of(&pod(), &web), Some(Mismatch::ObjectSelector));
        let mut update = pod();
        update.old_object = json!({"metadata": {"labels": {"app": "db"}}}).into();
        assert_eq!(of(&update, &web), None);
    }

    #[test]
    fn namespace_is_cluster_scoped_and_matches_by_its_labels() {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "green", "labels": {"team": "y"}}});
        let mut request = Request::create(namespace).unwrap();
        request.namespace = "green".to_owned();
        let rule = |scope| {
            json!({"apiGroups": [""], "apiVersions": ["v1"], "scope": scope,
            "operations": ["CREATE"], "resources": ["namespaces"]})
        };
        let team = |t: &str| json!({"namespaceSelector": {"matchLabels": {"team": t}}});
        assert_eq!(of(&request, &resources(rule("Cluster"), team("y"))), None);
        let other = of(&request, &resources(rule("Cluster"), team("x")));
        assert_eq!(other, Some(Mismatch::NamespaceSelector));
        let scoped = of(&request, &resources(rule("Namespaced"), json!({})));
        assert_eq!(scoped, Some(Mismatch::ResourceRules));
    }

    #[test]
    fn exact_matches_only_the_requested_version() {
        let mut request = pod();
        request.resource = Resource {
            group: "a".into(),
            version: "v2".into(),
            resource: "things".into(),
        };
        request.request_resource = Some(Resource {
            version: "v1".into(),
            ..request.resource.clone()
        });
        let rule = |version| {
            json!({"apiGroups": ["a"], "apiVersions": [version],
            "operations": ["CREATE"], "resources": ["things"]})
        };
        let by = |version, policy| {
            of(
                &request,
                &resources(rule(version), json!({"matchPolicy": policy})),
            )
        };
        assert_eq!(by("v1", "Exact"), None);
        assert_eq!(by("v2", "Exact"), Some(Mismatch::ResourceRules));
        assert_eq!(by("v2", "Equivalent"), None);
        assert_eq!(by("v3", "Equivalent"), Some(Mismatch::ResourceRules));
    }

    #[test]
    fn missing_namespace_is_an_error_only_if_the_rest_matches() {
        struct Empty;
        impl ClusterView for Empty {
            fn namespace(&self, _: &str) -> Option<std::sync::Arc<Value>> {
                None
            }
            fn resource_scope(
                &self,
                _: &crate::model::ParamKind,
            ) -> Option<crate::cluster::ResourceScope> {
                None
            }
            fn params(
                &self,
                _: &crate::model::ParamKind,
                _: crate::cluster::ParamQuery<'_>,
            ) -> Vec<std::sync::Arc<Value>> {
                Vec::new()
            }
        }
        let request = pod();
        let subject = MatchInput::new(&request, &request.object, &Empty);
        let more = || json!({"namespaceSelector": {"matchLabels": {"a": "b"}}});
        let matching = resources(rule("resources", json!(["pods"])), more());
        assert_eq!(
            subject.matches(&matching),
            Err(NamespaceNotFound("blue".into()))
        );
        let other = resources(rule("resources", json!(["services"])), more());
        assert_eq!(subject.matches(&other), Ok(Some(Mismatch::ResourceRules)));
        let none = resources(rule("resources", json!(["pods"])), json!({}));
        assert_eq!(subject.matches(&none), Ok(None));
    }
}
