//! Implements `tautline describe`, which shows one binding or offer with its policies and events.

mod binding;
mod offer;
mod source;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp};
use kube::core::DynamicObject;
use serde_json::json;
use tautline_api::{ConstraintPolicy, ConstraintPolicyBinding, ConstraintPolicyOffer};

use self::source::Source;
use crate::{
    age,
    bindings::Counts,
    cluster::ClusterArgs,
    exit_code,
    fetch::{self, Kind},
    get::absent,
    manifests::ManifestArgs,
    output::{self, Output},
    provider_args::TrustArgs,
    scope::{self, NamespaceArgs, Scope},
    table::section,
};

#[derive(Subcommand)]
#[command(
    after_help = "Examples:\n  tautline describe binding web-near-db-bcdfg -n shop\n  tautline describe offer web-near-db\n  tautline describe offer detectors -f examples/edge-inference"
)]
pub(crate) enum Command {
    /// A binding: each rule with its provider and reason, and its events
    #[command(
        visible_aliases = ["bindings", "cpb"],
        aliases = ["constraintpolicybinding", "constraintpolicybindings"],
        after_help = "Example:\n  tautline describe binding web-near-db-bcdfg -n shop"
    )]
    Binding(Args),
    /// An offer: its targets and policies, the compliance of its bindings, and its events
    #[command(
        visible_aliases = ["offers", "cpo"],
        aliases = ["constraintpolicyoffer", "constraintpolicyoffers"],
        after_help = "Example:\n  tautline describe offer web-near-db -n shop -o yaml"
    )]
    Offer(Args),
}

#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(value_parser = scope::name)]
    name: String,
    #[command(flatten)]
    namespace: NamespaceArgs,
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    manifests: ManifestArgs,
    #[command(flatten)]
    trust: TrustArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    let (args, is_offer) = match command {
        Command::Binding(args) => (args, false),
        Command::Offer(args) => (args, true),
    };
    let source = Source::of(&args).await?;
    if is_offer {
        offer(&source, &args).await
    } else {
        binding(&source, &args).await
    }
}

async fn binding(source: &Source, args: &Args) -> Result<ExitCode> {
    type Binding = ConstraintPolicyBinding;
    let namespace = &source.namespace_of::<Binding>(args)?;
    let Some(raw) = source.get::<Binding>(namespace, &args.name).await? else {
        return Ok(missing::<Binding>(namespace, &args.name));
    };
    let binding: Binding = fetch::parse(&raw)?;
    let (raw_offer, raw_policies, events) = tokio::join!(
        source.get::<ConstraintPolicyOffer>(namespace, &binding.spec.offer),
        source.list::<ConstraintPolicy>(namespace),
        source.events::<Binding>(namespace, &args.name),
    );
    let (raw_offer, mut raw_policies) = (raw_offer?, raw_policies?);
    let offer: Option<ConstraintPolicyOffer> = raw_offer.as_ref().map(fetch::parse).transpose()?;
    let status = binding.status.iter().flat_map(|s| &s.details);
    let mut wanted: Vec<&str> = status.map(|d| d.policy.as_str()).collect();
    wanted.extend(
        offer
            .iter()
            .flat_map(|o| &o.spec.policies)
            .map(String::as_str),
    );
    retain_named(&mut raw_policies, &wanted);
    let policies = fetch::parse_readable(&raw_policies);
    let value = json!({
        "binding": raw, "offer": raw_offer, "policies": raw_policies,
        "events": events.as_ref().ok(),
    });
    let all = binding::BindingDescription {
        binding,
        offer,
        policies,
        events,
    };
    output::print(args.output, &value, |_| all.text(Timestamp::now()))?;
    Ok(ExitCode::SUCCESS)
}

async fn offer(source: &Source, args: &Args) -> Result<ExitCode> {
    type Offer = ConstraintPolicyOffer;
    let namespace = &source.namespace_of::<Offer>(args)?;
    let Some(raw) = source.get::<Offer>(namespace, &args.name).await? else {
        return Ok(missing::<Offer>(namespace, &args.name));
    };
    let offer: Offer = fetch::parse(&raw)?;
    let (bindings, raw_policies, events) = tokio::join!(
        source.list::<ConstraintPolicyBinding>(namespace),
        source.list::<ConstraintPolicy>(namespace),
        source.events::<Offer>(namespace, &args.name),
    );
    let mut bindings: Vec<ConstraintPolicyBinding> = fetch::parse_readable(&bindings?);
    bindings.retain(|b| b.spec.offer == args.name);
    let counts = Counts::of(&bindings);
    let mut raw_policies = raw_policies?;
    let wanted: Vec<&str> = offer.spec.policies.iter().map(String::as_str).collect();
    retain_named(&mut raw_policies, &wanted);
    let policies = fetch::parse_readable(&raw_policies);
    let by_compliance: serde_json::Map<_, _> = counts
        .each()
        .map(|(name, count)| (name.to_owned(), count.into()))
        .collect();
    let value = json!({
        "offer": raw, "policies": raw_policies, "bindings": by_compliance,
        "events": events.as_ref().ok(),
    });
    let all = offer::OfferDescription {
        offer,
        policies,
        counts,
        events,
    };
    output::print(args.output, &value, |_| all.text(Timestamp::now()))?;
    Ok(ExitCode::SUCCESS)
}

fn missing<K: Kind>(namespace: &str, name: &str) -> ExitCode {
    let scope = Scope::Namespace(namespace.to_owned());
    note!("error: {}", absent::<K>(&scope, name));
    exit_code(false)
}

fn retain_named(policies: &mut Vec<DynamicObject>, wanted: &[&str]) {
    let name = |p: &DynamicObject| p.metadata.name.clone().unwrap_or_default();
    policies.retain(|p| wanted.contains(&name(p).as_str()));
}

fn conditions(conditions: &[Condition], now: Timestamp) -> String {
    let since = |c: &Condition| age::since_time(Some(&c.last_transition_time), now);
    section(
        "Conditions",
        conditions,
        &[
            ("TYPE", &|c| c.type_.clone()),
            ("STATUS", &|c| c.status.clone()),
            ("REASON", &|c| c.reason.clone()),
            ("MESSAGE", &|c| c.message.clone()),
            ("SINCE", &since),
        ],
    )
}
