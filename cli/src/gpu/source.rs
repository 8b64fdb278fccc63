//! Reads nodes and pods from a cluster or from manifests.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::ListParams;
use tautline_api::{ConstraintPolicy, ConstraintPolicyOffer, convert, manifest::Item};
use tautline_core::{Index, Snapshot, index::Object};
use tautline_runtime::manifest_files;

use crate::{
    cluster::ClusterArgs,
    fetch::{self, Kind},
    manifests::ManifestArgs,
};

#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct SourceArgs {
    #[command(flatten)]
    manifests: ManifestArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(crate) struct Source {
    pub(crate) snapshot: Arc<Snapshot>,
    /// The pods of the requested name, as the API has them.
    pub(crate) named: Vec<Pod>,
    /// The namespace of objects that do not name one.
    pub(crate) namespace: String,
}

impl SourceArgs {
    pub(crate) fn is_manifests(&self) -> bool {
        self.manifests.is_given()
    }

    pub(crate) async fn client(&self) -> Result<kube::Client> {
        self.cluster.client().await
    }

    /// Reads everything once; `named` of the result has the pods called `pod`.
    pub(crate) async fn read(&self, pod: Option<&str>) -> Result<Source> {
        match self.manifests.read()? {
            Some(items) => manifests(items, pod),
            None => self.live(pod).await,
        }
    }

    async fn live(&self, pod: Option<&str>) -> Result<Source> {
        let client = self.cluster.client().await?;
        let c = &client;
        // Namespaces matter only for the nodes where a pod could go.
        let namespaces = async {
            match pod {
                Some(_) => fetch::list_core::<Namespace>(c, ListParams::default()).await,
                None => Ok(Vec::new()),
            }
        };
        let (namespaces, nodes, pods) = tokio::try_join!(
            namespaces,
            fetch::list_core::<Node>(c, ListParams::default()),
            fetch::list_core::<Pod>(c, ListParams::default()),
        )?;
        let mut index = Index::default();
        for namespace in &namespaces {
            let labels = convert::namespace_labels(&namespace.metadata);
            index.apply(Object::Namespace(labels));
        }
        for node in &nodes {
            index.apply(Object::Node(convert::node(node)));
        }
        let mut named = Vec::new();
        for api in pods {
            index.apply(Object::Pod(convert::pod(&api)));
            if is_named(&api, pod) {
                named.push(api);
            }
        }
        let (policies, offers) = tokio::join!(
            fetch::list_if_known::<ConstraintPolicy>(c),
            fetch::list_if_known::<ConstraintPolicyOffer>(c),
        );
        constraints(&mut index, policies, |o| {
            let known = convert::policy(o).map(Object::Policy);
            known.map_err(|e| e.to_string())
        });
        constraints(&mut index, offers, |o| {
            let known = convert::offer(o).map(Object::Offer);
            known.map_err(|e| e.to_string())
        });
        Ok(Source {
            snapshot: Arc::new(index.snapshot()),
            named,
            namespace: client.default_namespace().to_owned(),
        })
    }
}

/// Adds policies or offers to the index. They are optional: cards can be shown without them.
fn constraints<K: Kind>(
    index: &mut Index,
    list: Result<Vec<kube::core::DynamicObject>>,
    object: impl Fn(&K) -> Result<Object, String>,
) {
    let list = list.unwrap_or_else(|error| {
        note!("warning: {error:#}; requests of rules are not known");
        Vec::new()
    });
    for raw in &list {
        let read = fetch::parse::<K>(raw).and_then(|o| {
            object(&o).map_err(|e| {
                let name = o.meta().name.clone().unwrap_or_default();
                let namespace = o.meta().namespace.clone().unwrap_or_default();
                anyhow!("{} {namespace}/{name}: {e}", K::kind(&()))
            })
        });
        match read {
            Ok(object) => _ = index.apply(object),
            Err(error) => note!("warning: {error:#}; it is ignored"),
        }
    }
}

fn manifests(items: Vec<Item>, pod: Option<&str>) -> Result<Source> {
    let (mut index, mut named) = (Index::default(), Vec::new());
    manifest_files::implied_namespaces(&items).for_each(|o| _ = index.apply(o));
    for item in &items {
        if let Some(object) = manifest_files::object(item).map_err(anyhow::Error::msg)? {
            index.apply(object);
        }
        if let Item::Pod(api) = item
            && is_named(api, pod)
        {
            named.push((**api).clone());
        }
    }
    Ok(Source {
        snapshot: Arc::new(index.snapshot()),
        named,
        namespace: "default".into(),
    })
}

fn is_named(pod: &Pod, name: Option<&str>) -> bool {
    name.is_some() && pod.metadata.name.as_deref() == name
}
