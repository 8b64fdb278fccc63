//! Reads nodes, pods and claims from a cluster or from manifests, and the use of the cards from the
//! provider.

use std::sync::Arc;

use anyhow::{Result, bail};
use k8s_openapi::api::{
    core::v1::{Namespace, Node, Pod},
    resource::v1::{ResourceClaim, ResourceSlice},
};
use kube::{Client, api::ListParams};
use tautline_api::manifest::Item;
use tautline_console::source::Component;
use tautline_core::{
    Index, Snapshot,
    trust::{OWN_NAMESPACE, TrustedNamespaces},
};
use tautline_gpu_placement::{dra::DeviceStore, inventory::CardPool};
use tautline_gpu_slice::{Inspection, dra, report::Uses};
use tautline_runtime::manifest_files;

use crate::{
    cluster::ClusterArgs,
    cluster_fault,
    fetch::{self, Kind},
    local::of_templates,
    manifests::ManifestArgs,
    replicas::ReplicaArgs,
    scope,
    ui::{EvaluatedManifests, with_uids},
};

const PATH: &str = "/gpu/use";

#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct SourceArgs {
    #[command(flatten)]
    manifests: ManifestArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(crate) struct Source {
    pub(crate) snapshot: Arc<Snapshot>,
    /// The objects of the snapshot, as the API has them.
    pub(crate) items: Vec<Item>,
    /// The devices of DRA drivers, and the claims on them.
    pub(crate) devices: DeviceStore,
    /// The namespace of objects that do not name one.
    pub(crate) namespace: String,
}

impl SourceArgs {
    fn is_manifests(&self) -> bool {
        self.manifests.is_given()
    }

    /// Reads everything once, as [`Self::read`] does. Waiting pods of manifests are placed, as by
    /// `tautline plan` and by the console.
    pub(crate) async fn read_placed(&self, default_namespace: Option<&str>) -> Result<Source> {
        let Some(items) = self.manifests.read(default_namespace)? else {
            return self.read(false, default_namespace).await;
        };
        let evaluated = EvaluatedManifests::new(items, TrustedNamespaces::default()).await?;
        let snapshot = evaluated.console.store.snapshot();
        let devices = evaluated.console.source.planned_devices();
        evaluated.stop().await;
        Ok(Source {
            snapshot,
            devices: devices.unwrap_or_default(),
            items: Vec::new(),
            namespace: default_namespace.unwrap_or("default").to_owned(),
        })
    }

    /// Reads everything once. The namespaces matter only for the nodes where a pod could go.
    /// Objects in files that name no namespace get `default_namespace`.
    pub(crate) async fn read(
        &self,
        with_namespaces: bool,
        default_namespace: Option<&str>,
    ) -> Result<Source> {
        let mut index = Index::default();
        let (items, namespace) = match self.manifests.read(default_namespace)? {
            Some(items) => {
                let items = with_uids(items);
                manifest_files::implied_namespaces(&items).for_each(|o| _ = index.apply(o));
                (items, default_namespace.unwrap_or("default").to_owned())
            }
            None => {
                let client = self.cluster.client().await?;
                let items = read_cluster(&client, with_namespaces).await?;
                (items, client.default_namespace().to_owned())
            }
        };
        // Of a cluster, claims of volumes are not read.
        if self.is_manifests() {
            index.apply(manifest_files::storage(&items));
        }
        for item in &items {
            let volumes = manifest_files::pod_volumes(item);
            volumes
                .into_iter()
                .for_each(|volumes| _ = index.apply(volumes));
            match manifest_files::object(item) {
                Ok(object) => object.into_iter().for_each(|o| _ = index.apply(o)),
                Err(error) if self.is_manifests() => bail!("{error}"),
                Err(error) => note!("warning: {error}; it is ignored"),
            }
        }
        Ok(Source {
            snapshot: Arc::new(index.snapshot()),
            devices: devices(&items),
            items,
            namespace,
        })
    }
}

async fn read_cluster(client: &Client, with_namespaces: bool) -> Result<Vec<Item>> {
    let all = ListParams::default;
    let mut items = Vec::new();
    if with_namespaces {
        items = fetch::items::<Namespace>(client, all(), Item::Namespace).await?;
    }
    items.extend(fetch::items::<Node>(client, all(), Item::Node).await?);
    items.extend(fetch::items::<Pod>(client, all(), Item::Pod).await?);
    items.extend(readable(client, Item::Policy).await);
    items.extend(readable(client, Item::Offer).await);
    // DRA is optional in a cluster.
    for read in [
        fetch::items_if_known::<ResourceSlice>(client, all(), Item::ResourceSlice).await,
        fetch::items_if_known::<ResourceClaim>(client, all(), Item::ResourceClaim).await,
    ] {
        match read {
            Ok(read) => items.extend(read),
            Err(error) => note!("warning: {error:#}; cards that pods claim are not known"),
        }
    }
    Ok(items)
}

/// Returns the devices of the objects, and the claims on them, also those of templates.
pub(super) fn devices(items: &[Item]) -> DeviceStore {
    let (mut slices, mut claims) = (Vec::new(), Vec::new());
    let items = of_templates(items);
    for item in &*items {
        match item {
            Item::ResourceSlice(slice) => slices.push(&**slice),
            Item::ResourceClaim(claim) => claims.push(&**claim),
            _ => {}
        }
    }
    dra::device_store(slices, claims)
}

/// Returns the policies or offers that can be read. They are optional: cards can be shown without
/// them.
async fn readable<K: Kind>(client: &Client, item: fn(Box<K>) -> Item) -> Vec<Item> {
    let list = fetch::list_if_known::<K>(client).await;
    let list = list.unwrap_or_else(|error| {
        note!("warning: {error:#}; requests of rules are not known");
        Vec::new()
    });
    let readable = fetch::parse_readable::<K>(&list).into_iter();
    readable.map(|object| item(Box::new(object))).collect()
}

#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct UseArgs {
    /// Admin port of one gpu-slice provider, for what is used, instead of all replicas
    #[arg(long, env = "TAUTLINE_GPU_SLICE")]
    url: Option<String>,
    /// Tautline's namespace, where the provider runs
    #[arg(long, value_name = "NS", default_value = OWN_NAMESPACE, value_parser = scope::name)]
    tautline_namespace: String,
}

impl UseArgs {
    /// Reads the use of the cards. It is empty, with a warning, if the provider cannot be read;
    /// without agents the provider is not asked.
    pub(crate) async fn read(&self, source: &SourceArgs, inspection: &Inspection) -> Uses {
        let nodes = inspection.nodes();
        let mut pools = nodes.iter().flat_map(|n| &n.inventory.pools);
        let url = self.url.as_deref().filter(|url| !url.is_empty());
        if url.is_none() && (source.is_manifests() || !pools.any(CardPool::has_agent)) {
            return Uses::default();
        }
        let replicas = ReplicaArgs {
            tautline_namespace: self.tautline_namespace.clone(),
            cluster: source.cluster.clone(),
        };
        let uses = replicas
            .get(url, Component::Gpu.app_names(), PATH)
            .await
            .and_then(|all| {
                let answers = all.iter().map(|a| (&*a.from, a.status, &*a.body));
                Ok(Uses::merge(answers)?)
            });
        uses.unwrap_or_else(|error| {
            let error = cluster_fault::text(&error);
            note!("warning: {error}; how much of the cards is used is not known");
            Uses::default()
        })
    }
}
