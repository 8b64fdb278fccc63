//! Reads from a cluster: in pages, with a deadline, and with errors that name the fix.

use std::{fmt::Debug, future::Future, time::Duration};

use anyhow::{Context, Result, anyhow};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::ListParams,
    core::{ApiResource, DynamicObject, NamespaceResourceScope},
};
use serde::de::DeserializeOwned;
use tautline_api::manifest::Item;

pub(crate) use crate::cluster_fault::cause;
use crate::{cluster_fault, program_name, scope::Scope};

/// The deadline of one page.
const DEADLINE: Duration = Duration::from_secs(30);
const PAGE_OBJECTS: u32 = 500;

pub(crate) trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned
{
}

/// Lists every object of a kind in the scope, unparsed.
pub(crate) async fn list<K: Kind>(client: &Client, scope: &Scope) -> Result<Vec<DynamicObject>> {
    match list_raw::<K>(client, scope).await {
        Ok(list) => Ok(list),
        Err(error) => Err(explain_error::<K>(client, error, scope).await),
    }
}

/// Lists every object of a kind in all namespaces; the list is empty if the cluster does not serve
/// the kind.
pub(crate) async fn list_if_known<K: Kind>(client: &Client) -> Result<Vec<DynamicObject>> {
    match list_raw::<K>(client, &Scope::All).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Ok(list) => Ok(list),
        Err(error) => Err(explain_error::<K>(client, error, &Scope::All).await),
    }
}

/// Lists the objects of a kind in all namespaces, as those of manifests.
pub(crate) async fn items<K>(
    client: &Client,
    params: ListParams,
    item: fn(Box<K>) -> Item,
) -> Result<Vec<Item>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    match pages(&Api::<K>::all(client.clone()), params).await {
        Ok(list) => Ok(list.into_iter().map(|o| item(Box::new(o))).collect()),
        Err(error) => Err(explain_error::<K>(client, error, &Scope::All).await),
    }
}

/// Lists objects as [`items`] does; the list is empty if the cluster does not serve the kind.
pub(crate) async fn items_if_known<K>(
    client: &Client,
    params: ListParams,
    item: fn(Box<K>) -> Item,
) -> Result<Vec<Item>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    match pages(&Api::<K>::all(client.clone()), params).await {
        Ok(list) => Ok(list.into_iter().map(|o| item(Box::new(o))).collect()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(explain_error::<K>(client, error, &Scope::All).await),
    }
}

async fn list_raw<K: Kind>(client: &Client, scope: &Scope) -> kube::Result<Vec<DynamicObject>> {
    let kind = ApiResource::erase::<K>(&());
    let api = match scope {
        Scope::All => Api::all_with(client.clone(), &kind),
        Scope::Namespace(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
    };
    let all = pages(&api, ListParams::default()).await?;
    Ok(all.into_iter().map(without_managed_fields).collect())
}

/// Reads one object; returns `None` if it does not exist.
pub(crate) async fn get<K: Kind>(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<DynamicObject>> {
    let kind = ApiResource::erase::<K>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind);
    match with_deadline(api.get(name)).await {
        Ok(object) => Ok(Some(without_managed_fields(object))),
        // An unknown kind is a 404 too, but its status names no object.
        Err(kube::Error::Api(status)) if status.code == 404 && status.details.is_some() => Ok(None),
        Err(error) => {
            let scope = Scope::Namespace(namespace.to_owned());
            Err(explain_error::<K>(client, error, &scope).await)
        }
    }
}

/// Fails if the kind cannot be listed, before a watch begins.
pub(crate) async fn check<K>(api: &Api<K>, scope: &Scope) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    // Only metadata is read, since a malformed object must not fail the check.
    let params = ListParams::default().limit(1);
    match with_deadline(api.list_metadata(&params)).await {
        Ok(_) => Ok(()),
        Err(error) => {
            let client = api.clone().into_client();
            Err(explain_error::<K>(&client, error, scope).await)
        }
    }
}

pub(crate) async fn pages<K: Clone + DeserializeOwned + Debug>(
    api: &Api<K>,
    params: ListParams,
) -> kube::Result<Vec<K>> {
    let mut paged = params.clone().limit(PAGE_OBJECTS);
    let mut all = Vec::new();
    loop {
        let page = match with_deadline(api.list(&paged)).await {
            Ok(page) => page,
            // The pages' snapshot has expired; one long list needs no snapshot.
            Err(kube::Error::Api(s)) if s.code == 410 && paged.continue_token.is_some() => {
                return Ok(with_deadline(api.list(&params)).await?.items);
            }
            Err(error) => return Err(error),
        };
        all.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => paged.continue_token = Some(token),
            None => return Ok(all),
        }
    }
}

/// Removes the managed fields, which are noise here; kubectl leaves them out too.
fn without_managed_fields(mut object: DynamicObject) -> DynamicObject {
    object.metadata.managed_fields = None;
    object
}

pub(crate) fn parse<K: Kind>(object: &DynamicObject) -> Result<K> {
    object.clone().try_parse().with_context(|| {
        format!(
            "{} {}/{} cannot be read; look at it with -o yaml",
            K::kind(&()),
            object.namespace().unwrap_or_default(),
            object.name_any()
        )
    })
}

/// Parses objects, with a warning for each unreadable one.
pub(crate) fn parse_readable<K: Kind>(objects: &[DynamicObject]) -> Vec<K> {
    let warn = |error: &anyhow::Error| note!("warning: {error:#}; it is ignored");
    let parsed = objects.iter().map(|object| parse(object).inspect_err(warn));
    parsed.flatten().collect()
}

async fn with_deadline<T>(call: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    tokio::time::timeout(DEADLINE, call)
        .await
        .unwrap_or_else(|_| {
            let late = format!("no answer within {} s", DEADLINE.as_secs());
            Err(kube::Error::Service(late.into()))
        })
}

/// The groups of Tautline's kinds.
const OWN_GROUPS: [&str; 2] = ["constraint.ciena.com", "tautline.io"];

async fn explain_error<K: Resource<DynamicType = ()>>(
    client: &Client,
    error: kube::Error,
    scope: &Scope,
) -> anyhow::Error {
    let (plural, version) = (K::plural(&()), K::api_version(&()));
    let code = match &error {
        kube::Error::Api(status) if !cluster_fault::is_page(status) => status.code,
        _ => 0,
    };
    let why = match (code, &*K::group(&())) {
        // A server without the kind and a server of another program give the same answer.
        (404, group) if OWN_GROUPS.contains(&group) && is_kubernetes(client).await => {
            return anyhow!(
                "the cluster does not know {plural} of {version}: the custom resource definitions \
                 are not installed; install them with `{} crds | kubectl apply -f -`",
                program_name::current()
            );
        }
        (404, group) if !group.is_empty() && !OWN_GROUPS.contains(&group) => {
            return anyhow!("the cluster does not know {plural} of {version}");
        }
        (403, _) => format!(
            "{}; ask for a role with the verbs get, list and watch on them",
            cause(&error)
        ),
        _ => cluster_fault::explain(&error),
    };
    anyhow!("{plural} in {scope} cannot be read: {why}")
}

/// Returns whether the server answers as an API server, perhaps that this user has no right to ask.
async fn is_kubernetes(client: &Client) -> bool {
    match with_deadline(client.apiserver_version()).await {
        Ok(_) => true,
        Err(kube::Error::Api(status)) => status.code != 404 && !cluster_fault::is_page(&status),
        Err(_) => false,
    }
}
