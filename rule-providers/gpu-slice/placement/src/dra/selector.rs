//! The conditions in a CEL selector that can be read without CEL: comparisons for equality that
//! must all hold. The scheduler decides about the fit; these conditions only narrow down the
//! devices for a score.

use super::model::{Attribute, Device};

/// The left side of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// `device.driver`
    Driver,
    /// `device.attributes["domain"].name`
    Attribute { domain: String, name: String },
}

/// Comparisons that must all hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    pub equal: Vec<(Operand, String)>,
    /// There is more than these comparisons, which only the scheduler can judge.
    pub incomplete: bool,
}

impl Conditions {
    /// Reads selectors, all of which must hold.
    pub fn read<'a>(selectors: impl IntoIterator<Item = &'a str>) -> Self {
        let mut out = Self::default();
        for selector in selectors {
            match conjuncts(selector) {
                None => out.incomplete = true,
                Some(parts) => {
                    for part in parts {
                        match equality(part) {
                            Some(equal) => out.equal.push(equal),
                            None => out.incomplete = true,
                        }
                    }
                }
            }
        }
        out
    }

    /// The driver that is required, if one is.
    pub fn driver(&self) -> Option<&str> {
        let of_driver = |(subject, _): &&(Operand, String)| *subject == Operand::Driver;
        self.equal.iter().find(of_driver).map(|(_, v)| v.as_str())
    }

    /// The value that an attribute of the driver's own domain must have.
    pub fn attribute(&self, wanted: &str) -> Option<&str> {
        self.equal
            .iter()
            .find_map(|(subject, value)| match subject {
                Operand::Attribute { name, .. } if name == wanted => Some(value.as_str()),
                _ => None,
            })
    }

    /// Whether all comparisons hold of a device.
    pub fn hold(&self, driver: &str, device: &Device) -> bool {
        self.equal.iter().all(|(subject, want)| match subject {
            Operand::Driver => driver == want,
            Operand::Attribute { domain, name } => {
                let found = if domain == driver {
                    device.attributes.get(name.as_str())
                } else {
                    device.attributes.get(format!("{domain}/{name}").as_str())
                };
                matches!(found, Some(Attribute::Text(text)) if text == want)
            }
        })
    }
}

/// The parts of an expression that `&&` joins at its top; `None` if something
/// binds less tightly there, so that no part must hold.
fn conjuncts(text: &str) -> Option<Vec<&str>> {
    let bytes = text.as_bytes();
    let (mut parts, mut begin, mut depth, mut at) = (Vec::new(), 0, 0i32, 0);
    let mut quote = None;
    while let Some(&byte) = bytes.get(at) {
        match (quote, byte) {
            // Escapes are rare, and what follows them is not worth reading.
            (Some(_), b'\\') => return None,
            (Some(open), b) if b == open => quote = None,
            (Some(_), _) => {}
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, b'(' | b'[' | b'{') => depth += 1,
            (None, b')' | b']' | b'}') => depth -= 1,
            (None, b'?') if depth == 0 => return None,
            (None, b'|') if depth == 0 => return None,
            (None, b'&') if depth == 0 && bytes.get(at + 1) == Some(&b'&') => {
                parts.push(text.get(begin..at)?.trim());
                at += 1;
                begin = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    parts.push(text.get(begin..)?.trim());
    (quote.is_none() && depth == 0).then_some(parts)
}

/// `device.driver == "x"` or `device.attributes["d"].n == "x"`.
fn equality(part: &str) -> Option<(Operand, String)> {
    let (left, right) = part.split_once("==")?;
    let value = quoted(right.trim())?;
    let left = left.trim();
    if left == "device.driver" {
        return Some((Operand::Driver, value));
    }
    let (domain, name) = left.strip_prefix("device.attributes[")?.split_once("].")?;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let subject = Operand::Attribute {
        domain: quoted(domain.trim())?,
        name: name.chars().all(plain).then(|| name.to_owned())?,
    };
    Some((subject, value))
}

fn quoted(text: &str) -> Option<String> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
    (!inner.contains([quote, '\\'])).then(|| inner.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Conditions {
        Conditions::read([text])
    }

    #[test]
    fn equalities_that_all_must_hold() {
        let of = read(
            "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == \"mig\"\n  && device.attributes[\"gpu.nvidia.com\"].profile == '1g.10gb'",
        );
        assert!(!of.incomplete);
        assert_eq!(of.driver(), Some("gpu.nvidia.com"));
        assert_eq!(of.attribute("profile"), Some("1g.10gb"));
        assert_eq!(of.attribute("uuid"), None);
    }

    #[test]
    fn what_is_not_understood_is_said() {
        let of = read(
            "device.driver == 'd' && (device.attributes['d'].model == 'a' || true) && device.capacity['d'].memory.compareTo(quantity('40Gi')) >= 0",
        );
        assert!(of.incomplete && of.driver() == Some("d") && of.equal.len() == 1);
        for text in [
            "device.driver == 'a' || device.driver == 'b'",
            "device.driver == 'a' ? true : false",
            "!(device.driver == 'a')",
            "device.driver != 'a'",
            "'a' == device.driver",
            "device.attributes['d'].model.lowerAscii() == 'a'",
            "device.driver == 'a' + 'b'",
            "device.driver == 'a",
            "true",
            "",
        ] {
            let of = read(text);
            assert!(of.incomplete && of.equal.is_empty(), "{text}: {of:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "(device.driver|==|&&|'|\"|\\(|\\)|é|\\||x|\\[|\\]| ){0,20}") {
            _ = read(&text);
        }
    }
}
