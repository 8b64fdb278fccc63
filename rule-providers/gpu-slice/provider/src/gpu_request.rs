//! The GPUs that a pod requests, by the rule or by its own requests and annotations.
//!
//! The rule's request: empty or `true` (as the pod requests), `250m` (a part of one card), `2`
//! (whole cards), `20Gi` (memory of one card), `mig-1g.10gb`, each with an optional model list:
//! `500m,model=A100|H100`.

use std::{collections::BTreeMap, sync::Arc};

use tautline_core::{model::Pod, quantity};
use tautline_gpu_placement::{
    CARD_MILLI, Shape, SharingMode, containers::AgentRequest, inventory, names,
};
use tautline_sdk::{Container, ContainerKind, ProviderError, Rule, Workload};

pub(crate) use tautline_gpu_placement::shape::units_milli;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GpuRequest {
    pub(crate) amount: Amount,
    /// The minimum amount when the node degrades; `None`: the full amount.
    pub(crate) minimum: Option<Amount>,
    /// The parts of product names that a card may have; empty: any card.
    pub(crate) models: Models,
    /// True if the rule states the amount; otherwise the pod does.
    pub(crate) by_rule: bool,
    pub(crate) cpu_milli: i64,
    pub(crate) memory_bytes: i64,
    /// The pod's own requests, by resource in whole units; `None`: they are not known.
    resources: Option<BTreeMap<String, i64>>,
    /// The requests of the pod's containers to an agent, if several containers request extended
    /// resources.
    pub(crate) containers: Vec<(ContainerKind, AgentRequest)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Amount {
    Nothing,
    Cards(i64),
    /// A part of one card, in thousandths from 1 to 999.
    Share(i64),
    /// The memory of one card, in bytes.
    Memory(i64),
    Units {
        resource: String,
        units: i64,
    },
    /// The pod's own request for cards of an agent.
    OfAgent(AgentRequest),
}

impl GpuRequest {
    pub(crate) fn new(rule: &Rule, workload: Option<&Workload>) -> Result<Self, ProviderError> {
        let (amount, models) = parse(rule, "request", &rule.request)?;
        let (minimum, _) = parse(rule, "limit", &rule.limit)?;
        let resources = workload.map(|w| {
            let units = |r: &String| (r.clone(), w.request_milli(r) / 1000);
            let gpu = w.requests.keys().filter(|r| names::is_gpu(r));
            gpu.map(units).collect()
        });
        let request = |resource| workload.map_or(0, |w| w.request_milli(resource));
        let own = || workload.map_or(Amount::Nothing, Amount::of_workload);
        Ok(Self {
            by_rule: amount.is_some(),
            amount: amount.unwrap_or_else(own),
            minimum,
            models,
            cpu_milli: request("cpu"),
            memory_bytes: request("memory") / 1000,
            resources,
            containers: workload.map_or_else(Vec::new, containers),
        })
    }

    /// Returns whether the rule states the amount or the models.
    pub(crate) fn is_by_rule(&self) -> bool {
        self.by_rule || !self.models.is_empty()
    }

    pub(crate) fn requested(&self, resource: &str) -> Option<i64> {
        Some(self.resources.as_ref()?.get(resource).copied().unwrap_or(0))
    }

    /// Returns the pod's own request for cards of an agent; `None`: it is not known.
    pub(crate) fn of_agent(&self) -> Option<AgentRequest> {
        let resources = self.resources.as_ref()?;
        let units = |resource: &str| resources.get(resource).copied().unwrap_or(0);
        Some(AgentRequest::new(units))
    }

    /// Returns the sharing mode that the request will probably get: the mode of the requested
    /// resource, or else the first mode that can serve the request.
    pub(crate) fn likely_mode(&self, modes: impl Iterator<Item = SharingMode>) -> SharingMode {
        let requests = |of: fn(&str) -> bool| {
            let mut all = self.resources.iter().flatten();
            all.any(|(r, units)| *units > 0 && of(r))
        };
        let (whole, shared) = (requests(names::is_whole), requests(names::is_shared));
        // Only agents serve the resources that agents offer.
        if requests(names::is_of_agent) {
            return SharingMode::Agent;
        }
        let cards = matches!(self.amount, Amount::Cards(_));
        let serves = |mode: &SharingMode| match mode {
            SharingMode::Milli => !whole && !shared,
            SharingMode::Agent => self.resources.is_none(),
            SharingMode::Whole => cards && !shared,
            SharingMode::Shared { .. } => !cards && !whole,
            // kube-scheduler places the pods of claims.
            SharingMode::Claim => false,
        };
        modes.filter(serves).min().unwrap_or_default()
    }

    pub(crate) fn shape(&self, mode: SharingMode, milli: i64) -> Shape {
        Shape {
            cpu_milli: self.cpu_milli,
            memory_bytes: self.memory_bytes,
            models: Arc::clone(&self.models),
            ..Shape::from_milli(mode, milli)
        }
    }
}

fn containers(workload: &Workload) -> Vec<(ContainerKind, AgentRequest)> {
    let asks = |container: &Container| {
        let asks = AgentRequest::new(|resource| {
            let text = container.requests.get(resource);
            let milli = text.and_then(|text| quantity::parse_milli(text).ok());
            milli.unwrap_or(0) / 1000
        });
        (!asks.is_empty()).then_some((container.kind, asks))
    };
    workload.containers.iter().filter_map(asks).collect()
}

type Models = Arc<[Arc<str>]>;

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
    let amount = Amount::parse(amount, bad)?;
    if field == "request" && matches!(amount, Some(Amount::Nothing | Amount::Memory(0))) {
        return Err(bad("requests no GPU, so any node would do".into()));
    }
    Ok((amount, models.into()))
}

