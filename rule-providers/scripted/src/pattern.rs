//! Regular expressions for references and nodes, anchored at the start like Python's `re.match`.

use regex::Regex;
use tautline_sdk::Reference;

/// Makes a pattern of [`whole`] references, of which parts may be missing on the left.
pub(crate) fn target(pattern: &str) -> Result<Regex, regex::Error> {
    let missing = 5usize.saturating_sub(pattern.split(':').count());
    anchored(&format!("{}{pattern}", ".*:".repeat(missing)))
}

/// Returns `cluster:namespace:apiVersion:Kind:name`.
pub(crate) fn whole(r: &Reference) -> String {
    [&*r.cluster, &r.namespace, &r.api_version, &r.kind, &r.name].join(":")
}

/// A pattern of `cluster:name` if it contains a colon, else of the node's name.
#[derive(Debug)]
pub(crate) struct NodePattern {
    regex: Regex,
    with_cluster: bool,
}

impl NodePattern {
    pub(crate) fn new(pattern: &str) -> Result<Self, regex::Error> {
        Ok(Self {
            regex: anchored(pattern)?,
            with_cluster: pattern.contains(':'),
        })
    }

    pub(crate) fn matches(&self, node: &str) -> bool {
        if self.with_cluster {
            self.regex.is_match(&format!(":{node}"))
        } else {
            self.regex.is_match(node)
        }
    }
}

fn anchored(pattern: &str) -> Result<Regex, regex::Error> {
    regex::RegexBuilder::new(&format!("^(?:{pattern})"))
        .size_limit(1 << 20)
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_parts_and_anchors() {
        let pod = whole(&Reference::pod("shop", "web-0"));
        assert_eq!(pod, ":shop:v1:Pod:web-0");
        for (pattern, matches) in [
            ("web-0", true),
            ("web", true),
            ("eb", false),
            ("Pod:web.*", true),
            ("Service:web.*", false),
            ("shop:v1:Pod:.*", true),
            ("other:v1:Pod:.*", false),
            (".*:.*:.*:Pod:web.*", true),
            ("edge:.*:.*:.*:.*", false),
        ] {
            assert_eq!(
                target(pattern).unwrap().is_match(&pod),
                matches,
                "{pattern}"
            );
        }
        for (pattern, matches) in [(".*:.*control*", true), ("control", false), ("^my", true)] {
            let found = NodePattern::new(pattern).unwrap().matches("my-control-1");
            assert_eq!(found, matches, "{pattern}");
        }
    }
}
