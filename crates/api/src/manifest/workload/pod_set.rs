//! The pods of one template of a workload: how many there are, and their names and labels.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::Value;

use super::{
    super::{
        fields::Wrong,
        nulls,
        path::{FieldPath, Step},
    },
    exclusive::Exclusive,
    path::Pattern,
    table::{Bound, Count, PodRule},
};

/// The pods of one template.
#[derive(Clone, Debug, Default)]
pub(super) struct PodSet {
    pub template: PodTemplateSpec,
    /// The template's path.
    pub at: FieldPath,
    pub per_node: bool,
    /// The numbers of the pods, the outermost first.
    ranges: Vec<Range>,
    group: String,
    name: String,
    labels: BTreeMap<String, String>,
    pub exclusive: Option<Exclusive>,
    /// True for an indexed Job, whose pods have their index as an annotation.
    is_indexed: bool,
    /// The field because of which there are no pods, and its value.
    pub idle: Option<String>,
}

/// The numbers of pods.
#[derive(Clone, Debug, Default)]
struct Range {
    first: usize,
    count: usize,
    /// The first and the last index of each range that is completed, in order.
    done: Vec<(usize, usize)>,
}

impl Range {
    fn nth(&self, number: usize) -> usize {
        let mut number = self.first.saturating_add(number);
        for (first, last) in &self.done {
            if number >= *first {
                number = number.saturating_add(last - first + 1);
            }
        }
        number
    }
}

/// A pod's name, with its labels and annotations from the controller.
pub(super) struct Identity {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

impl PodSet {
    /// Returns the pods of each template at the rule's path. A faulty template or count has no pods
    /// and is added to `wrong`.
    pub(super) fn all(rule: &PodRule, object: &Value, wrong: &mut Vec<Wrong>) -> Vec<Self> {
        let places = rule.template.places(object).into_iter();
        let sets = places.filter_map(|place| match Self::new(rule, object, &place) {
            Ok(set) => set,
            Err(fault) => {
                wrong.push(fault);
                None
            }
        });
        sets.collect()
    }

    fn new(rule: &PodRule, object: &Value, place: &[Step]) -> Result<Option<Self>, Wrong> {
        let paths = [Some(&rule.template), rule.fallback.as_ref()];
        let mut paths = paths.into_iter().flatten().map(|path| path.at(place));
        let Some(at) = paths.find(|at| !at.value(object).is_null()) else {
            return Ok(None);
        };
        let mut template = at.value(object).clone();
        nulls::replace(&mut template);
        let template: PodTemplateSpec =
            serde_path_to_error::deserialize(&template).map_err(|e| {
                let what = format!("{}, so its pods are not planned", e.inner());
                (at.join(&FieldPath::of(e.path())), what)
            })?;
        let mut set = Self {
            template,
            at,
            per_node: rule.per_node,
            ranges: Vec::new(),
            group: group(rule.group.as_ref(), object, place),
            name: rule.name.clone(),
            labels: rule.labels.clone(),
            exclusive: exclusive(rule, object, place),
            is_indexed: false,
            idle: None,
        };
        for count in &rule.counts {
            set.count(count, object, place)?;
        }
        if let Some(job) = &rule.job {
            set.job(&job.at(place), object)?;
        }
        if let Some(suspend) = &rule.suspend {
            set.stop_if(&suspend.at(place), object);
        }
        Ok(Some(set))
    }

    fn count(&mut self, count: &Count, object: &Value, place: &[Step]) -> Result<(), Wrong> {
        let field = count.field.at(place);
        let bound = |bound: &Option<Bound>| match bound {
            None => Ok(None),
            Some(Bound::Number(number)) => Ok(Some(*number)),
            Some(Bound::Field(field)) => number(&field.at(place), object),
        };
        let mut amount = number(&field, object)?.unwrap_or(count.default);
        amount = amount.max(bound(&count.min)?.unwrap_or(0));
        amount = amount.min(bound(&count.max)?.unwrap_or(usize::MAX));
        let first = match &count.first {
            Some(first) => number(&first.at(place), object)?.unwrap_or(0),
            None => 0,
        };
        if amount == 0 {
            self.idle = Some(format!("{field} is 0"));
        }
        self.ranges.push(Range {
            first: first + count.skip,
            count: amount.saturating_sub(count.skip),
            done: Vec::new(),
        });
        Ok(())
    }

