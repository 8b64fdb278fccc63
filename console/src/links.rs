//! The addresses of pages. Names in them are escaped.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The characters that are escaped in a segment of a path or a field of a query.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Escapes text for a segment of a path or a field of a query.
pub(crate) fn escaped(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// Returns a path with a query, escaped for a link.
pub fn link<'a>(path: &str, query: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut all = path.to_owned();
    for (name, value) in query {
        all.push(if all.contains('?') { '&' } else { '?' });
        all += &format!("{}={}", escaped(name), escaped(value));
    }
    all
}

/// Returns a path of escaped segments, such as `/bindings/shop/web-1`.
pub(crate) fn path(segments: &[&str]) -> String {
    let segments = segments.iter();
    segments.map(|s| format!("/{}", escaped(s))).collect()
}

/// Returns the link to the page of a pod's decisions.
pub(crate) fn pod(namespace: &str, pod: &str) -> String {
    path(&["decisions", namespace, pod])
}

/// Returns the link to the page of a binding.
pub(crate) fn binding(namespace: &str, name: &str) -> String {
    path(&["bindings", namespace, name])
}

/// Returns the link to the page of a node's cards.
pub(crate) fn gpus(node: &str) -> String {
    path(&["gpu", node])
}

/// Returns the link to the page of the network around a node.
pub(crate) fn latency(node: &str) -> String {
    link("/latency", [("node", node)])
}

/// Returns the link to the page of two nodes.
pub(crate) fn pair(from: &str, to: &str) -> String {
    path(&["latency", "pair", from, to])
}

/// Returns the link to an offer.
pub(crate) fn offer(namespace: &str, name: &str) -> String {
    let fields = [("list", "offers"), ("namespace", namespace), ("name", name)];
    link("/policies", fields)
}

/// Returns the link to a policy.
pub(crate) fn policy(namespace: &str, name: &str) -> String {
    let fields = [
        ("list", "policies"),
        ("namespace", namespace),
        ("name", name),
    ];
    link("/policies", fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_escaped() {
        let query = [("q", "a&b=\"<ü")];
        assert_eq!(link("/x", query), "/x?q=a%26b%3D%22%3C%C3%BC");
        assert_eq!(path(&["a/b", "..", ""]), "/a%2Fb/../");
    }
}
