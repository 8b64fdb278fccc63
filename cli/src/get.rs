//! Implements `tautline get`, which lists the policies, offers or bindings of a cluster.

use std::{process::ExitCode, sync::Arc};

use anyhow::Result;
use clap::Subcommand;
use k8s_openapi::jiff::Timestamp;
use kube::{Client, ResourceExt, core::DynamicObject};
use serde::Serialize;
use serde_json::json;
use tautline_api::{ConstraintPolicy, ConstraintPolicyBinding, ConstraintPolicyOffer};
use tautline_console::Console;
use tautline_core::trust::OWN_NAMESPACE;

use crate::{
    bindings::{self, FilterArgs, SortKey},
    cluster::ClusterArgs,
    exit_code,
    fetch::{self, Kind},
    manifests::ManifestArgs,
    output::{self, Output},
    program_name,
    provider_args::TrustArgs,
    scope::{self, Scope, ScopeArgs},
    tables,
    ui::EvaluatedManifests,
};

#[derive(Subcommand)]
#[command(
    after_help = "Examples:\n  tautline get bindings\n  tautline get bindings -A --compliance violation,error\n  tautline get offers -n shop -o json\n  tautline get bindings -f examples/edge-inference"
)]
pub(crate) enum Command {
    /// Named sets of rules
    #[command(
        visible_aliases = ["policy", "cp"],
        aliases = ["constraintpolicies", "constraintpolicy"],
        after_help = "Example:\n  tautline get policies -n shop"
    )]
    Policies(Args),
    /// The workloads that policies apply to, and how many comply
    #[command(
        visible_aliases = ["offer", "cpo"],
        aliases = ["constraintpolicyoffers", "constraintpolicyoffer"],
        after_help = "Example:\n  tautline get offers -A"
    )]
    Offers(Args),
    /// Offers applied to concrete workloads, with their compliance, the worst first
    #[command(
        visible_aliases = ["binding", "cpb"],
        aliases = ["constraintpolicybindings", "constraintpolicybinding"],
        after_help = "Examples:\n  tautline get bindings -n shop --offer web-near-db\n  \
                      tautline get bindings -A --compliance violation,error -o json"
    )]
    Bindings(BindingArgs),
}

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Names; all if none is given
    #[arg(value_name = "NAME", value_parser = scope::name, conflicts_with = "all_namespaces")]
    names: Vec<String>,
    #[command(flatten)]
    scope: ScopeArgs,
    /// For programs: the API objects, as a List
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    manifests: ManifestArgs,
    #[command(flatten)]
    trust: TrustArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(clap::Args)]
pub(crate) struct BindingArgs {
    #[command(flatten)]
    common: Args,
    #[command(flatten)]
    filter: FilterArgs,
}

pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Policies(args) => show(args, "policies", by_name, tables::policies).await,
        Command::Offers(args) => show(args, "offers", by_name, tables::offers).await,
        Command::Bindings(BindingArgs { common, filter }) => {
            let what = format!("bindings{filter}");
            let order =
                |b: &ConstraintPolicyBinding| filter.matches(b).then(|| bindings::sort_key(b));
            show(common, &what, order, tables::bindings).await
        }
    }
}

/// Returns the sort key for kinds without a severity.
fn by_name<K: Kind>(object: &K) -> Option<SortKey> {
    Some((0, object.namespace(), object.name_any()))
}

