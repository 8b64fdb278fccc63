use super::*;

#[test]
fn read_accepts_documents_lists_and_other_kinds() {
    let items = parse(
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: []}\n---\n---\n\
             apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata: {name: 'n'}\n\
             - apiVersion: apps/v1\n  kind: Deployment\n  metadata: {name: d}\n",
        )
        .unwrap();
    assert!(
        matches!(&items[..], [Item::Pod(_), Item::Node(_), Item::Workload(d)] if d.to_string() == "Deployment d"),
        "{items:?}"
    );
}

#[test]
fn read_errors_have_object_and_field() {
    let message = |text: &str| parse(text).unwrap_err().to_string();
    let offer = "apiVersion: constraint.ciena.com/v1alpha1\nkind: ConstraintPolicyOffer\n\
                     metadata: {name: o, namespace: shop}\nspec:\n  targets: [{kind: Podd}]\n";
    let e = message(offer);
    assert!(
        e.starts_with("ConstraintPolicyOffer shop/o: ") && e.contains("Podd"),
        "{e}"
    );
    assert!(
        message("a: [").starts_with("not valid YAML"),
        "{}",
        message("a: [")
    );
    let unquoted = "apiVersion: v1\nkind: Pod\nmetadata: {name: yes}\n";
    let e = message(unquoted);
    assert_eq!(
        e,
        "Pod in document 1: metadata.name: is not a text; write it in quotes"
    );
    let e = message(&unquoted.replace("name: yes", "name: a, labels: {b: 010}"));
    assert!(
        e.starts_with(
            "Pod a: metadata.labels.b: invalid type: integer `8`, expected a string; write"
        ),
        "{e}"
    );
    let e = message(&unquoted.replace(
        "name: yes",
        &format!("name: a, labels: x{}", "1".repeat(2_000_000)),
    ));
    assert!(e.len() < 1000, "{} bytes", e.len());
    assert!(message("a: 1").contains("document 1: apiVersion and kind are missing"));
}

fn found(text: &str) -> Vec<String> {
    let manifest = read(text).unwrap();
    let references = check_references(&manifest.objects);
    let lines = LineIndex::new(text);
    let all = manifest.findings.into_iter().chain(references);
    all.map(|(place, finding)| {
        let line = lines.line(place, &finding.field).unwrap();
        format!("{line}: {finding}")
    })
    .collect()
}

