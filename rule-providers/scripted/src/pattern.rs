//! Patterns on references and nodes: regular expressions anchored at the start,
//! as Python's `re.match` anchors them.

use regex::Regex;
use tautline_sdk::Reference;

/// A pattern on `cluster:namespace:apiVersion:Kind:name`; parts left out on the
/// left match anything.
#[derive(Debug)]
pub(crate) struct TargetPattern(Regex);

impl TargetPattern {
    pub(crate) fn new(pattern: &str) -> Result<Self, regex::Error> {
        let missing = 5usize.saturating_sub(pattern.split(':').count());
        anchored(&format!("{}{pattern}", ".*:".repeat(missing))).map(Self)
    }

    pub(crate) fn matches(&self, whole: &str) -> bool {
        self.0.is_match(whole)
    }
}

/// All five parts of a reference, empty ones too.
pub(crate) fn whole(r: &Reference) -> String {
    [&*r.cluster, &r.namespace, &r.api_version, &r.kind, &r.name].join(":")
}

/// A pattern on a node: on `cluster:name` if it has a colon, else on the name.
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
            // This cluster has no name.
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
                TargetPattern::new(pattern).unwrap().matches(&pod),
                matches,
                "{pattern}"
            );
        }
        assert!(
            NodePattern::new(".*:.*control*")
                .unwrap()
                .matches("my-control-1")
        );
        assert!(!NodePattern::new("control").unwrap().matches("my-control-1"));
    }
}
