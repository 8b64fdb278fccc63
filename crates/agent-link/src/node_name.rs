/// The longest name of a node.
pub const MAX_NODE_NAME_BYTES: usize = 253;

/// Whether a text may be a node's name. Reports and logs show the names that agents state, even
/// those of agents without proof.
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