#[test]
fn foreign_objects_are_read_as_far_as_needed() {
    let text = "apiVersion: v1\nkind: Secret\nmetadata: {generateName: s-}\ndata: {a: x}\ndata: {b: y}\n---\n\
                    \u{feff}apiVersion: example.com/v1\nkind: Thing\nspec: [0755, .5, !x y]\n---\n\
                    apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: j-}\n\
                    spec: {template: {metadata: {labels: {a: b}}}}\n";
    let mut manifest = read(text).unwrap();
    assert_eq!(manifest.findings, []);
    generate_names(&mut manifest.objects);
    let pods = add_template_pods(manifest.objects);
    let names: Vec<String> = pods
        .iter()
        .map(|(_, item)| match item {
            Item::Other(name) => name.clone(),
            Item::Workload(job) => job.to_string(),
            Item::Pod(pod) => pod.metadata.name.clone().unwrap_or_default(),
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(names, ["Secret/s-*", "Thing/", "Job j-00001", "j-00001-0"]);
}

#[test]
fn typed_lists_and_json_values_are_read() {
    let pod = |name: &str| format!("{{\"metadata\": {{\"name\": \"{name}\"}}}}");
    let list = |kind: &str, version: &str, items: &str| {
        format!("{{\"kind\": \"{kind}\", \"apiVersion\": \"{version}\", \"items\": [{items}]}}")
    };
    let policies = list(
        "ConstraintPolicyList",
        tautline_core::names::API_VERSION,
        "{\"metadata\": {\"name\": \"p\"}, \"spec\": {\"rules\": []}}",
    );
    let text = list("PodList", "v1", &format!("{}, {}", pod("a"), pod("b")))
        + &policies
        + &list("NodeList", "v1", "");
    let items = parse(&text).unwrap();
    assert!(
        matches!(&items[..], [Item::Pod(_), Item::Pod(_), Item::Policy(_)]),
        "{items:?}"
    );
    // It is no list of objects, but an object.
    let own = "apiVersion: example.com/v1\nkind: AllowList\nmetadata: {name: a}\n";
    assert!(matches!(&parse(own).unwrap()[..], [Item::Other(name)] if name == "AllowList/a"));
}

#[test]
fn of_equal_keys_the_last_one_counts_with_a_finding() {
    let found = found(
        "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: a}\n\
             \x20 spec:\n    nodeName: one\n    containers: []\n    nodeName: two\n",
    );
    let what = "is there twice, and the last one counts; remove the others";
    assert_eq!(found, [format!("10: Pod a: spec.nodeName: {what}")]);
}

#[test]
fn own_kinds_are_read_strictly() {
    let policy = "apiVersion: constraint.ciena.com/v1alpha1\nkind: ConstraintPolicy\n\
                  metadata: {name: p}\nspec: {rules: [{name: latency, limit: 1ms, limit: 2ms}]}\n";
    let error = parse(policy).unwrap_err();
    let expected = "ConstraintPolicy p: spec.rules[0].limit: is there twice; remove one of them";
    assert_eq!(error.to_string(), expected);
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {b: .inf}}\n";
    let error = parse(pod).unwrap_err().to_string();
    let expected = "Pod a: metadata.labels.b: JSON has no number .inf; write it in quotes";
    assert_eq!(error, expected);
    let map = "apiVersion: v1\nkind: ConfigMap\n\
               metadata: {name: 1, labels: {constraint.ciena.com/latency-table: enabled}}\n";
    let error = parse(map).unwrap_err().to_string();
    assert!(
        error.ends_with("metadata.name: is not a text; write it in quotes"),
        "{error}"
    );
}

#[test]
fn objects_of_strangers_never_stop_a_read() {
    for text in [
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: 123}\ndata: {a: 1}\ndata: {b: 2}\n",
        "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {ports: [{port: '80'}]}\n",
        "apiVersion: e.com/v1\nkind: Thing\nspec: {a: .inf, b: !!int x, c: !!binary '?', a: 1}\n",
        "apiVersion: e.com/v1\nkind: Thing\nmetadata: null\n",
        "apiVersion: v1\nkind: List\nitems: [{apiVersion: e.com/v1, kind: T, spec: [.nan]}]\n",
    ] {
        let manifest = read(text).unwrap();
        assert!(
            matches!(&manifest.objects[..], [(_, Item::Other(_))]),
            "{manifest:?}"
        );
        assert_eq!(manifest.findings, [], "{text}");
    }
}

#[test]
fn lists_in_lists_keep_their_items() {
    let pod = |name: &str| {
        format!("{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, name: {name}}}}}")
    };
    let list = |items: &str| format!("{{apiVersion: v1, kind: List, items: [{items}]}}");
    let inner = list(&format!("{}, {}", pod("b"), list(&pod("c"))));
    let manifest = read(&list(&format!("{}, {inner}", pod("a")))).unwrap();
    let found = manifest
        .findings
        .iter()
        .map(|(place, f)| (place.index, f.object.as_str()));
    let found: Vec<_> = found.collect();
    assert_eq!(
        found,
        [(Some(0), "Pod a"), (Some(1), "Pod b"), (Some(1), "Pod c")]
    );
    assert_eq!(manifest.objects.len(), 3);
}

