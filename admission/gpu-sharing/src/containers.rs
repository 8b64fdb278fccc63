use serde_json::{Value, json};
use tautline_core::quantity;

use crate::{Names, Refusal, text::shown};

/// The fields of `resources` that name an extended resource. The API server requires a limit and an
/// equal request.
const HALVES: [&str; 2] = ["limits", "requests"];

/// The new request of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The container's name.
    pub container: String,
    /// True for an init container.
    pub init: bool,
    /// The number of whole cards that the container requested.
    pub cards: i64,
    /// The number of units that the container requests now: `cards` times the ratio gives shares,
    /// whose units are added to the units that it requested before.
    pub units: i64,
}

/// A container that requests cards, or has a request that cannot be read.
pub(crate) struct GpuContainer<'a> {
    at: String,
    container: &'a str,
    init: bool,
    resources: &'a Value,
}

pub(crate) fn gpu_containers<'a>(names: &Names, pod: &'a Value) -> Vec<GpuContainer<'a>> {
    let lists = [("initContainers", true), ("containers", false)];
    let each = lists.into_iter().flat_map(|(list, init)| {
        let containers = pod["spec"][list].as_array().into_iter().flatten();
        containers
            .enumerate()
            .map(move |(i, container)| GpuContainer {
                at: format!("/spec/{list}/{i}"),
                container: container["name"].as_str().unwrap_or_default(),
                init,
                resources: &container["resources"],
            })
    });
    let requests_cards = |c: &GpuContainer<'_>| c.amount(&names.whole) != Ok(0);
    each.filter(requests_cards).collect()
}

impl GpuContainer<'_> {
    pub(crate) fn share(
        &self,
        names: &Names,
        ratio: i64,
        patch: &mut Vec<Value>,
    ) -> Result<Change, Refusal> {
        let cards = self.amount(&names.whole)?;
        let shared = self.amount(&names.shared)?;
        // Each amount is at most 9P, so only thousandths of cards can reach the bound of i64.
        let units = names
            .units(cards.saturating_mul(ratio))
            .saturating_add(shared);
        let text = units.to_string();
        for half in HALVES {
            let at = format!("{}/resources/{half}", self.at);
            let Some(resources) = self.resources[half].as_object() else {
                patch.push(json!({"op": "add", "path": at, "value": {&names.shared: text}}));
                continue;
            };
            if resources.contains_key(&names.whole) {
                let path = format!("{at}/{}", escape(&names.whole));
                patch.push(json!({"op": "remove", "path": path}));
            }
            let path = format!("{at}/{}", escape(&names.shared));
            patch.push(json!({"op": "add", "path": path, "value": text}));
        }
        Ok(Change {
            container: self.container.to_owned(),
            init: self.init,
            cards,
            units,
        })
    }

    /// Returns the amount of a resource that the container requests. Like the API server, it
    /// refuses fractions, negative amounts, and limits that differ from requests.
    fn amount(&self, resource: &str) -> Result<i64, Refusal> {
        let mut amounts = [None; 2];
        for (half, amount) in HALVES.iter().zip(&mut amounts) {
            let Some(value) = self.resources[half].get(resource) else {
                continue;
            };
            let whole = whole(value);
            *amount = Some(whole.ok_or_else(|| {
                let what = format!("is {}; write a whole number from 0 to 9P", shown(value));
                self.refusal(&format!("{half}[{resource}]"), &what)
            })?);
        }
        match amounts {
            [None, None] => Ok(0),
            [Some(amount), None] | [None, Some(amount)] => Ok(amount),
            [Some(limit), Some(request)] if limit == request => Ok(limit),
            [Some(limit), Some(request)] => Err(self.refusal(
                resource,
                &format!("is {limit} in limits and {request} in requests; make them equal"),
            )),
        }
    }

    fn refusal(&self, field: &str, what: &str) -> Refusal {
        let kind = if self.init {
            "init container"
        } else {
            "container"
        };
        let container = crate::text::quoted(self.container);
        Refusal(format!("{kind} {container}: {field} {what}"))
    }
}

/// Parses an amount as the API server does (`2`, `"2"`, `"2k"`, `"2000m"`, null). Returns `None`
/// unless it is whole and not negative.
fn whole(value: &Value) -> Option<i64> {
    let milli = match value {
        Value::Null => 0,
        Value::String(text) => quantity::parse_milli(text.trim()).ok()?,
        Value::Number(number) => quantity::parse_milli(&number.to_string()).ok()?,
        _ => return None,
    };
    (milli % 1000 == 0 && milli < i64::MAX / 1000 * 1000).then_some(milli / 1000)
}

/// Escapes a key for a JSON pointer (RFC 6901).
fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_as_the_server_reads_them() {
        for (value, want) in [
            (json!("2"), 2),
            (json!(2), 2),
            (json!(2.0), 2),
            (json!("2k"), 2_000),
            (json!("1Ki"), 1_024),
            (json!("1.5k"), 1_500),
            (json!("1e1"), 10),
            (json!("2000m"), 2),
            (json!(" 2 "), 2),
            (json!("+2"), 2),
            (json!("0"), 0),
            (Value::Null, 0),
        ] {
            assert_eq!(whole(&value), Some(want), "{value}");
        }
        for bad in [
            json!("500m"),
            json!(1.5),
            json!("-1"),
            json!(-1),
            json!("two"),
            json!(""),
            json!("1n"),
            json!(true),
            json!({}),
            json!("10P"),
            json!("1e30"),
        ] {
            assert_eq!(whole(&bad), None, "{bad}");
        }
    }

    #[test]
    fn a_key_in_a_pointer() {
        assert_eq!(escape("nvidia.com/gpu"), "nvidia.com~1gpu");
        assert_eq!(escape("a~b/c"), "a~0b~1c");
    }
}
