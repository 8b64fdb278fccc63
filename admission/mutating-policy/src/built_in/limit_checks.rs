//! The checks of the plugin `LimitRanger`: the minima, maxima and ratios of containers and pods
//! (`PodValidateLimitFunc` of plugin/pkg/admission/limitranger).

use std::collections::BTreeMap;

use serde_json::Value;
use tautline_core::quantity::{format_milli, parse_milli};

use crate::cluster::Refusal;
use crate::objects::Objects;

/// Amounts of resources, in thousandths.
type Amounts = BTreeMap<String, i64>;

/// Fails if the pod violates a LimitRange of its namespace.
pub(super) fn check(pod: &Value, namespace: &str, given: &Objects) -> Result<(), Refusal> {
    for range in given.of_kind("v1", "LimitRange") {
        if !Objects::is_in(range, Some(namespace)) {
            continue;
        }
        let mut faults = Vec::new();
        for item in range["spec"]["limits"].as_array().into_iter().flatten() {
            match item["type"].as_str() {
                Some("Container") => {
                    for container in
                        containers(pod, "containers").chain(containers(pod, "initContainers"))
                    {
                        let [requests, limits] = SIDES.map(|side| of(container, side));
                        compare(item, "Container", &requests, &limits, &mut faults);
                    }
                }
                Some("Pod") => {
                    let [requests, limits] = SIDES.map(|side| of_pod(pod, side));
                    compare(item, "Pod", &requests, &limits, &mut faults);
                }
                _ => {}
            }
        }
        match faults.as_slice() {
            [] => {}
            [only] => return Err(Refusal(only.clone())),
            several => return Err(Refusal(format!("[{}]", several.join(", ")))),
        }
    }
    Ok(())
}

const SIDES: [&str; 2] = ["requests", "limits"];

fn containers<'a>(pod: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    pod["spec"][field].as_array().into_iter().flatten()
}

/// Returns the requests or limits of a container, or those of a pod as a whole.
fn of(owner: &Value, side: &str) -> Amounts {
    amounts(&owner["resources"][side])
}

fn amounts(map: &Value) -> Amounts {
    let all = map.as_object().into_iter().flatten();
    let read = all.filter_map(|(name, amount)| {
        let text = amount
            .as_str()
            .map_or_else(|| amount.to_string(), str::to_owned);
        Some((name.clone(), parse_milli(&text).ok()?))
    });
    read.collect()
}

/// Returns the requests or limits of a pod's containers together; those of the pod take precedence.
fn of_pod(pod: &Value, side: &str) -> Amounts {
    let (mut sum, mut peak, mut sidecars) = (Amounts::new(), Amounts::new(), Amounts::new());
    for container in containers(pod, "containers") {
        combine(&mut sum, &of(container, side), i64::saturating_add);
    }
    for container in containers(pod, "initContainers") {
        let mut own = of(container, side);
        if container["restartPolicy"] == "Always" {
            combine(&mut sum, &own, i64::saturating_add);
            combine(&mut sidecars, &own, i64::saturating_add);
            own.clone_from(&sidecars);
        } else {
            combine(&mut own, &sidecars, i64::saturating_add);
        }
        combine(&mut peak, &own, i64::max);
    }
    combine(&mut sum, &peak, i64::max);
    let whole = of(&pod["spec"], side);
    sum.extend(
        whole
            .into_iter()
            .filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory")),
    );
    sum
}

fn combine(all: &mut Amounts, more: &Amounts, with: fn(i64, i64) -> i64) {
    for (name, amount) in more {
        let at = all.entry(name.clone()).or_default();
        *at = with(*at, *amount);
    }
}

/// Adds the faults in the words of the plugin.
fn compare(
    item: &Value,
    kind: &str,
    requests: &Amounts,
    limits: &Amounts,
    faults: &mut Vec<String>,
) {
    let (request, limit) = (("request", requests), ("limit", limits));
    let is_below: fn(&i64, &i64) -> bool = i64::lt;
    for (field, word, sides, is_wrong) in [
        ("min", "minimum", [request, limit], is_below),
        ("max", "maximum", [limit, request], i64::gt),
    ] {
        for (name, bound) in &amounts(&item[field]) {
            let fault = match sides {
                [(side, all), _] if !all.contains_key(name) => {
                    Some(format!(".  No {side} is specified"))
                }
                sides => sides.iter().find_map(|(side, all)| {
                    let amount = all.get(name).filter(|amount| is_wrong(amount, bound))?;
                    Some(format!(", but {side} is {}", format_milli(*amount)))
                }),
            };
            let bound = format_milli(*bound);
            faults.extend(fault.map(|f| format!("{word} {name} usage per {kind} is {bound}{f}")));
        }
    }
    for (name, most) in &amounts(&item["maxLimitRequestRatio"]) {
        let bound = format!(
            "{name} max limit to request ratio per {kind} is {}",
            format_milli(*most)
        );
        let positive = |all: &Amounts| all.get(name).copied().filter(|amount| *amount != 0);
        match (positive(requests), positive(limits)) {
            (None, _) => faults.push(format!(
                "{bound}, but no request is specified or request is 0"
            )),
            (_, None) => faults.push(format!("{bound}, but no limit is specified or limit is 0")),
            (Some(request), Some(limit)) => {
                #[expect(clippy::cast_precision_loss, reason = "as in the plugin")]
                let (ratio, most) = (limit as f64 / request as f64, *most as f64);
                if ratio * 1000.0 > most {
                    faults.push(format!("{bound}, but provided ratio is {ratio:.6}"));
                }
            }
        }
    }
}
