//! Validates the models of Kthena's registry: their backends, workers, replicas and LoRA adapters.

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

const MAX_REPLICAS: i64 = 1_000_000;
const MAX_GRACE_NANOS: Nanos = 1800 * 1_000_000_000;

/// The backend types with one server worker.
const SINGLE: [&str; 3] = ["vLLM", "SGLang", "MindIE"];
/// The backend types with several workers, and the types that their workers may have.
const DISAGGREGATED: [(&str, &[&str]); 2] = [
    ("vLLMDisaggregated", &["prefill", "decode"]),
    (
        "MindIEDisaggregated",
        &["prefill", "decode", "controller", "coordinator"],
    ),
];

/// The form of a model. It shows which version of Kthena the model is for, whose rules apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `spec.backends`, up to v0.1.
    List,
    /// `spec.backend` between minReplicas and maxReplicas, from v0.2 to v0.4.
    Ranged,
    /// `spec.backend` with fixed replicas, from v1.0 on.
    Fixed,
}

struct Backend<'a> {
    at: FieldRef<'a>,
    min: i64,
    max: i64,
    kind: &'a str,
    workers: Vec<Worker<'a>>,
}

struct Worker<'a> {
    at: FieldRef<'a>,
    kind: &'a str,
    image: Option<&'a str>,
}

pub(crate) fn review(root: &FieldRef<'_>, spec: &FieldRef<'_>, errors: &mut Errors) {
    let (places, form) = backends(spec, errors);
    if places.is_empty() && form == Form::Fixed {
        let detail = "name at least one backend, or the only one in spec.backend";
        errors.push(FieldError::required("spec.backends", detail));
    }
    let read = |at| Backend::read(at, errors);
    let backends: Vec<Backend<'_>> = places.into_iter().map(read).collect();
    if form == Form::List {
        backends.iter().for_each(|b| b.grace(errors));
    }
    replicas(&backends, form, errors);
    backends.iter().for_each(|b| b.images(errors));
    match form {
        Form::List => autoscaling::review(spec, &backends, errors),
        Form::Ranged => autoscaling::review_single(spec, &backends, errors),
        Form::Fixed => {}
    }
    backends.iter().for_each(|b| b.worker_types(errors));
    match form {
        Form::List => {
            let metadata = root.field("metadata").object(errors);
            let names = [metadata.field("name"), spec.field("name")];
            let names = names.map(|name| name.text(errors));
            backends.iter().for_each(|b| b.adapters(&names, errors));
        }
        Form::Ranged => {}
        Form::Fixed => {
            for backend in &backends {
                engine_port::review(backend, errors);
                claim::review(&backend.at, errors);
                kv_connector::review(backend, errors);
            }
        }
    }
}

pub(crate) fn backends<'a>(spec: &FieldRef<'a>, errors: &mut Errors) -> (Vec<FieldRef<'a>>, Form) {
    let list = spec.field("backends");
    if list.is_present() {
        return (list.objects(errors), Form::List);
    }
    let single = spec.field("backend").object(errors);
    let bounds = ["minReplicas", "maxReplicas"];
    let form = if bounds.iter().any(|name| single.field(name).is_present()) {
        Form::Ranged
    } else {
        Form::Fixed
    };
    let single = single.is_present().then_some(single);
    (single.into_iter().collect(), form)
}

/// Returns whether a model or a backend of the list form has an autoscaling policy.
pub(crate) fn has_policy(at: &FieldRef<'_>) -> bool {
    let by_name = at.field("autoscalingPolicyRef").field("name").scalar();
    at.field("autoscalingPolicy").is_present() || by_name.is_some_and(|name| !name.is_empty())
}

impl<'a> Backend<'a> {
    fn read(at: FieldRef<'a>, errors: &mut Errors) -> Self {
        let workers = at.field("workers").objects(errors);
        Self {
            min: at.field("minReplicas").int(errors),
            max: at.field("maxReplicas").int(errors),
            kind: at.field("type").text(errors).unwrap_or_default(),
            workers: workers
                .into_iter()
                .map(|at| Worker {
                    kind: at.field("type").text(errors).unwrap_or("server"),
                    image: at.field("image").text(errors),
                    at,
                })
                .collect(),
            at,
        }
    }

    fn grace(&self, errors: &mut Errors) {
        let at = self.at.field("scaleToZeroGracePeriod");
        let grace = at.duration(errors);
        if grace.is_some_and(|grace| !(0..=MAX_GRACE_NANOS).contains(&grace)) {
            let detail = "must be from 0s to 30m, 1800 seconds";
            at.invalid(detail, errors);
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
            at.invalid(detail, errors);
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
        for adapter in self.at.field("loraAdapters").objects(errors) {
            let at = adapter.field("name");
            let Some(name) = at.text(errors) else {
                continue;
            };
            if model_names.contains(&Some(name)) {
                let detail = "must differ from the name of the model";
                errors.push(FieldError::invalid(&at.path, &name.into(), detail));
            }
            if !seen.insert(name) {
                let detail = "another adapter of the backend has this name";
                errors.push(FieldError::invalid(&at.path, &name.into(), detail));
            }
        }
    }
}

fn replicas(backends: &[Backend<'_>], form: Form, errors: &mut Errors) {
    if form == Form::Fixed {
        for backend in backends {
            let at = backend.at.field("replicas");
            let replicas = at.int(errors);
            if replicas > MAX_REPLICAS {
                let detail = format!("must not be above {MAX_REPLICAS}");
                errors.push(FieldError::invalid(&at.path, &replicas.into(), detail));
            }
        }
        return;
    }
    for backend in backends.iter().filter(|b| b.min > b.max) {
        let at = backend.at.child_path("minReplicas");
        let detail = format!("must not be above maxReplicas, which is {}", backend.max);
        errors.push(FieldError::invalid(&at, &backend.min.into(), detail));
    }
    let max = backends.iter().map(|b| b.max.max(0));
    let sum = max.fold(0, i64::saturating_add);
    if sum > MAX_REPLICAS {
        let path = match form {
            Form::List => "spec.backends",
            Form::Ranged | Form::Fixed => "spec.backend",
        };
        let detail = format!("maxReplicas of all backends must not be above {MAX_REPLICAS}");
        errors.push(FieldError::invalid(path, &sum.into(), detail));
    }
}

#[cfg(test)]
mod tests;
