//! Reads what is described, of a cluster or of manifests.

use std::sync::Arc;

use anyhow::{Result, bail};
use kube::{Client, ResourceExt, core::DynamicObject};
use tautline_api::display::EventSummary;
use tautline_console::Console;
use tautline_core::trust::OWN_NAMESPACE;

use super::Args;
use crate::{
    events, fetch,
    get::{Shown, chosen},
    scope::Scope,
    ui::EvaluatedManifests,
};

pub(super) enum Source {
    Cluster(Client),
    Manifests(Arc<Console>),
}

impl Source {
    pub(super) async fn of(args: &Args) -> Result<Self> {
        let Some(items) = args.manifests.read(args.namespace.named())? else {
            return Ok(Self::Cluster(args.cluster.client().await?));
        };
        let trusted = args.trust.trusted_namespaces(OWN_NAMESPACE);
        let evaluated = EvaluatedManifests::new(items, trusted).await?;
        let console = Arc::clone(&evaluated.console);
        evaluated.stop().await;
        Ok(Self::Manifests(console))
    }

    /// Returns the namespace of the described object. In manifests it is found by the name.
    pub(super) fn namespace_of<K: Shown>(&self, args: &Args) -> Result<String> {
        let console = match self {
            Self::Cluster(client) => return Ok(args.namespace.of(client)),
            Self::Manifests(console) => console,
        };
        if let Some(named) = args.namespace.named() {
            return Ok(named.to_owned());
        }
        let all = K::all(console);
        let named = all.iter().filter(|object| object.name_any() == args.name);
        let found: Vec<String> = named.filter_map(|object| object.namespace()).collect();
        match found.as_slice() {
            [] => Ok("default".to_owned()),
            [only] => Ok(only.clone()),
            several => bail!(
                "{} {} is in the namespaces {}; choose one with -n",
                K::kind(&()),
                args.name,
                several.join(", ")
            ),
        }
    }

    /// Reads one object; returns `None` if it does not exist.
    pub(super) async fn get<K: Shown>(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<DynamicObject>> {
        match self {
            Self::Cluster(client) => fetch::get::<K>(client, namespace, name).await,
            Self::Manifests(console) => {
                let scope = Scope::Namespace(namespace.to_owned());
                let (mut found, _) = chosen::<K>(&K::all(console), &scope, &[name.to_owned()])?;
                Ok(found.pop())
            }
        }
    }

    /// Lists the objects of a namespace.
    pub(super) async fn list<K: Shown>(&self, namespace: &str) -> Result<Vec<DynamicObject>> {
        let scope = Scope::Namespace(namespace.to_owned());
        match self {
            Self::Cluster(client) => fetch::list::<K>(client, &scope).await,
            Self::Manifests(console) => Ok(chosen::<K>(&K::all(console), &scope, &[])?.0),
        }
    }

    /// Lists the events of an object, the newest last. Manifests have none.
    pub(super) async fn events<K: Shown>(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Vec<EventSummary>, String> {
        match self {
            Self::Cluster(client) => events::list(client, namespace, &K::kind(&()), name).await,
            Self::Manifests(_) => Ok(Vec::new()),
        }
    }
}