#[test]
fn aliases_and_merge_keys_are_bounded() {
    let many = "*a, ".repeat(500);
    let text = format!("a: &a {{b: 1}}\nmany: [{many}]\nc: {{<<: *a, b: 2, d: 3}}\n<<: {{e: 4}}\n");
    let value = &documents(&text).unwrap()[0];
    assert_eq!(value.value["many"].as_array().unwrap().len(), 500);
    assert_eq!(value.value["c"], serde_json::json!({"b": 2, "d": 3}));
    assert_eq!((&value.value["e"], value.duplicates.len()), (&4.into(), 0));

    let bomb: String = (1..30)
        .map(|i| format!("a{i}: &a{i} [{}]\n", format!("*a{}, ", i - 1).repeat(9)))
        .collect();
    let bomb = format!("a0: &a0 {}\n{bomb}", "x".repeat(100));
    let deep: String = (1..2000)
        .map(|i| format!("a{i}: &a{i} [*a{}]\n", i - 1))
        .collect();
    for (text, part) in [
        (bomb, "its aliases copy more than"),
        (format!("a0: &a0 x\n{deep}"), "it is deeper than"),
        (
            "a: &a [*a]\n".to_owned(),
            "inside of the node that its anchor names",
        ),
        ("<<: 1\n".to_owned(), "the value of << is not a mapping"),
    ] {
        let error = documents(&text).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn null_elements_and_entries_are_zero_values() {
    let text = r#"
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  containers: [{name: m, args: [~], command: [sh, ~], ports: [~, {containerPort: 80}], env: [~]}]
  securityContext: {supplementalGroups: [~, 5]}
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [~]}]}]
  volumes: [{name: v, csi: {driver: d, volumeAttributes: {a: }}}]
---
apiVersion: v1
kind: Service
metadata: {name: a, labels: {constraint.ciena.com/constraint-a: enabled}}
spec: {selector: {a: }}
---
apiVersion: v1
kind: ReplicationController
metadata: {name: a}
spec: {selector: {a: }, template: {metadata: {labels: {a: b}}, spec: {containers: [~]}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: a}
spec: {selector: {matchLabels: , matchExpressions: [~]}, template: {}}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: a}
provisioner: a
parameters: {a: }
"#;
    let manifest = read(text).unwrap();
    assert_eq!(manifest.findings, []);
    let items: Vec<Item> = manifest.objects.into_iter().map(|(_, item)| item).collect();
    let [
        Item::Pod(pod),
        Item::Service(service),
        Item::Workload(_),
        Item::Workload(_),
        Item::Storage(StorageItem::StorageClass(_)),
    ] = &items[..]
    else {
        panic!("{items:?}");
    };
    let spec = pod.spec.as_ref().unwrap();
    let container = &spec.containers[0];
    assert_eq!(container.args, Some(vec![String::new()]));
    assert_eq!(container.command, Some(vec!["sh".into(), String::new()]));
    assert_eq!(container.ports.as_ref().unwrap()[0].container_port, 0);
    let groups = spec.security_context.as_ref().unwrap();
    assert_eq!(groups.supplemental_groups, Some(vec![0, 5]));
    let selector = service.spec.as_ref().unwrap().selector.as_ref().unwrap();
    assert_eq!(selector["a"], "");

    // The schemas of Tautline's own kinds refuse them.
    let own = "apiVersion: constraint.ciena.com/v1alpha1\nkind: ConstraintPolicyOffer\n\
               metadata: {name: o}\nspec: {policies: [p, ~], targets: []}\n";
    let error = parse(own).unwrap_err().to_string();
    assert!(error.contains("spec.policies[1]"), "{error}");
}

#[test]
fn text_after_the_end_of_a_document_is_dropped() {
    let text = "a: 1\n...\nb: 2\n---\nc: 3\n...\n---\nd: 4\n";
    let documents = documents(text).unwrap();
    let read: Vec<(usize, &Value)> = documents
        .iter()
        .map(|d| (d.place.document, &d.value))
        .collect();
    let expected = [("a", 1), ("c", 3), ("d", 4)].map(|(key, n)| serde_json::json!({key: n}));
    assert_eq!(
        read,
        [(1, &expected[0]), (2, &expected[1]), (3, &expected[2])]
    );
    let lines = LineIndex::new(text);
    assert_eq!(
        lines.line(documents[1].place, &FieldPath::default()),
        Some(5)
    );
}