    /// Counts the pods of a Job with its fields at this path.
    fn job(&mut self, at: &FieldPath, object: &Value) -> Result<(), Wrong> {
        let parallelism = number(&at.key("parallelism"), object)?.unwrap_or(1);
        let completions = number(&at.key("completions"), object)?;
        let status = &object["status"];
        let succeeded = status["succeeded"].as_u64().unwrap_or(0);
        let succeeded = usize::try_from(succeeded).unwrap_or(usize::MAX);
        let count = match completions {
            Some(all) => parallelism.min(all.saturating_sub(succeeded)),
            // Without `completions`, the Job starts no new pods after a success.
            None if succeeded > 0 => 0,
            None => parallelism,
        };
        for (field, amount) in [
            ("parallelism", Some(parallelism)),
            ("completions", completions),
        ] {
            if amount == Some(0) {
                self.idle = Some(format!("{} is 0", at.key(field)));
            }
        }
        self.stop_if(&at.key("suspend"), object);
        let done = status["completedIndexes"].as_str();
        let done = done.unwrap_or_default().split(',').filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
        });
        self.is_indexed = at.key("completionMode").value(object) == "Indexed";
        self.ranges.push(Range {
            first: 0,
            count,
            done: done.filter(|(first, last)| first <= last).collect(),
        });
        Ok(())
    }

    fn stop_if(&mut self, field: &FieldPath, object: &Value) {
        if field.value(object) == true {
            self.idle = Some(format!("{field} is true"));
        }
    }

    /// Returns the number of pods.
    pub(super) fn len(&self) -> usize {
        if self.idle.is_some() || self.per_node {
            return 0;
        }
        let counts = self.ranges.iter().map(|range| range.count);
        counts.fold(1, usize::saturating_mul)
    }

    /// Returns the identity of a pod. The outermost numbers go on beyond the count.
    pub(super) fn identity(&self, namespace: &str, workload: &str, number: usize) -> Identity {
        let mut numbers = Vec::new();
        let mut left = number;
        for (i, range) in self.ranges.iter().enumerate().rev() {
            let nth = if i == 0 {
                left
            } else {
                left % range.count.max(1)
            };
            left /= range.count.max(1);
            numbers.push(range.nth(nth));
        }
        numbers.reverse();
        if numbers.is_empty() {
            numbers.push(number);
        }
        let fill = |pattern: &String| {
            let named = pattern.replace("{namespace}", namespace);
            let named = named.replace("{name}", workload);
            let mut text = named.replace("{group}", &self.group);
            for (i, number) in numbers.iter().enumerate() {
                text = text.replace(&format!("{{{i}}}"), &number.to_string());
            }
            text
        };
        let labels = self.labels.iter().map(|(key, value)| (key, fill(value)));
        let mut labels: BTreeMap<_, _> = labels.map(|(key, v)| (key.clone(), v)).collect();
        let mut annotations = BTreeMap::new();
        if self.is_indexed
            && let Some(index) = numbers.last()
        {
            let key = "batch.kubernetes.io/job-completion-index";
            labels.insert(key.to_owned(), index.to_string());
            annotations.insert(key.to_owned(), index.to_string());
        }
        Identity {
            name: fill(&self.name),
            labels,
            annotations,
        }
    }

    /// Returns whether labels are those of the template, or name the workload as its controller
    /// does.
    pub(super) fn owns(&self, workload: &str, labels: &BTreeMap<String, String>) -> bool {
        let has = |(key, value): (&String, &str)| labels.get(key).is_some_and(|v| v == value);
        let of_template = self.template.metadata.as_ref();
        let of_template = of_template.and_then(|m| m.labels.as_ref());
        let mut naming = self.labels.iter().filter(|(_, value)| *value == "{name}");
        of_template.is_some_and(|l| !l.is_empty() && l.iter().all(|(k, v)| has((k, v))))
            || naming.any(|(key, _)| has((key, workload)))
    }
}

/// Returns the name of the list element or the map entry that has the template.
fn group(field: Option<&Pattern>, object: &Value, place: &[Step]) -> String {
    let name = field.and_then(|f| f.at(place).value(object).as_str().map(str::to_owned));
    name.unwrap_or_else(|| match place.last() {
        Some(Step::Key(key)) => key.to_lowercase(),
        Some(Step::Index(index)) => index.to_string(),
        None => String::new(),
    })
}

/// Returns the exclusive topology of the pods, if the object asks for one.
fn exclusive(rule: &PodRule, object: &Value, place: &[Step]) -> Option<Exclusive> {
    let rule = rule.exclusive.clone()?;
    let keys = rule.topology.iter().map(|path| path.at(place));
    let mut keys = keys.filter_map(|at| at.value(object).as_str().map(str::to_owned));
    let topology_key = keys.next()?;
    Some(Exclusive { rule, topology_key })
}

/// Returns a count of pods; `None` if the field is absent.
fn number(field: &FieldPath, object: &Value) -> Result<Option<usize>, Wrong> {
    let value = field.value(object);
    let is_annotation = field
        .0
        .iter()
        .any(|step| *step == Step::Key("annotations".into()));
    let read = match value {
        Value::Null => return Ok(None),
        Value::String(text) if is_annotation => text.parse::<i64>().ok(),
        value => value.as_i64(),
    };
    match read {
        Some(amount) => match usize::try_from(amount) {
            Ok(amount) => Ok(Some(amount)),
            Err(_) => {
                let what = format!("is {amount}, and a count is 0 or more; correct it");
                Err((field.clone(), what))
            }
        },
        None => {
            let what = "is not a whole number; write one without quotes, such as 1";
            Err((field.clone(), what.to_owned()))
        }
    }
}
