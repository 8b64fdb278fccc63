//! The conditions of a CEL selector that can be read without CEL: equalities that must all hold.
//! They only narrow down the devices for a score; the scheduler decides about the fit.

use super::model::Device;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    Driver,
    Attribute { domain: String, name: String },
}

/// The equalities of selectors that a device must meet. Parts of selectors that cannot be read are
/// left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Conditions {
    equal: Vec<(Operand, String)>,
    /// True if no part was left out, so that the conditions are exactly those of the selectors.
    pub(super) are_complete: bool,
}

/// Returns whether a CEL expression of a selector is read in full.
pub fn is_readable(expression: &str) -> bool {
    Conditions::read([expression]).are_complete
}

impl Conditions {
    pub(super) fn read<'a>(selectors: impl IntoIterator<Item = &'a str>) -> Self {
        let mut read = Self {
            are_complete: true,
            ..Self::default()
        };
        for selector in selectors {
            let parts = conjuncts(selector);
            read.are_complete &= parts.is_some();
            for part in parts.into_iter().flatten().map(equality) {
                read.are_complete &= part.is_some();
                read.equal.extend(part);
            }
        }
        read
    }

    pub(super) fn hold(&self, driver: &str, device: &Device) -> bool {
        self.equal.iter().all(|(subject, want)| match subject {
            Operand::Driver => driver == want,
            Operand::Attribute { domain, name } => {
                let found = if domain == driver {
                    device.text(name)
                } else {
                    device.text(&format!("{domain}/{name}"))
                };
                found == Some(want.as_str())
            }
        })
    }
}

/// Returns the operands of `&&` at the top level; `None` if an operator at that level binds less
/// tightly, or if the text has an escape in quotes or is not balanced.
fn conjuncts(text: &str) -> Option<Vec<&str>> {
    let bytes = text.as_bytes();
    let (mut parts, mut begin, mut depth, mut at) = (Vec::new(), 0, 0i32, 0);
    let mut quote = None;
    while let Some(&byte) = bytes.get(at) {
        match (quote, byte) {
            (Some(_), b'\\') => return None,
            (Some(open), b) if b == open => quote = None,
            (Some(_), _) => {}
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, b'(' | b'[' | b'{') => depth += 1,
            (None, b')' | b']' | b'}') => depth -= 1,
            (None, b'?' | b'|') if depth == 0 => return None,
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

/// Parses `device.driver == "x"` or `device.attributes["d"].n == "x"`.
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
        let attribute = |name: &str| Operand::Attribute {
            domain: "gpu.nvidia.com".into(),
            name: name.into(),
        };
        let equal = [
            (Operand::Driver, "gpu.nvidia.com".into()),
            (attribute("type"), "mig".into()),
            (attribute("profile"), "1g.10gb".into()),
        ];
        assert_eq!(of.equal, equal);
        assert!(of.are_complete);
    }

    #[test]
    fn unreadable_parts_are_left_out() {
        let of = read(
            "device.driver == 'd' && (device.attributes['d'].model == 'a' || true) && device.capacity['d'].memory.compareTo(quantity('40Gi')) >= 0",
        );
        assert_eq!(of.equal, [(Operand::Driver, "d".into())]);
        assert!(!of.are_complete);
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
            assert_eq!(read(text), Conditions::default(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "(device.driver|==|&&|'|\"|\\(|\\)|é|\\||x|\\[|\\]| ){0,20}") {
            _ = read(&text);
        }
    }
}
