use proptest::prelude::*;

use super::*;

#[test]
fn args_keys_are_case_insensitive_and_the_last_counts() {
    let json = r#"{"POD":{"a":1},"podx":[[[1]]],"nodenames":["x"],"NodeNames":["a","\u0062","a"],"Nodes":null}"#;
    let args = args("ExtenderArgs", json).unwrap();
    assert_eq!(args.pod.get(), r#"{"a":1}"#);
    let names = args.nodes.names("ExtenderArgs", 10).unwrap();
    assert_eq!(names.iter().collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn names_reads_node_objects() {
    let json = r#"{"Pod":{},"Nodes":{"metadata":{},"items":[{"metadata":{"name":"n1","x":[]}},{"metadata":{"name":"n2"}}]},"NodeNames":null}"#;
    let args = args("ExtenderArgs", json).unwrap();
    let set = args.nodes.names("ExtenderArgs", 10).unwrap();
    assert_eq!(set.iter().collect::<Vec<_>>(), ["n1", "n2"]);
    let Nodes::Objects(list) = &args.nodes else {
        panic!("{args:?}")
    };
    let items = items("ExtenderArgs", list, 10).unwrap();
    let out = filter_objects(items.into_iter().take(1), &[("n2", "r/Full")], &[]);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        r#"{"nodes":{"metadata":{},"items":[{"metadata":{"name":"n1","x":[]}}]},"failedNodes":{"n2":"r/Full"}}"#
    );
}

#[test]
fn errors_name_the_problem() {
    let error = |json: &str| match args("ExtenderArgs", json) {
        Err(e) => e.to_string(),
        Ok(args) => args.nodes.names("ExtenderArgs", 2).unwrap_err().to_string(),
    };
    assert!(error("").contains("not the JSON of ExtenderArgs"));
    assert!(error("[]").contains("expected an object"));
    assert!(error("{}").ends_with("Pod is missing"));
    assert!(error(r#"{"Pod":null}"#).ends_with("Pod is missing"));
    assert!(error(r#"{"Pod":{}}garbage"#).contains("trailing"));
    assert!(error(r#"{"Pod":{},"NodeNames":[1]}"#).contains("expected a string"));
    assert!(error(r#"{"Pod":{},"NodeNames":{}}"#).contains("a list of node names"));
    assert!(
        error(r#"{"Pod":{},"NodeNames":["a","b","c","d"]}"#)
            .contains("nodes are more than the limit")
    );
    assert!(
        error(r#"{"Pod":{},"Nodes":{"items":[{}]}}"#)
            .contains("metadata.name of a node is missing")
    );
}

#[test]
fn lists_above_the_limit_are_refused() {
    let too_many = |error: WireError| error.to_string().contains("nodes are more than the limit");
    let nodes = r#"{"Pod":{},"Nodes":{"items":[1,1,1,1,1,1]}}"#;
    let args = args("ExtenderArgs", nodes).unwrap();
    assert!(too_many(args.nodes.names("ExtenderArgs", 5).unwrap_err()));
    let victims = r#"{"Pod":{},"NodeNameToVictims":{"a":null,"b":null,"c":null}}"#;
    assert_eq!(preempt_args(victims, 3).unwrap().victims.len(), 3);
    assert!(too_many(preempt_args(victims, 2).unwrap_err()));
    let pods = r#"{"Pod":{},"NodeNameToVictims":{"a":{"Pods":[1,1,1]}}}"#;
    assert!(too_many(preempt_args(pods, 2).unwrap_err()));
    let null = r#"{"Pod":{},"NodeNameToVictims":{"a":{"Pods":null}}}"#;
    assert!(preempt_args(null, 2).unwrap().victims["a"].pods.is_empty());
}

#[test]
fn preempt_args_reads_both_forms() {
    let meta =
        r#"{"Pod":{},"NodeNameToMetaVictims":{"n":{"Pods":[{"UID":"u1"}],"NumPDBViolations":2}}}"#;
    let whole = r#"{"Pod":{},"NodeNameToVictims":{"n":{"Pods":[{"metadata":{"uid":"u1"}}],"NumPDBViolations":2}}}"#;
    for json in [meta, whole] {
        let victims = preempt_args(json, 10).unwrap().victims;
        assert!(victims["n"].heap_bytes() >= size_of::<Victim>() + 2);
        assert_eq!(
            victims["n"],
            Victims {
                pods: vec![Victim { uid: "u1".into() }],
                pdb_violations: 2
            }
        );
    }
}

#[test]
fn filter_names_escapes() {
    let out = filter_names(["a\"b"].into_iter(), &[], &[("n", "x/Y")]);
    let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(json["nodenames"][0], "a\"b");
    assert_eq!(json["failedAndUnresolvableNodes"]["n"], "x/Y");
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(json in ".{0,80}") {
        let _ = args("x", &json).map(|a| a.nodes.names("x", 5).is_ok());
        let _ = preempt_args(&json, 10);
        let _ = bind_args(&json);
    }

    #[test]
    fn deep_nesting_is_refused(depth in 1..200_000usize, open in "[\\[{]") {
        let json = format!(r#"{{"Pod":{},"x":{}"#, open.repeat(depth), open.repeat(depth));
        prop_assert!(args("x", &json).is_err());
    }

    #[test]
    fn names_round_trip(names in proptest::collection::btree_set(".{0,12}", 0..20)) {
        let json = serde_json::json!({ "Pod": {}, "NodeNames": names }).to_string();
        let set = args("x", &json).unwrap().nodes.names("x", 100).unwrap();
        let out = filter_names(set.iter(), &[], &[]);
        let back: serde_json::Value = serde_json::from_slice(&out).unwrap();
        prop_assert_eq!(back["nodenames"].clone(), serde_json::json!(names));
    }
}
