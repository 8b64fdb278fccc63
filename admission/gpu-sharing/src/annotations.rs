//! Reads the annotations of a pod that control GPU sharing, such as the number of units for each
//! card.

use serde_json::Value;

use crate::{
    MAX_RATIO, Refusal, Source,
    policy::workloads,
    text::{quoted, shown},
    workload_ratio,
};

const DOMAINS: [&str; 2] = ["castops.io", "tautline.io"];

pub(crate) struct Found<'a> {
    pub(crate) key: String,
    pub(crate) value: &'a str,
}

/// Returns the annotation of this name in either domain. A pod may have both if their values are
/// equal.
pub(crate) fn find<'a>(pod: &'a Value, name: &str) -> Result<Option<Found<'a>>, Refusal> {
    let mut found: Option<Found<'a>> = None;
    for domain in DOMAINS {
        let key = format!("{domain}/{name}");
        let value = match &pod["metadata"]["annotations"][&key] {
            Value::Null => continue,
            Value::String(value) => value.as_str(),
            other => {
                return Err(Refusal(format!(
                    "annotation {key} is {}; put it in quotes",
                    shown(other)
                )));
            }
        };
        match &found {
            Some(first) if first.value != value => {
                return Err(Refusal(format!(
                    "annotation {} is {} and {key} is {}; keep one of them",
                    first.key,
                    quoted(first.value),
                    quoted(value)
                )));
            }
            Some(_) => {}
            None => found = Some(Found { key, value }),
        }
    }
    Ok(found)
}

/// Returns the ratio that the annotations give. All annotations must be valid, even if another one
/// takes precedence.
pub(crate) fn ratio(pod: &Value) -> Result<Option<(i64, Source)>, Refusal> {
    let number = |value: &str| value.parse().ok().filter(|n| (1..=MAX_RATIO).contains(n));
    let by_number = ratio_by(pod, "slice-ratio", number, || {
        format!("a whole number from 1 to {MAX_RATIO}")
    })?;
    let by_workload = ratio_by(pod, "workload-type", workload_ratio, workloads)?;
    Ok(by_number.or(by_workload))
}

fn ratio_by(
    pod: &Value,
    name: &str,
    parse: impl Fn(&str) -> Option<i64>,
    valid: impl Fn() -> String,
) -> Result<Option<(i64, Source)>, Refusal> {
    let Some(Found { key, value }) = find(pod, name)? else {
        return Ok(None);
    };
    match parse(value) {
        Some(ratio) => Ok(Some((ratio, Source::Annotation(key)))),
        None => Err(Refusal(format!(
            "annotation {key} is {}; write {}",
            quoted(value),
            valid()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(annotations: Value) -> Result<Option<i64>, String> {
        let pod = json!({"metadata": {"annotations": annotations}});
        ratio(&pod)
            .map(|found| found.map(|(ratio, _)| ratio))
            .map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn numbers_and_workloads() {
        for (text, number) in [("1", 1), ("64", 64), ("08", 8), ("+4", 4)] {
            assert_eq!(
                of(json!({"castops.io/slice-ratio": text})),
                Ok(Some(number))
            );
            assert_eq!(
                of(json!({"tautline.io/slice-ratio": text})),
                Ok(Some(number))
            );
        }
        for (text, number) in [("training", 4), ("inference", 2), ("batch", 2), ("dev", 1)] {
            let annotations = json!({"castops.io/workload-type": text});
            assert_eq!(of(annotations), Ok(Some(number)));
        }
        assert_eq!(of(json!({})), Ok(None));
        assert_eq!(of(Value::Null), Ok(None));
    }

    #[test]
    fn the_number_is_stronger_than_the_workload() {
        let both = json!({"castops.io/slice-ratio": "3", "castops.io/workload-type": "training"});
        assert_eq!(of(both), Ok(Some(3)));
    }

    #[test]
    fn bad_ones_are_named() {
        for bad in [
            "0",
            "-1",
            "65",
            "2.0",
            "two",
            "",
            " 2",
            "9999999999999999999999",
        ] {
            let message = of(json!({"castops.io/slice-ratio": bad})).unwrap_err();
            assert_eq!(
                message,
                format!(
                    "annotation castops.io/slice-ratio is {bad:?}; \
                     write a whole number from 1 to 64"
                )
            );
        }
        for bad in ["Training", "rendering", ""] {
            let message = of(json!({"tautline.io/workload-type": bad})).unwrap_err();
            assert_eq!(
                message,
                format!(
                    "annotation tautline.io/workload-type is {bad:?}; \
                     write training, inference, batch or dev"
                )
            );
        }
        // The annotation of lower precedence is checked, too.
        let both = json!({"castops.io/slice-ratio": "3", "castops.io/workload-type": "x"});
        assert!(of(both).unwrap_err().contains("workload-type"));
        let number = of(json!({"castops.io/slice-ratio": 3})).unwrap_err();
        assert_eq!(
            number,
            "annotation castops.io/slice-ratio is 3; put it in quotes"
        );
    }

    #[test]
    fn both_domains_must_agree() {
        let same = json!({"castops.io/slice-ratio": "3", "tautline.io/slice-ratio": "3"});
        assert_eq!(of(same), Ok(Some(3)));
        let differ = json!({"castops.io/slice-ratio": "3", "tautline.io/slice-ratio": "4"});
        assert_eq!(
            of(differ).unwrap_err(),
            "annotation castops.io/slice-ratio is \"3\" and tautline.io/slice-ratio is \"4\"; \
             keep one of them"
        );
    }
}
