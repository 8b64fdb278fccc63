use std::sync::Arc;

use serde_json::Value;

/// The objects of a cluster that are given, from which the admission plugins take classes, accounts
/// and ranges.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects(pub Vec<Arc<Value>>);

impl Objects {
    pub(crate) fn of_kind(
        &self,
        api_version: &str,
        kind: &str,
    ) -> impl Iterator<Item = &Arc<Value>> {
        let is = move |o: &&Arc<Value>| o["apiVersion"] == api_version && o["kind"] == kind;
        self.0.iter().filter(is)
    }

    /// Returns the object of this name.
    pub(crate) fn object(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Option<Value> {
        let is = |o: &&Arc<Value>| o["metadata"]["name"] == name && Self::is_in(o, namespace);
        let found = self.of_kind(api_version, kind).find(is);
        found.map(|object| (**object).clone())
    }

    /// Returns whether an object is in the namespace. An object without a namespace counts as in
    /// every namespace.
    pub(crate) fn is_in(object: &Value, namespace: Option<&str>) -> bool {
        let own = object["metadata"]["namespace"].as_str();
        own.is_none() || own == namespace
    }
}