#[test]
fn findings_have_unknown_fields() {
    let found = found(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: shop, lables: {a: b}}\n\
             spec:\n  containers:\n  - name: main\n    resources:\n      requets: {cpu: 1}\n\
             \x20     requests: {cpu: 2 cores, memory: -1Gi, nvidia.com/gpu: 1}\n      limits: {}\n\
             \x20 nodeName: null\n---\n\
             apiVersion: v1\nkind: Node\nmetadata: {name: 'n'}\nstatus:\n  allocatable:\n\
             \x20   cpu: 8\n    example.com/x: lots\n---\n\
             apiVersion: v1\nkind: Podd\nmetadata: {name: b}\n---\n\
             apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n\
             \x20 replica: 2\n  template:\n    spec:\n      containers:\n      - name: main\n\
             \x20       resources: {limits: {cpu: lots}}\n",
    );
    let unknown = "unknown field, so it is ignored; correct or remove it";
    assert_eq!(
        found[0],
        format!("3: Pod shop/a: metadata.lables: {unknown}")
    );
    assert_eq!(
        found[1],
        format!("8: Pod shop/a: spec.containers[0].resources.requets: {unknown}")
    );
    for (at, part) in [
        (
            2,
            "9: Pod shop/a: spec.containers[0].resources.requests.cpu: counts as 0: ",
        ),
        (
            3,
            "9: Pod shop/a: spec.containers[0].resources.requests.memory: counts as 0: ",
        ),
        (
            4,
            "19: Node n: status.allocatable[\"example.com/x\"]: counts as 0: ",
        ),
        (5, "22: Podd b: kind: \"Podd\" is not a kind"),
        (6, "29: Deployment d: spec.replica: unknown field"),
        (
            7,
            "34: Deployment d: spec.template.spec.containers[0].resources.limits.cpu: counts as 0: ",
        ),
    ] {
        assert!(found[at].starts_with(part), "{found:#?}");
    }
    assert_eq!(found.len(), 8, "{found:#?}");
}

#[test]
fn check_references_finds_rules_that_do_not_count() {
    let object = |kind: &str, name: &str, spec: &str| {
        format!(
            "apiVersion: constraint.ciena.com/v1alpha1\nkind: {kind}\n\
                 metadata: {{name: {name}, namespace: shop}}\nspec: {spec}\n"
        )
    };
    let policy = |name: &str, spec: &str| object("ConstraintPolicy", name, spec);
    let texts = [
        policy("none", "{rules: []}"),
        policy(
            "twice",
            "{rules: [{name: latency, request: 5ms}, {name: latency, limit: 20ms}]}",
        ),
        policy("other", "{rules: [{name: latency}, {name: jitter}]}"),
        object(
            "ConstraintPolicyOffer",
            "o",
            "{policies: [other, twice], targets: [{kind: Cluster, labelSelector: {}}]}",
        ),
    ];
    let found = found(&texts.join("---\n"));
    let starts = [
        "4: ConstraintPolicy shop/none: spec.rules: no rule",
        "9: ConstraintPolicy shop/twice: spec.rules[1].name: latency is a rule of this policy",
        "19: ConstraintPolicyOffer shop/o: spec.policies[1]: its rule latency is also one of \
             policy other",
    ];
    assert_eq!(found.len(), starts.len(), "{found:#?}");
    for (found, start) in found.iter().zip(starts) {
        assert!(found.starts_with(start), "{found}");
    }
}

