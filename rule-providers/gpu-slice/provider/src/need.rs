//! What a pod needs of GPUs, from the rule's request or from its own.
//!
//! The rule's request: empty or `true` (as the pod requests), `250m` (a part of
//! one card), `2` (whole cards), `20Gi` (memory of one card), `mig-1g.10gb`,
//! each with an optional model list: `500m,model=A100|H100`.

use std::{collections::BTreeMap, sync::Arc};

use tautline_core::{model::Pod, quantity};
use tautline_gpu_placement::{CARD, Lane, Names, Shape, inventory};
use tautline_sdk::{ProviderError, Rule, Workload};

pub(crate) use tautline_gpu_placement::shape::units_milli;

/// A need, of certain models or of any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) amount: Amount,
    /// The least that will do when the node degrades; `None`: all of it.
    pub(crate) least: Option<Amount>,
    /// Parts of product names, any of which will do; empty: any card.
    pub(crate) models: Models,
    /// The rule states it; else the pod's own requests or annotations do.
    pub(crate) by_rule: bool,
    pub(crate) cpu_milli: i64,
    pub(crate) memory_bytes: i64,
    /// What the pod requests, by resource in whole units; `None`: not known.
    requests: Option<BTreeMap<String, i64>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Amount {
    Nothing,
    /// Whole cards.
    Cards(i64),
    /// A part of one card in thousandths, 1 to 999.
    Share(i64),
    /// Memory of one card, in bytes.
    Memory(i64),
    /// Units of a resource, as the pod requests them.
    Units {
        resource: String,
        units: i64,
    },
}

impl Need {
    /// The need that a question states.
    ///
    /// # Errors
    /// A request or limit that is none of the forms above.
    pub(crate) fn of(
        names: &Names,
        rule: &Rule,
        workload: Option<&Workload>,
    ) -> Result<Self, ProviderError> {
        let (amount, models) = parse(rule, "request", &rule.request)?;
        let least = match parse(rule, "limit", &rule.limit)? {
            (None, _) => None,
            (least, _) => least,
        };
        let requests = workload.map(|w| {
            let units = |r: &String| (r.clone(), w.request_milli(r) / 1000);
            let gpu = w.requests.keys().filter(|r| names.is_gpu(r));
            gpu.map(units).collect()
        });
        let request = |resource| workload.map_or(0, |w| w.request_milli(resource));
        Ok(Self {
            by_rule: amount.is_some(),
            amount: amount.unwrap_or_else(|| workload.map_or(Amount::Nothing, |w| own(names, w))),
            least,
            models,
            cpu_milli: request("cpu"),
            memory_bytes: request("memory") / 1000,
            requests,
        })
    }

    /// How many units of a resource the pod requests; `None` if that is not known.
    pub(crate) fn requested(&self, resource: &str) -> Option<i64> {
        Some(self.requests.as_ref()?.get(resource).copied().unwrap_or(0))
    }

    /// The lane that will most likely serve it: that of the resource which the pod
    /// requests, else the first that has such cards.
    pub(crate) fn lane(&self, names: &Names, lanes: impl Iterator<Item = Lane>) -> Lane {
        let requests = |of: fn(&Names, &str) -> bool| {
            let mut all = self.requests.iter().flatten();
            all.any(|(r, units)| *units > 0 && of(names, r))
        };
        let (whole, shared) = (requests(Names::is_whole), requests(Names::is_shared));
        let cards = matches!(self.amount, Amount::Cards(_));
        let serves = |lane: &Lane| match lane {
            Lane::Milli => !whole && !shared,
            Lane::Whole => cards && !shared,
            Lane::Shared { .. } => !cards && !whole,
        };
        lanes.filter(serves).min().unwrap_or_default()
    }

    /// The need as a shape of a lane: so many whole cards and a share of one more.
    pub(crate) fn shape(&self, lane: Lane, milli: i64) -> Shape {
        let card = i64::from(CARD);
        Shape {
            cpu_milli: self.cpu_milli,
            memory_bytes: self.memory_bytes,
            whole: u16::try_from(milli / card).unwrap_or(u16::MAX),
            share: u16::try_from(milli % card).unwrap_or(0),
            lane,
            models: Arc::clone(&self.models),
        }
    }
}

/// Parts of product names.
type Models = Arc<[Arc<str>]>;

