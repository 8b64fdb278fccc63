//! A cache of all objects of a kind as JSON, updated by a watch.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::StreamExt;
use kube::{
    Api,
    api::{DynamicObject, TypeMeta},
};
use kube_runtime::watcher::{self, watcher};
use parking_lot::RwLock;
use serde_json::Value;
use tautline_api::convert;
use tautline_core::selector::Selector;
use tautline_runtime::{
    error_text::error_text,
    watch_changes::{Change, Changes, refusal},
};

type Key = (String, String);

#[derive(Debug, Default)]
pub(crate) struct ObjectCache {
    all: RwLock<BTreeMap<Key, Arc<Value>>>,
    pub(super) listed: AtomicBool,
}

impl ObjectCache {
    /// Returns whether the list is complete, so that an object that is not cached does not exist.
    pub(crate) fn listed(&self) -> bool {
        self.listed.load(Ordering::Acquire)
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let key = (namespace.to_owned(), name.to_owned());
        self.all.read().get(&key).cloned()
    }

    pub(crate) fn selected(&self, namespace: &str, selector: &Selector) -> Vec<Arc<Value>> {
        let all = self.all.read();
        let from = (namespace.to_owned(), String::new());
        let here = all.range(from..).take_while(|((ns, _), _)| ns == namespace);
        here.filter(|(_, object)| {
            let labels = object["metadata"]["labels"].as_object();
            let labels = labels.into_iter().flatten();
            let texts = labels.filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned())));
            selector.matches(&convert::labels(Some(&texts.collect())))
        })
        .map(|(_, object)| Arc::clone(object))
        .collect()
    }

    /// Watches until the API server refuses the watch, and returns the reason.
    pub(crate) async fn watch(&self, api: Api<DynamicObject>, types: &TypeMeta) -> String {
        let mut changes = Changes::default();
        let mut events = std::pin::pin!(watcher(api, watcher::Config::default()));
        while let Some(event) = events.next().await {
            match event.map(|event| changes.next(event, |o| read(o, types))) {
                Ok(None) => {}
                Ok(Some(Change::Replaced(objects))) => {
                    *self.all.write() = objects.into_iter().flatten().collect();
                    self.listed.store(true, Ordering::Release);
                }
                Ok(Some(Change::Applied(object))) => self.all.write().extend(object),
                Ok(Some(Change::Deleted(object))) => {
                    if let Some((key, _)) = object {
                        self.all.write().remove(&key);
                    }
                }
                Err(error) => {
                    if let Some(message) = refusal(&error) {
                        self.listed.store(false, Ordering::Release);
                        return message.to_owned();
                    }
                    let error = error_text(&error);
                    tracing::warn!(kind = %types.kind, error, "watch restarts");
                    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                }
            }
        }
        "the watch has ended".to_owned()
    }
}

/// Returns the object with its type, which items of a list lack, and without managedFields.
fn read(mut object: DynamicObject, types: &TypeMeta) -> Option<(Key, Arc<Value>)> {
    object.types = Some(types.clone());
    object.metadata.managed_fields = None;
    let meta = &object.metadata;
    let key = (
        meta.namespace.clone().unwrap_or_default(),
        meta.name.clone()?,
    );
    Some((key, Arc::new(serde_json::to_value(object).ok()?)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_found_by_name_and_by_labels() {
        let types = TypeMeta {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
        };
        let objects = ObjectCache::default();
        for (namespace, name, tier) in [("a", "x", "one"), ("a", "y", "two"), ("b", "x", "one")] {
            let object = json!({"metadata": {"namespace": namespace, "name": name,
                "labels": {"tier": tier}, "managedFields": [{}]}, "data": {"k": "v"}});
            let object = serde_json::from_value(object).unwrap();
            objects.all.write().extend(read(object, &types));
        }
        let found = objects.get("a", "x").unwrap();
        assert_eq!(found["kind"], "ConfigMap");
        assert_eq!(found["data"]["k"], "v");
        assert!(found["metadata"].get("managedFields").is_none());
        let one = Selector {
            match_labels: vec![("tier".into(), "one".into())],
            ..Selector::default()
        };
        assert_eq!(objects.selected("a", &one).len(), 1);
        assert_eq!(objects.selected("a", &Selector::default()).len(), 2);
        assert!(objects.selected("c", &Selector::default()).is_empty());
    }
}