#[test]
fn check_references_finds_ineffective_offers_and_workloads() {
    let offer = "apiVersion: constraint.ciena.com/v1alpha1\nkind: ConstraintPolicyOffer\n\
                     metadata: {name: o, namespace: shop}\nspec:\n";
    let found_of = |spec: &str, rest: &str| found(&format!("{offer}{spec}---\n{rest}"));
    let policy = "apiVersion: constraint.ciena.com/v1alpha1\nkind: ConstraintPolicy\n\
                      metadata: {name: p, namespace: shop}\nspec: {rules: [{name: latency}]}\n";
    let deployment = "apiVersion: apps/v1\nkind: Deployment\n\
                          metadata: {name: web, namespace: shop}\nspec:\n  template:\n    \
                          metadata: {labels: {app: web}}\n";
    let pod = "apiVersion: v1\nkind: Pod\n\
                   metadata: {name: web-0, namespace: shop, labels: {app: web, a: b}}\n\
                   spec: {containers: []}\n";
    let good = "  policies: [p]\n  targets:\n  - kind: Pod\n    \
                    labelSelector: {matchLabels: {app: web}}\n";
    assert_eq!(found_of(good, &format!("{policy}---\n{pod}")), [""; 0]);
    // The Deployment's pods would be selected.
    assert_eq!(
        found_of(good, &format!("{policy}---\n{deployment}")),
        [""; 0]
    );

    let daemon_set = deployment.replace("Deployment", "DaemonSet");
    let found = found_of(good, &format!("{policy}---\n{daemon_set}"));
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(
        found[0].starts_with("19: DaemonSet shop/web: spec.template: no node of the manifests"),
        "{found:#?}"
    );
    let all = format!("{policy}---\n{daemon_set}---\n{pod}");
    assert_eq!(found_of(good, &all), [""; 0]);
    // No offer selects it.
    let other = daemon_set.replace("app: web", "app: log");
    assert_eq!(
        found_of(good, &format!("{policy}---\n{pod}---\n{other}")),
        [""; 0]
    );

    let found = found_of(good, &pod.replace("shop", "other"));
    assert!(
        found[0].contains("5: ") && found[0].contains("no ConstraintPolicy shop/p"),
        "{found:#?}"
    );
    assert!(
        found[1].starts_with("8: ") && found[1].contains("selects no Pod of namespace shop"),
        "{found:#?}"
    );
    let found = found_of("  policies: []\n  targets: [{kind: Cluster}]\n", pod);
    assert!(
        found[0].starts_with("5: ") && found[0].contains("no policy"),
        "{found:#?}"
    );
    assert!(
        found[1].starts_with("6: ") && found[1].contains("[0].labelSelector: no labelSelector"),
        "{found:#?}"
    );
    let found = found_of("  policies: [p]\n  targets: []\n", policy);
    assert!(found[0].contains("spec.targets: no target"), "{found:#?}");

    // No pod of another cluster is in the manifests, and findings name positions in the spec.
    let db = "  - {name: db, kind: Pod, cluster: east, labelSelector: {matchLabels: {app: db}}}\n";
    let in_east = good.replace("  targets:\n", &format!("  targets:\n{db}"));
    assert_eq!(found_of(&in_east, &format!("{policy}---\n{pod}")), [""; 0]);
    let found = found_of(&in_east, policy);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(
        found[0].contains("spec.targets[1].labelSelector: selects no Pod"),
        "{found:#?}"
    );
    let every = in_east.replace(", labelSelector: {matchLabels: {app: db}}", "");
    let found = found_of(&every, &format!("{policy}---\n{pod}"));
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(
        found[0].contains("[0].labelSelector: no labelSelector"),
        "{found:#?}"
    );
}

#[test]
fn the_corpus_of_the_fuzz_target_is_harmless() {
    let corpus = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/fuzz/corpus/manifests"
    );
    let mut replayed = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        fuzz(&std::fs::read(entry.unwrap().path()).unwrap());
        replayed += 1;
    }
    assert!(replayed >= 5, "{corpus} has {replayed} files");
}
