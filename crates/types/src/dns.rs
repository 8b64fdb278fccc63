//! Checks names of Kubernetes objects before they become part of a URL.

const MAX_LABEL_BYTES: usize = 63;
const MAX_NAME_BYTES: usize = 253;

/// Returns whether a text is an RFC 1123 label, such as the name of a namespace.
pub fn is_label(text: &str) -> bool {
    text.len() <= MAX_LABEL_BYTES && is_part(text)
}

/// Returns whether a text is an RFC 1123 subdomain, such as the name of a pod or node. Only the
/// length of the whole name is limited, as in Kubernetes.
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= MAX_NAME_BYTES && text.split('.').all(is_part)
}

fn is_part(text: &str) -> bool {
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let (first, last) = (text.bytes().next(), text.bytes().last());
    first.is_some_and(alphanumeric)
        && last.is_some_and(alphanumeric)
        && text.bytes().all(|b| alphanumeric(b) || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dns_checks_reject_paths() {
        for name in ["a", "web-0", "0", &"a".repeat(63)] {
            assert!(is_label(name) && is_subdomain(name), "{name}");
        }
        for name in ["node.example.com", &"a".repeat(253)] {
            assert!(!is_label(name) && is_subdomain(name), "{name}");
        }
        for text in [
            "", "-a", "a-", "A", "a/b", "..", "a..b", ".a", "a.", "a?b", "a%2fb", "a b", "é",
        ] {
            assert!(!is_label(text) && !is_subdomain(text), "{text}");
        }
        assert!(!is_subdomain(&"a".repeat(254)));
    }
}
