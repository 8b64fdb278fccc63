//! Reads `ExtenderArgs` without a parser if it has exactly the form that kube-scheduler sends
//! to a `nodeCacheCapable` extender: the pod, null for node objects, then names without
//! escapes. The names are most of the request, and an ungoverned pod's are returned unchanged;
//! here several bytes are checked at a time, which a parser cannot do.

use serde_json::value::RawValue;

/// Returns the pod and the list of node names, or `None` if the request needs a parser.
pub(super) fn args(json: &str) -> Option<(&RawValue, &str)> {
    let rest = json.strip_prefix(r#"{"Pod":"#)?;
    if !rest.starts_with('{') {
        return None;
    }
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<&RawValue>();
    let pod = values.next()?.ok()?;
    let names = rest[values.byte_offset()..]
        .strip_prefix(r#","Nodes":null,"NodeNames":"#)?
        .strip_suffix('}')?;
    is_plain_list(names.as_bytes()).then_some((pod, names))
}

/// Returns whether the text is a JSON list of strings without escapes, quotes and commas. Between
/// the outer quotes, which have no comma next to them, each comma is between two quotes and each
/// quote next to one comma. `&` instead of `&&` avoids branches: the loop compiles to vector
/// instructions and takes a third of a parser's time, instead of twice a parser's time.
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
    fn args_accepts_requests_of_kube_scheduler() {
        for names in [r#"[""]"#, r#"["a"]"#, r#"["n-0","n-1.example","","x"]"#] {
            let json = format!(r#"{{"Pod":{{"a":"}}"}},"Nodes":null,"NodeNames":{names}}}"#);
            let (pod, list) = args(&json).expect(names);
            assert_eq!((pod.get(), list), (r#"{"a":"}"}"#, names));
        }
    }

    #[test]
    fn args_leaves_other_forms_to_the_parser() {
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

    /// All lists of up to seven of the relevant bytes.
    #[test]
    fn is_plain_list_agrees_with_a_parser() {
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
                // A list with escapes has no borrowed strings.
                Err(_) => assert!(!passes, "{list} passes"),
            }
            passed += usize::from(passes);
        }
        assert!(passed > 10, "{passed}");
    }

    proptest! {
        #[test]
        fn is_plain_list_accepts_node_names(names in prop::collection::vec("[a-z0-9.-]{0,70}", 1..50)) {
            let list = serde_json::to_string(&names).expect("a list");
            prop_assert!(is_plain_list(list.as_bytes()));
        }
    }
}
