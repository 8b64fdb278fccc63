//! A custom resource whose spec is not parsed, so that policies can be checked for unknown fields.

use std::{borrow::Cow, marker::PhantomData};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Clone, Debug, Deserialize)]
#[serde(bound = "")]
pub(crate) struct RawObject<K> {
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: Value,
    #[serde(skip)]
    kind: PhantomData<fn() -> K>,
}

impl<K: Resource<DynamicType = ()>> RawObject<K> {
    pub(crate) fn manifest(&self) -> Value {
        json!({
            "apiVersion": K::api_version(&()), "kind": K::kind(&()),
            "metadata": {"name": self.metadata.name}, "spec": self.spec,
        })
    }
}

impl<K: Resource<DynamicType = ()>> Resource for RawObject<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }
    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }
    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }
    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
