mod autoscaling;
mod claim;
mod engine_port;
mod kv_connector;

use std::collections::HashSet;

use serde_json::Value;

use crate::{
    FieldError,
    error::Errors,
    field_ref::{FieldRef, Nanos},
};

const MOST_REPLICAS: i64 = 1_000_000;
const MOST_GRACE: Nanos = 1800 * 1_000_000_000;

/// Backend types with one server worker.
const SINGLE: [&str; 3] = ["vLLM", "SGLang", "MindIE"];
/// Backend types with several workers, and the types of those.
const DISAGGREGATED: [(&str, &[&str]); 2] = [
    ("vLLMDisaggregated", &["prefill", "decode"]),
    (
        "MindIEDisaggregated",
        &["prefill", "decode", "controller", "coordinator"],
    ),
];

struct Backend<'a> {
    at: FieldRef<'a>,
    ranged: bool,
    min: i64,
    max: i64,
    replicas: i64,
    cost: i64,
    grace: Option<Nanos>,
    has_grace: bool,
    has_policy: bool,
    kind: &'a str,
    workers: Vec<Worker<'a>>,
    adapters: Vec<(String, &'a str)>,
}

struct Worker<'a> {
    at: FieldRef<'a>,
    kind: &'a str,
    image: Option<&'a str>,
}

pub(crate) fn review(root: &FieldRef<'_>, spec: &FieldRef<'_>, errors: &mut Errors) {
    let (places, list) = backends(spec, errors);
    if places.is_empty() && !list {
        let detail = "name at least one backend, or the only one in spec.backend";
        errors.push(FieldError::required("spec.backends", detail));
    }
    let mut backends = Vec::new();
    for at in places {
        let ranged = list || is_ranged(&at);
        backends.push(Backend::read(at, ranged, errors));
    }
    let metadata = root.field("metadata").object(errors);
    let names = [metadata.field("name"), spec.field("name")];
    let names = names.map(|name| name.text(errors));

    backends.iter().for_each(|b| b.grace(errors));
    replicas(&backends, list, errors);
    backends.iter().for_each(|b| b.images(errors));
    if list || backends.iter().any(|b| b.ranged) {
        autoscaling::review(spec, &backends, list, errors);
    }
    backends.iter().for_each(|b| b.worker_types(errors));
    backends.iter().for_each(|b| b.adapters(&names, errors));
    if !list {
        for backend in &backends {
            engine_port::review(backend, errors);
            claim::review(&backend.at, errors);
            kv_connector::review(backend, errors);
        }
    }
}

pub(crate) fn backends<'a>(spec: &FieldRef<'a>, errors: &mut Errors) -> (Vec<FieldRef<'a>>, bool) {
    let list = spec.field("backends");
    if list.is_present() {
        return (list.objects(errors), true);
    }
    let single = spec.field("backend").object(errors);
    let single = single.is_present().then_some(single);
    (single.into_iter().collect(), false)
}

/// Whether a single backend scales: the form before fixed replicas.
pub(crate) fn is_ranged(backend: &FieldRef<'_>) -> bool {
    let bounds = ["minReplicas", "maxReplicas"];
    bounds.iter().any(|name| backend.field(name).is_present())
}

pub(crate) fn has_policy(at: &FieldRef<'_>) -> bool {
    let by_name = at.field("autoscalingPolicyRef").field("name").scalar();
    at.field("autoscalingPolicy").is_present() || by_name.is_some_and(|name| !name.is_empty())
}

