//! Checks that the author of a mutation policy may read its parameters, because the author can read
//! them through the objects that the policy changes. The API server requires the same for its own
//! policies (k8s.io/kubernetes 1.36.3, pkg/registry/admissionregistration, mutatingadmissionpolicy
//! and mutatingadmissionpolicybinding, authz.go).

use kube::{
    Api, Client,
    core::{GroupVersion, GroupVersionKind},
    discovery::pinned_kind,
};
use serde_json::{Value, json};
use tautline_api::MutationPolicy;
use tautline_mutating_policy::Request;
use tautline_runtime::api_call::within;

use crate::{
    access::{self, CALL_DEADLINE},
    mutations::RawObject,
};

/// The group whose members are not checked.
const MASTERS: &str = "system:masters";

#[derive(Debug, PartialEq)]
struct RequiredAccess {
    field: &'static str,
    verb: &'static str,
    group: String,
    version: String,
    resource: String,
    /// The namespace. Both an empty text and `*` stand for all namespaces; for `*`, access to some
    /// of them is not sufficient.
    namespace: String,
    name: String,
    reason: Option<String>,
}

/// Returns the access that an author lacks; `None` if the author may read the parameters.
pub(super) async fn missing_access(client: &Client, request: &Request) -> Option<String> {
    let user = &request.user_info;
    let groups = user["groups"].as_array();
    if groups.is_some_and(|all| all.iter().any(|group| group == MASTERS)) {
        return None;
    }
    let (object, old) = (&request.object["spec"], &request.old_object["spec"]);
    let right = match request.kind.kind.as_str() {
        "MutationPolicy" if changes(object, old, &["paramKind"]) => {
            policy_access(client, object).await
        }
        "MutationPolicyBinding" if changes(object, old, &["paramRef", "policyName"]) => {
            binding_access(client, object).await
        }
        _ => return None,
    };
    let mut spec = access::requester(user);
    spec["resourceAttributes"] = json!({
        "verb": right.verb, "group": right.group, "version": right.version,
        "resource": right.resource, "namespace": right.namespace, "name": right.name,
    });
    let name = user["username"].as_str().unwrap_or_default();
    match access::subject_access_review(client, spec).await {
        Ok(status) if status.allowed => None,
        Ok(_) => Some(format!(
            "{}: user {name:?} {}",
            right.field,
            right.message()
        )),
        Err(error) => Some(format!(
            "{}: cannot check whether user {name:?} may {} {}: {error}; allow tautline-admission to \
             create subjectaccessreviews",
            right.field,
            right.verb,
            right.resource,
            error = error.message()
        )),
    }
}

fn changes(object: &Value, old: &Value, fields: &[&str]) -> bool {
    !object[fields[0]].is_null() && fields.iter().any(|f| object[f] != old[f])
}

async fn policy_access(client: &Client, spec: &Value) -> RequiredAccess {
    let right = RequiredAccess {
        field: "spec.paramKind",
        verb: "get",
        ..RequiredAccess::all("*")
    };
    right.for_kind(client, &spec["paramKind"]).await
}

async fn binding_access(client: &Client, spec: &Value) -> RequiredAccess {
    let reference = &spec["paramRef"];
    let text = |field: &str| reference[field].as_str().unwrap_or_default().to_owned();
    let name = text("name");
    let right = RequiredAccess {
        field: "spec.paramRef",
        verb: if name.is_empty() { "list" } else { "get" },
        namespace: text("namespace"),
        name,
        ..RequiredAccess::all("")
    };
    let policy = spec["policyName"].as_str().unwrap_or_default();
    let api: Api<RawObject<MutationPolicy>> = Api::all(client.clone());
    match within(CALL_DEADLINE, api.get(policy)).await {
        Ok(found) => match &found.spec["paramKind"] {
            Value::Null => right.widened(format!("MutationPolicy {policy} has no paramKind")),
            kind => right.for_kind(client, kind).await,
        },
        Err(error) => {
            let error = error.message();
            right.widened(format!("MutationPolicy {policy} cannot be read: {error}"))
        }
    }
}

impl RequiredAccess {
    fn all(which: &str) -> Self {
        let any = || "*".to_owned();
        Self {
            field: "",
            verb: "",
            group: any(),
            version: any(),
            resource: any(),
            namespace: which.to_owned(),
            name: which.to_owned(),
            reason: None,
        }
    }

    fn widened(mut self, why: String) -> Self {
        self.reason = Some(why);
        self
    }

    /// Returns the access to a kind, or to the whole group version if the kind is unknown.
    async fn for_kind(self, client: &Client, kind: &Value) -> Self {
        let text = |field: &str| kind[field].as_str().unwrap_or_default();
        let (of, kind) = (text("apiVersion"), text("kind"));
        let Ok(GroupVersion { group, version }) = of.parse() else {
            return self.widened(format!("{of:?} is not an apiVersion"));
        };
        let gvk = GroupVersionKind::gvk(&group, &version, kind);
        let found = within(CALL_DEADLINE, pinned_kind(client, &gvk)).await;
        let right = Self {
            group,
            version,
            ..self
        };
        match found {
            Ok((resource, _)) => Self {
                resource: resource.plural,
                ..right
            },
            Err(_) => right.widened(format!("{of} {kind} is not known to the API server")),
        }
    }

    fn message(&self) -> String {
        let any = |text: &str| text.is_empty() || text == "*";
        let resource = match self.group.as_str() {
            "" | "*" => self.resource.clone(),
            group => format!("{}.{group}", self.resource),
        };
        let objects = if any(&self.name) {
            format!("all {resource}")
        } else {
            format!("{resource} {:?}", self.name)
        };
        let namespace = if any(&self.namespace) {
            "in all namespaces".to_owned()
        } else {
            format!("in namespace {}", self.namespace)
        };
        let why = self.reason.as_ref();
        let why = why.map_or_else(String::new, |why| format!(" ({why})"));
        format!(
            "must be allowed to {} {objects} {namespace}{why}: the author \
             of a policy can read its parameters",
            self.verb
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unchanged_parameters_need_no_check() {
        let fields = ["paramRef", "policyName"];
        let of =
            |policy: &str, name: &str| json!({"policyName": policy, "paramRef": {"name": name}});
        let bare = json!({"policyName": "p"});
        assert!(changes(&of("p", "a"), &Value::Null, &fields));
        assert!(changes(&of("p", "a"), &bare, &fields));
        assert!(changes(&of("p", "b"), &of("p", "a"), &fields));
        assert!(changes(&of("q", "a"), &of("p", "a"), &fields));
        assert!(!changes(&of("p", "a"), &of("p", "a"), &fields));
        assert!(!changes(&bare, &of("p", "a"), &fields));
    }

    #[test]
    fn message_names_the_access_to_grant() {
        let one = RequiredAccess {
            verb: "get",
            group: "example.com".into(),
            resource: "limits".into(),
            namespace: "shop".into(),
            name: "a".into(),
            ..RequiredAccess::all("")
        };
        let all = RequiredAccess {
            verb: "list",
            group: String::new(),
            ..RequiredAccess::all("").widened("nothing is known".into())
        };
        let why = ": the author of a policy can read its parameters";
        assert_eq!(
            one.message(),
            format!("must be allowed to get limits.example.com \"a\" in namespace shop{why}")
        );
        assert_eq!(
            all.message(),
            format!("must be allowed to list all * in all namespaces (nothing is known){why}")
        );
    }
}