/// Shows the objects that have an `order`.
async fn show<K: Shown>(
    args: Args,
    what: &str,
    order: impl Fn(&K) -> Option<SortKey>,
    table: fn(&[K], bool, Timestamp) -> String,
) -> Result<ExitCode> {
    let (scope, objects, missing) = match args.manifests.read(args.scope.named())? {
        Some(items) => {
            let scope = args.scope.of_manifests();
            let trusted = args.trust.trusted_namespaces(OWN_NAMESPACE);
            let evaluated = EvaluatedManifests::new(items, trusted).await?;
            let all = K::all(&evaluated.console);
            evaluated.stop().await;
            let (objects, missing) = chosen::<K>(&all, &scope, &args.names)?;
            (scope, objects, missing)
        }
        None => {
            let client = args.cluster.client().await?;
            let scope = args.scope.of(&client);
            let (objects, missing) = match &scope {
                Scope::Namespace(namespace) if !args.names.is_empty() => {
                    named::<K>(&client, namespace, &args.names).await?
                }
                scope => (fetch::list::<K>(&client, scope).await?, Vec::new()),
            };
            (scope, objects, missing)
        }
    };
    let mut chosen = Vec::new();
    for object in objects {
        match fetch::parse::<K>(&object) {
            Ok(parsed) => chosen.extend(order(&parsed).map(|place| (place, object, parsed))),
            Err(error) => note!("warning: {error:#}; it is ignored"),
        }
    }
    chosen.sort_by(|a, b| a.0.cmp(&b.0));
    let (raw, parsed): (Vec<_>, Vec<_>) = chosen.into_iter().map(|(_, r, p)| (r, p)).unzip();
    if parsed.is_empty() && missing.is_empty() {
        match &scope {
            Scope::All => note!("no {what} found in any namespace"),
            Scope::Namespace(_) => note!("no {what} found in {scope}"),
        }
    }
    if !parsed.is_empty() || args.output != Output::Table {
        let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": raw});
        output::print(args.output, &list, |_| {
            table(&parsed, scope.is_all(), Timestamp::now())
        })?;
    }
    for name in &missing {
        note!("error: {}", absent::<K>(&scope, name));
    }
    Ok(exit_code(missing.is_empty()))
}

/// A kind that the console of manifests shows.
pub(crate) trait Shown: Kind + Serialize {
    fn all(console: &Console) -> Arc<Vec<Arc<Self>>>;
}

impl Shown for ConstraintPolicy {
    fn all(console: &Console) -> Arc<Vec<Arc<Self>>> {
        console.policies.list()
    }
}

impl Shown for ConstraintPolicyOffer {
    fn all(console: &Console) -> Arc<Vec<Arc<Self>>> {
        console.offers.list()
    }
}

impl Shown for ConstraintPolicyBinding {
    fn all(console: &Console) -> Arc<Vec<Arc<Self>>> {
        console.bindings.list()
    }
}

/// Returns the objects in a scope, and the names without an object.
pub(crate) fn chosen<K: Shown>(
    all: &[Arc<K>],
    scope: &Scope,
    names: &[String],
) -> Result<(Vec<DynamicObject>, Vec<String>)> {
    let is_named = |object: &K| names.is_empty() || names.contains(&object.name_any());
    let chosen = all
        .iter()
        .filter(|object| scope.contains(object.namespace().as_deref()) && is_named(object));
    let found: Vec<DynamicObject> = chosen
        .map(|object| serde_json::from_value(serde_json::to_value(&**object)?))
        .collect::<Result<_, _>>()?;
    let mut missing = names.to_vec();
    missing.retain(|name| found.iter().all(|object| object.name_any() != *name));
    Ok((found, missing))
}

/// Reads the objects of these names; also returns the names without an object.
async fn named<K: Kind>(
    client: &Client,
    namespace: &str,
    names: &[String],
) -> Result<(Vec<DynamicObject>, Vec<String>)> {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for name in names {
        match fetch::get::<K>(client, namespace, name).await? {
            Some(object) => found.push(object),
            None => missing.push(name.clone()),
        }
    }
    Ok((found, missing))
}

pub(crate) fn absent<K: Kind>(scope: &Scope, name: &str) -> String {
    let kind = K::kind(&());
    let plural = match kind.as_ref() {
        "ConstraintPolicy" => "policies",
        "ConstraintPolicyOffer" => "offers",
        _ => "bindings",
    };
    format!(
        "there is no {kind} {name} in {scope}; `{} get {plural} -A` lists all there are",
        program_name::current()
    )
}