/// An amount with its models; no amount: as the pod requests.
fn parse(rule: &Rule, field: &str, text: &str) -> Result<(Option<Amount>, Models), ProviderError> {
    let bad = |what: String| {
        ProviderError::BadRule(format!(
            "rule {:?}, {field} {text:?}: {what}; write 250m, 2, 20Gi or mig-1g.10gb, \
             with ,model=A100|H100 if only some cards will do, or true for the pod's own requests",
            rule.name
        ))
    };
    let (amount, options) = match text.split_once(',') {
        Some((amount, options)) => (amount.trim(), Some(options)),
        None => (text.trim(), None),
    };
    let models: Vec<Arc<str>> = match options.map(|o| o.trim().strip_prefix("model=").ok_or(o)) {
        None => Vec::new(),
        Some(Ok(list)) => list.split('|').map(|m| m.trim().into()).collect(),
        Some(Err(other)) => return Err(bad(format!("option {other:?} is unknown"))),
    };
    if models.iter().any(|m| m.is_empty()) {
        return Err(bad("a model is empty".into()));
    }
    Ok((amount_of(amount).map_err(bad)?, models.into()))
}

fn amount_of(text: &str) -> Result<Option<Amount>, String> {
    if text.is_empty() || text == "true" {
        return Ok(None);
    }
    if text.starts_with("mig-") {
        return Ok(Some(Amount::Units {
            resource: format!("nvidia.com/{text}"),
            units: 1,
        }));
    }
    let milli = quantity::parse_milli(text).map_err(|e| e.to_string())?;
    if text.ends_with(['i', 'k', 'M', 'G', 'T', 'P', 'E']) {
        return Ok(Some(Amount::Memory(milli / 1000)));
    }
    match milli {
        0 => Ok(Some(Amount::Nothing)),
        1..1000 => Ok(Some(Amount::Share(milli))),
        _ if milli % 1000 == 0 => Ok(Some(Amount::Cards(milli / 1000))),
        _ => Err("more than one card is given in whole cards only".into()),
    }
}

/// What the pod's own requests and annotations say. A pod has one kind of GPU; of
/// several the most specific counts.
fn own(names: &Names, workload: &Workload) -> Amount {
    let annotation = |key: &str| workload.annotations.get(key).map(String::as_str);
    if let Some((cards, milli)) = inventory::asked(names, annotation) {
        return match milli {
            CARD => Amount::Cards(cards),
            share => Amount::Share(i64::from(share)),
        };
    }
    let units = |resource: &str| workload.request_milli(resource) / 1000;
    let mut asked = workload.requests.keys().filter(|r| units(r) > 0);
    let of = |resource: &str| Amount::Units {
        resource: resource.to_owned(),
        units: units(resource),
    };
    if let Some(resource) = asked.clone().find(|r| names.is_instance(r)) {
        return of(resource);
    }
    if let Some(resource) = asked.clone().find(|r| names.is_shared(r)) {
        return of(resource);
    }
    asked
        .find(|r| names.is_whole(r))
        .map_or(Amount::Nothing, |r| of(r))
}

/// Thousandths of one unit, in lanes that have units.
pub(crate) fn unit_of(lane: Lane) -> Option<u16> {
    match lane {
        Lane::Shared { unit_milli } => Some(unit_milli),
        _ => None,
    }
}

/// Thousandths as a lane gives them: in whole units where it has units.
pub(crate) fn rounded(lane: Lane, milli: i64) -> i64 {
    match unit_of(lane).map(i64::from).filter(|unit| *unit > 0) {
        Some(unit) => units_milli((milli + unit - 1) / unit, unit as u16),
        None => milli,
    }
}

/// What a pod asks by itself, for the distribution of requests; `None`: no cards, or
/// units of unknown size.
pub fn shape_of(names: &Names, pod: &Pod, unit_milli: Option<u16>) -> Option<Shape> {
    let shape = |lane, milli: i64| Shape {
        cpu_milli: pod.requests.milli("cpu"),
        memory_bytes: pod.requests.milli("memory") / 1000,
        whole: u16::try_from(milli / i64::from(CARD)).unwrap_or(u16::MAX),
        share: u16::try_from(milli % i64::from(CARD)).unwrap_or(0),
        lane,
        models: Arc::default(),
    };
    if let Some(Ok(parts)) = inventory::record_of(names, pod) {
        let milli = parts.iter().map(|p| i64::from(p.milli)).sum();
        return Some(shape(Lane::Milli, milli));
    }
    let told = |key: &str| {
        let placement = pod.placement.as_ref().map(|p| &p.annotations);
        pod.annotations
            .get(key)
            .or_else(|| placement.and_then(|a| a.get(key)))
    };
    if let Some((cards, milli)) = inventory::asked(names, told) {
        return Some(shape(Lane::Milli, cards * i64::from(milli)));
    }
    let (resource, milli) = pod
        .requests
        .iter()
        .find(|(r, milli)| *milli >= 1000 && (names.is_whole(r) || names.is_shared(r)))?;
    if names.is_whole(resource) {
        return Some(shape(Lane::Whole, milli));
    }
    let unit_milli = unit_milli?;
    let lane = Lane::Shared { unit_milli };
    Some(shape(lane, units_milli(milli / 1000, unit_milli)))
}
