//! `ExtenderArgs` to the letter as kube-scheduler sends it to a `nodeCacheCapable`
//! extender: the pod, no node objects, names without escapes last. Of an ungoverned
//! pod's request the names are nearly all, and only have to go back; so they are looked
//! at several bytes at a time, which a parser cannot.

use serde_json::value::RawValue;

use crate::wire::{Args, Nodes};

/// What a parser would read; `None` says nothing of the request but that it needs one.
pub(crate) fn args(json: &str) -> Option<Args<'_>> {
    let rest = json.strip_prefix(r#"{"Pod":"#)?;
    if !rest.starts_with('{') {
        return None;
    }
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<&RawValue>();
    let pod = values.next()?.ok()?;
    let names = rest[values.byte_offset()..]
        .strip_prefix(r#","Nodes":null,"NodeNames":"#)?
        .strip_suffix('}')?;
    is_plain_list(names.as_bytes()).then_some(Args {
        pod,
        nodes: Nodes::Names(names),
    })
}

/// Whether it is a JSON list of strings in which there is no escape, quote or comma:
/// between the outer quotes, beside which there is no comma, each comma stands between
/// two quotes, and each quote beside one comma. `&` in place of `&&`: without a branch it
/// compiles to vector instructions, and takes a third of a parser's time, not six times that.
fn is_plain_list(list: &[u8]) -> bool {
    let outer = list.len() >= 4 && list.starts_with(b"[\"") && list.ends_with(b"\"]");
    if !outer || list.starts_with(b"[\",") || list.ends_with(b",\"]") {
        return false;
    }
    let inner = &list[1..list.len() - 1];
    inner.windows(3).fold(true, |plain, around| {
        let [before, byte, after] = [around[0], around[1], around[2]];
        plain
            & (byte >= b' ')
            & (byte != b'\\')
            & ((byte != b',') | ((before == b'"') & (after == b'"')))
            & ((byte != b'"') | ((before == b',') ^ (after == b',')))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_kube_scheduler_sends_needs_no_parser() {
        for names in [r#"[""]"#, r#"["a"]"#, r#"["n-0","n-1.example","","x"]"#] {
            let json = format!(r#"{{"Pod":{{"a":"}}"}},"Nodes":null,"NodeNames":{names}}}"#);
            let args = args(&json).expect(names);
            assert_eq!(args.pod.get(), r#"{"a":"}"}"#);
            assert!(matches!(args.nodes, Nodes::Names(n) if n == names));
        }
    }

    #[test]
    fn all_else_is_left_to_the_parser() {
        for json in [
            "",
            r#"{"Pod":null,"Nodes":null,"NodeNames":["a"]}"#,
            r#"{"Pod":{},"Nodes":null,"NodeNames":[]}"#,
            r#"{"Pod":{},"Nodes":null,"NodeNames":["a"]} "#,
            r#"{"Pod":{},"Nodes":null,"NodeNames":["a"],"x":["b"]}"#,
            r#"{"Pod":{},"Nodes":{},"NodeNames":["a"]}"#,
            r#"{"Pod":{},"Nodes":null,"NodeNames":[","b"]}"#,
            r#"{"Pod":{,"Nodes":null,"NodeNames":["a"]}"#,
        ] {
            assert!(args(json).is_none(), "{json}");
        }
    }

    /// All lists of up to seven of the bytes that matter.
    #[test]
    fn what_passes_is_a_list_of_the_same_names() {
        let mut inners = vec![String::new()];
        let (mut first, mut passed) = (0, 0);
        for _ in 0..7 {
            let longer = inners.len();
            for at in first..longer {
                for byte in ['a', '"', ',', '\\', '\n'] {
                    inners.push(format!("{}{byte}", inners[at]));
                }
            }
            first = longer;
        }
        for inner in inners {
            let list = format!("[\"{inner}\"]");
            let passes = is_plain_list(list.as_bytes());
            let names: Result<Vec<&str>, _> = serde_json::from_str(&list);
            match &names {
                Ok(names) if passes => assert_eq!(names.join("\",\""), inner),
                Ok(names) => {
                    let comma = names.iter().any(|name| name.contains(','));
                    assert!(comma || list.contains('\n'), "{list} is refused");
                }
                // With an escape it is no list of borrowed strings.
                Err(_) => assert!(!passes, "{list} passes"),
            }
            passed += usize::from(passes);
        }
        assert!(passed > 10, "{passed}");
    }

    proptest! {
        #[test]
        fn names_of_nodes_pass(names in prop::collection::vec("[a-z0-9.-]{0,70}", 1..50)) {
            let list = serde_json::to_string(&names).expect("a list");
            prop_assert!(is_plain_list(list.as_bytes()));
        }
    }
}
