//! What a pod needs of GPUs, from the rule's request or from its own.
//!
//! The rule's request: empty or `true` (as the pod requests), `250m` (a part of
//! one card), `2` (whole cards), `20Gi` (memory of one card), `mig-1g.10gb`,
//! each with an optional model list: `500m,model=A100|H100`.

use std::collections::BTreeMap;

use tautline_core::quantity;
use tautline_sdk::{ProviderError, Rule, Workload};

/// The resource of whole cards.
pub const WHOLE: &str = "nvidia.com/gpu";
/// The resources of shared cards: CastSlice's and the device plugin's name.
pub const SHARED: [&str; 2] = ["nvidia.com/gpu-shared", "nvidia.com/gpu.shared"];
const MIG: &str = "nvidia.com/mig-";

/// Whether a resource is one of those that this provider is about.
pub fn is_gpu(resource: &str) -> bool {
    resource == WHOLE || SHARED.contains(&resource) || resource.starts_with(MIG)
}

/// A need, of certain models or of any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    pub amount: Amount,
    /// Parts of product names, any of which will do; empty: any card.
    pub models: Vec<String>,
    /// What the pod requests, by resource in whole units; `None`: not known.
    requests: Option<BTreeMap<String, i64>>,
}

impl Need {
    /// How many units of a resource the pod requests; `None` if that is not known.
    pub fn requested(&self, resource: &str) -> Option<i64> {
        Some(self.requests.as_ref()?.get(resource).copied().unwrap_or(0))
    }
}

/// Whether a product name (`NVIDIA-A100-SXM4-40GB`) has the model as a part of
/// its own: `L4` is not in `NVIDIA-L40S`.
pub fn names_model(product: &str, model: &str) -> bool {
    let edge = |c: Option<char>| c.is_none_or(|c| !c.is_ascii_alphanumeric());
    product.match_indices(model).any(|(at, _)| {
        edge(product[..at].chars().next_back()) && edge(product[at + model.len()..].chars().next())
    })
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Amount {
    Nothing,
    /// Whole cards.
    Cards(i64),
    /// A part of one card in thousandths, 1 to 999.
    Share {
        milli: i64,
    },
    /// Memory of one card.
    Memory {
        bytes: i64,
    },
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
    /// A request that is none of the forms above.
    pub fn of(rule: &Rule, workload: Option<&Workload>) -> Result<Self, ProviderError> {
        let bad = |what: String| {
            ProviderError::BadRule(format!(
                "rule {:?}, request {:?}: {what}; write 250m, 2, 20Gi or mig-1g.10gb, \
                 with ,model=A100|H100 if only some cards will do, or true for the pod's own requests",
                rule.name, rule.request
            ))
        };
        let (amount, options) = match rule.request.split_once(',') {
            Some((amount, options)) => (amount.trim(), Some(options)),
            None => (rule.request.trim(), None),
        };
        let models = match options.map(|o| o.trim().strip_prefix("model=").ok_or(o)) {
            None => Vec::new(),
            Some(Ok(list)) => list.split('|').map(|m| m.trim().to_owned()).collect(),
            Some(Err(other)) => return Err(bad(format!("option {other:?} is unknown"))),
        };
        if models.iter().any(String::is_empty) {
            return Err(bad("a model is empty".into()));
        }
        let requests = workload.map(|w| {
            let units = |r: &String| (r.clone(), w.request_milli(r) / 1000);
            w.requests.keys().filter(|r| is_gpu(r)).map(units).collect()
        });
        Ok(Self {
            amount: amount_of(amount, workload).map_err(bad)?,
            models,
            requests,
        })
    }
}

fn amount_of(text: &str, workload: Option<&Workload>) -> Result<Amount, String> {
    if text.is_empty() || text == "true" {
        return Ok(workload.map_or(Amount::Nothing, own));
    }
    if text.starts_with("mig-") {
        return Ok(Amount::Units {
            resource: format!("nvidia.com/{text}"),
            units: 1,
        });
    }
    let milli = quantity::parse_milli(text).map_err(|e| e.to_string())?;
    if text.ends_with(['i', 'k', 'M', 'G', 'T', 'P', 'E']) {
        return Ok(Amount::Memory {
            bytes: milli / 1000,
        });
    }
    match milli {
        0 => Ok(Amount::Nothing),
        1..1000 => Ok(Amount::Share { milli }),
        _ if milli % 1000 == 0 => Ok(Amount::Cards(milli / 1000)),
        _ => Err("more than one card is given in whole cards only".into()),
    }
}

/// What the pod's own requests say. A pod has one kind of GPU; of several the
/// most specific counts.
fn own(workload: &Workload) -> Amount {
    let units = |resource: &str| workload.request_milli(resource) / 1000;
    let mig = workload
        .requests
        .keys()
        .find(|r| r.starts_with(MIG) && units(r) > 0);
    if let Some(resource) = mig {
        return Amount::Units {
            resource: resource.clone(),
            units: units(resource),
        };
    }
    if let Some(resource) = SHARED.iter().find(|r| units(r) > 0) {
        return Amount::Units {
            resource: (*resource).to_owned(),
            units: units(resource),
        };
    }
    match units(WHOLE) {
        0 => Amount::Nothing,
        cards => Amount::Cards(cards),
    }
}
