/// The maximum length of a node's name, in bytes.
pub const MAX_NODE_NAME_BYTES: usize = 253;

/// Returns whether a text has the form of a node's name. The check protects reports and logs, which
/// show the names that agents send, even those of agents without proof.
pub fn is_node_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
    (1..=MAX_NODE_NAME_BYTES).contains(&name.len()) && name.bytes().all(plain)
}

#[test]
fn names_of_nodes_are_plain() {
    for (name, valid) in [
        ("north-1.example", true),
        ("", false),
        ("a\u{1b}[2J", false),
        ("a\nb", false),
        ("a\u{202e}b", false),
        (&"a".repeat(254), false),
    ] {
        assert_eq!(is_node_name(name), valid, "{name:?}");
    }
}