impl<'a> Backend<'a> {
    fn read(at: FieldRef<'a>, ranged: bool, errors: &mut Errors) -> Self {
        let grace = at.field("scaleToZeroGracePeriod");
        for policy in ["autoscalingPolicy", "autoscalingPolicyRef"] {
            at.field(policy).object(errors);
        }
        let workers = at.field("workers").objects(errors);
        let adapters = at.field("loraAdapters").objects(errors);
        let name = |adapter: &FieldRef<'a>| {
            let name = adapter.field("name");
            name.text(errors).map(|text| (name.path, text))
        };
        let adapters = adapters.iter().filter_map(name).collect();
        let mut int = |field: &str| at.field(field).int(errors);
        Self {
            ranged,
            min: int("minReplicas"),
            max: int("maxReplicas"),
            replicas: int("replicas"),
            cost: int("scalingCost"),
            grace: grace.duration(errors),
            has_grace: grace.is_present(),
            has_policy: has_policy(&at),
            kind: at.field("type").text(errors).unwrap_or_default(),
            workers: workers
                .into_iter()
                .map(|at| Worker {
                    kind: at.field("type").text(errors).unwrap_or("server"),
                    image: at.field("image").text(errors),
                    at,
                })
                .collect(),
            adapters,
            at,
        }
    }

    fn grace(&self, errors: &mut Errors) {
        let Some(grace) = self.grace else { return };
        if !(0..=MOST_GRACE).contains(&grace) {
            let at = self.at.field("scaleToZeroGracePeriod");
            let detail = "must be from 0s to 30m, 1800 seconds";
            errors.push(FieldError::invalid(&at.path, &at.value(), detail));
        }
    }

    fn images(&self, errors: &mut Errors) {
        for worker in &self.workers {
            let detail = match worker.image {
                Some(image) if !image.is_empty() && image.trim().is_empty() => {
                    "an image must not be blank; name one, or leave it out"
                }
                Some(image) if image.contains(char::is_whitespace) => {
                    "an image must not have whitespace in it"
                }
                _ => continue,
            };
            let at = worker.at.field("image");
            errors.push(FieldError::invalid(&at.path, &at.value(), detail));
        }
    }

    fn worker_types(&self, errors: &mut Errors) {
        let kind = self.kind;
        let wrong = |worker: &Worker<'_>, detail: String| {
            let path = worker.at.child_path("type");
            FieldError::invalid(&path, &worker.kind.into(), detail)
        };
        if SINGLE.contains(&kind) {
            match self.workers.as_slice() {
                [worker] if worker.kind == "server" => {}
                [worker] => {
                    let detail = format!("the worker of a {kind} backend must be a server");
                    errors.push(wrong(worker, detail));
                }
                several => {
                    let path = self.at.child_path("workers");
                    let detail = format!("a {kind} backend must have exactly one worker");
                    let count = Value::from(several.len());
                    errors.push(FieldError::invalid(&path, &count, detail));
                }
            }
        }
        let Some((_, allowed)) = DISAGGREGATED.iter().find(|(name, _)| *name == kind) else {
            return;
        };
        for worker in self.workers.iter().filter(|w| !allowed.contains(&w.kind)) {
            let (last, first) = allowed.split_last().unwrap_or((&"", &[]));
            let allowed = format!("{} or {last}", first.join(", "));
            let detail = format!("each worker of a {kind} backend must be of type {allowed}");
            errors.push(wrong(worker, detail));
        }
    }

    fn adapters(&self, model_names: &[Option<&str>], errors: &mut Errors) {
        let mut seen = HashSet::new();
        for (path, name) in &self.adapters {
            if model_names.contains(&Some(name)) {
                let detail = "must differ from the name of the model";
                errors.push(FieldError::invalid(path, &(*name).into(), detail));
            }
            if !seen.insert(name) {
                let detail = "another adapter of the backend has this name";
                errors.push(FieldError::invalid(path, &(*name).into(), detail));
            }
        }
    }
}

fn replicas(backends: &[Backend<'_>], list: bool, errors: &mut Errors) {
    for backend in backends.iter().filter(|b| b.ranged && b.min > b.max) {
        let at = backend.at.child_path("minReplicas");
        let detail = format!("must not be above maxReplicas, which is {}", backend.max);
        errors.push(FieldError::invalid(&at, &backend.min.into(), detail));
    }
    for backend in backends {
        if backend.replicas > MOST_REPLICAS {
            let at = backend.at.child_path("replicas");
            let detail = format!("must not be above {MOST_REPLICAS}");
            errors.push(FieldError::invalid(&at, &backend.replicas.into(), detail));
        }
    }
    let all = backends.iter().filter(|b| b.ranged);
    let sum = all.fold(0i64, |sum, b| sum.saturating_add(b.max.max(0)));
    if sum > MOST_REPLICAS {
        let path = if list {
            "spec.backends"
        } else {
            "spec.backend"
        };
        let detail = format!("maxReplicas of all backends must not be above {MOST_REPLICAS}");
        errors.push(FieldError::invalid(path, &sum.into(), detail));
    }
}

#[cfg(test)]
mod tests;
