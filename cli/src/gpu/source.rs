//! Reads nodes and pods from a cluster or from manifests.

use std::sync::Arc;

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::{Client, api::ListParams, core::DynamicObject};
use tautline_api::{ConstraintPolicy, ConstraintPolicyOffer, manifest::Item};
use tautline_core::{Index, Snapshot};
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
    pub(crate) cluster: ClusterArgs,
}

pub(crate) struct Source {
    pub(crate) snapshot: Arc<Snapshot>,
    /// The objects of the snapshot, as the API has them.
    pub(crate) items: Vec<Item>,
    /// The namespace of objects that do not name one.
    pub(crate) namespace: String,
}

impl SourceArgs {
    pub(crate) fn is_manifests(&self) -> bool {
        self.manifests.is_given()
    }

    /// Reads everything once. The namespaces matter only for the nodes where a pod could go.
    pub(crate) async fn read(&self, with_namespaces: bool) -> Result<Source> {
        let mut index = Index::default();
        let (items, namespace) = match self.manifests.read()? {
            Some(items) => {
                manifest_files::implied_namespaces(&items).for_each(|o| _ = index.apply(o));
                (items, "default".to_owned())
            }
            None => {
                let client = self.cluster.client().await?;
                let items = read_cluster(&client, with_namespaces).await?;
                (items, client.default_namespace().to_owned())
            }
        };
        for item in &items {
            match manifest_files::object(item) {
                Ok(object) => object.into_iter().for_each(|o| _ = index.apply(o)),
                Err(error) if self.is_manifests() => bail!("{error}"),
                Err(error) => note!("warning: {error}; it is ignored"),
            }
        }
        Ok(Source {
            snapshot: Arc::new(index.snapshot()),
            items,
            namespace,
        })
    }
}

async fn read_cluster(client: &Client, with_namespaces: bool) -> Result<Vec<Item>> {
    let namespaces = async {
        if !with_namespaces {
            return Ok(Vec::new());
        }
        fetch::list_core::<Namespace>(client, ListParams::default()).await
    };
    let (namespaces, nodes, pods) = tokio::try_join!(
        namespaces,
        fetch::list_core::<Node>(client, ListParams::default()),
        fetch::list_core::<Pod>(client, ListParams::default()),
    )?;
    let (policies, offers) = tokio::join!(
        fetch::list_if_known::<ConstraintPolicy>(client),
        fetch::list_if_known::<ConstraintPolicyOffer>(client),
    );
    let mut items = Vec::new();
    items.extend(namespaces.into_iter().map(|o| Item::Namespace(Box::new(o))));
    items.extend(nodes.into_iter().map(|o| Item::Node(Box::new(o))));
    items.extend(pods.into_iter().map(|o| Item::Pod(Box::new(o))));
    items.extend(readable(policies, Item::Policy));
    items.extend(readable(offers, Item::Offer));
    Ok(items)
}

/// Returns the policies or offers that can be read. They are optional: cards can be shown without
/// them.
fn readable<K: Kind>(list: Result<Vec<DynamicObject>>, item: fn(Box<K>) -> Item) -> Vec<Item> {
    let list = list.unwrap_or_else(|error| {
        note!("warning: {error:#}; requests of rules are not known");
        Vec::new()
    });
    let read = list.iter().filter_map(|raw| match fetch::parse::<K>(raw) {
        Ok(object) => Some(item(Box::new(object))),
        Err(error) => {
            note!("warning: {error:#}; it is ignored");
            None
        }
    });
    read.collect()
}