impl Amount {
    /// Returns whether the amount is of cards of any resource.
    pub(crate) fn is_of_cards(&self) -> bool {
        matches!(self, Self::Cards(_) | Self::Share(_) | Self::Memory(_))
    }

    fn parse(
        text: &str,
        bad: impl Fn(String) -> ProviderError,
    ) -> Result<Option<Self>, ProviderError> {
        if text.is_empty() || text == "true" {
            return Ok(None);
        }
        if text.starts_with("mig-") {
            return Ok(Some(Self::Units {
                resource: format!("nvidia.com/{text}"),
                units: 1,
            }));
        }
        let milli = quantity::parse_milli(text).map_err(|e| bad(e.to_string()))?;
        if text.ends_with(['i', 'k', 'M', 'G', 'T', 'P', 'E']) {
            return Ok(Some(Self::Memory(milli / 1000)));
        }
        match milli {
            0 => Ok(Some(Self::Nothing)),
            1..1000 => Ok(Some(Self::Share(milli))),
            _ if milli % 1000 == 0 => Ok(Some(Self::Cards(milli / 1000))),
            _ => Err(bad("more than one card is given in whole cards only".into())),
        }
    }

    /// Returns the amount that the pod itself requests. A pod has one kind of GPU; if it requests
    /// several kinds, the most specific one counts.
    fn of_workload(workload: &Workload) -> Self {
        let units = |resource: &str| workload.request_milli(resource) / 1000;
        let of_agent = AgentRequest::new(units);
        if !of_agent.is_empty() {
            return Self::OfAgent(of_agent);
        }
        let annotation = |key: &str| workload.annotations.get(key).map(String::as_str);
        if let Some((cards, milli)) = inventory::annotated_request(annotation) {
            return match milli {
                CARD_MILLI => Self::Cards(cards),
                share => Self::Share(i64::from(share)),
            };
        }
        let kinds = [names::is_instance, names::is_shared, names::is_whole];
        let find = |is: fn(&str) -> bool| {
            let mut requested = workload.requests.keys().filter(|r| units(r) > 0);
            requested.find(|r| is(r))
        };
        let found = kinds.into_iter().find_map(find);
        found.map_or(Self::Nothing, |resource| Self::Units {
            resource: resource.clone(),
            units: units(resource),
        })
    }
}

/// Returns the shape of a pod in the distribution of requests; `None`: the pod requests no cards,
/// or units of unknown size.
pub fn pod_shape(pod: &Pod, unit_milli: Option<u16>) -> Option<Shape> {
    pod_shape_with(pod, unit_milli, false, || None)
}

/// Returns the shape of a pod like [`pod_shape`]. `by_agent` is true if an agent gives out the
/// cards of the pod's node. `card_memory_bytes` returns the memory of a card, for pods that request
/// memory of an agent's card.
pub(crate) fn pod_shape_with(
    pod: &Pod,
    unit_milli: Option<u16>,
    by_agent: bool,
    card_memory_bytes: impl FnOnce() -> Option<i64>,
) -> Option<Shape> {
    let shape = |mode, milli: i64| Shape {
        cpu_milli: pod.requests.milli("cpu"),
        memory_bytes: pod.requests.milli("memory") / 1000,
        ..Shape::from_milli(mode, milli)
    };
    let of_agent = AgentRequest::new(|resource| pod.requests.milli(resource) / 1000);
    if let Some(Ok(parts)) = inventory::assigned_cards(pod) {
        let milli = parts.iter().map(|p| i64::from(p.milli)).sum();
        let mode = if by_agent || !of_agent.is_empty() {
            SharingMode::Agent
        } else {
            SharingMode::Milli
        };
        return Some(shape(mode, milli));
    }
    if !of_agent.is_empty() {
        let card = (of_agent.memory_gib > 0).then(card_memory_bytes).flatten();
        let milli = of_agent.milli_on(card).unwrap_or(of_agent.milli);
        return (milli > 0).then(|| shape(SharingMode::Agent, milli));
    }
    let annotation = |key: &str| {
        let placement = pod.placement.as_ref().map(|p| &p.annotations);
        pod.annotations
            .get(key)
            .or_else(|| placement.and_then(|a| a.get(key)))
    };
    if let Some((cards, milli)) = inventory::annotated_request(annotation) {
        return Some(shape(SharingMode::Milli, cards * i64::from(milli)));
    }
    let (resource, milli) = pod
        .requests
        .iter()
        .find(|(r, milli)| *milli >= 1000 && (names::is_whole(r) || names::is_shared(r)))?;
    if names::is_whole(resource) {
        return Some(shape(SharingMode::Whole, milli));
    }
    let unit_milli = unit_milli?;
    let mode = SharingMode::Shared { unit_milli };
    Some(shape(mode, units_milli(milli / 1000, unit_milli)))
}
