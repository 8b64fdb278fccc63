use crate::manifest::{check_references, read};

const POLICY: &str = "apiVersion: constraint.ciena.com/v1alpha1\nkind: ConstraintPolicy\n\
                      metadata: {name: near, namespace: shop}\nspec: {rules: [{name: latency}]}\n";

fn offer(name: &str, group: &str) -> String {
    format!(
        "apiVersion: constraint.ciena.com/v1alpha1\nkind: ConstraintPolicyOffer\n\
         metadata: {{name: {name}, namespace: shop}}\nspec:\n  policies: [near]\n  group: {group}\n  \
         targets:\n  - {{name: workers, kind: Pod, labelSelector: {{matchLabels: {{app: web}}}}}}\n  \
         - {{name: peers, kind: Pod, peers: group}}\n"
    )
}

fn deployment(name: &str, namespace: &str, replicas: usize, label: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
         spec: {{replicas: {replicas}, template: {{metadata: {{labels: {{app: web{label}}}}}}}}}\n"
    )
}

fn pod(name: &str, namespace: &str, label: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: {namespace}, \
         labels: {{app: web{label}}}}}\nspec: {{containers: []}}\n"
    )
}

fn found(objects: &[String]) -> Vec<String> {
    let text = [&[POLICY.to_owned()], objects].concat().join("---\n");
    let objects = read(&text).unwrap().objects;
    let found = check_references(&objects).into_iter();
    found.map(|(_, finding)| finding.to_string()).collect()
}

#[test]
fn complete_groups_have_no_findings() {
    let web = deployment("web", "shop", 3, "");
    for group in ["{}", "{minimum: 3}", "{minimum: 2}"] {
        assert_eq!(found(&[offer("a", group), web.clone()]), [""; 0], "{group}");
    }
    let shards = ["x", "w"].map(|name| deployment(name, "shop", 1, ", shard: a"));
    let by_label = offer("a", "{by: shard, minimum: 2}");
    assert_eq!(found(&[&[by_label], &shards[..]].concat()), [""; 0]);
    // The pods of a workload count once.
    let of_web = pod("web-0", "shop", "");
    let expected = "ConstraintPolicyOffer shop/a: spec.group.minimum: is 4, and Deployment shop/web \
                    has 3 pods, so the group is never complete; write 3, or raise the replicas";
    assert_eq!(
        found(&[offer("a", "{minimum: 4}"), web, of_web]),
        [expected]
    );
}

#[test]
fn groups_that_are_never_complete_are_found() {
    let at = "ConstraintPolicyOffer shop/a: spec.group.minimum: ";
    let cases = [
        (
            offer("a", "{by: shard, minimum: 8}"),
            vec![
                deployment("x", "shop", 3, ", shard: s"),
                deployment("w", "shop", 3, ", shard: s"),
            ],
            "is 8, and Deployment shop/x, Deployment shop/w have 6 pods, so the group is never \
             complete; write 6, or raise the replicas",
        ),
        (
            offer("a", "{minimum: 2}"),
            vec![deployment("x", "shop", 1, "")],
            "is 2, and Deployment shop/x has 1 pod, which needs no group; raise its replicas, or \
             let no target select it",
        ),
        (
            offer("a", "{}"),
            vec![deployment("x", "shop", 1, "")],
            "is 1 by the replicas of Deployment shop/x, and one pod needs no group; raise them, or \
             let no target select it",
        ),
        (
            offer("a", "{}"),
            vec![pod("x", "shop", ""), pod("w", "shop", "")],
            "is not set, and no controller of Pod shop/x, Pod shop/w states a number; write it",
        ),
    ];
    for (offer, objects, expected) in cases {
        let found = found(&[&[offer], &objects[..]].concat());
        assert_eq!(found, [format!("{at}{expected}")]);
    }
}

#[test]
fn pods_outside_of_the_group_are_found() {
    let by_label = offer("a", "{by: shard, minimum: 2}");
    let half = [
        deployment("x", "shop", 2, ", shard: s"),
        deployment("w", "shop", 2, ""),
    ];
    let at = "ConstraintPolicyOffer shop/a: spec.group.by: ";
    let expected = "not every pod of the target has label shard, and those without it are refused \
                    (group/NoLabel); add it to Deployment shop/w";
    let all = [std::slice::from_ref(&by_label), &half[..]].concat();
    assert_eq!(found(&all), [format!("{at}{expected}")]);
    let found_of = found(&[by_label.clone(), half[1].clone()]);
    assert!(
        found_of[0].contains("by: no pod of the target has"),
        "{found_of:?}"
    );

    let apart = [half[0].clone(), deployment("z", "other", 2, ", shard: s")];
    let expected = "label shard of Deployment other/z names a group of namespace shop, and a group \
                    is in one namespace; move the pods to shop, or write another value";
    let all = [std::slice::from_ref(&by_label), &apart[..]].concat();
    assert_eq!(found(&all), [format!("{at}{expected}")]);
    // A group of the other namespace is its own.
    let other = [POLICY, &by_label].map(|text| text.replace("namespace: shop", "namespace: other"));
    assert_eq!(found(&[&all[..], &other].concat()), [""; 0]);
}

#[test]
fn pods_in_groups_of_two_offers_are_found() {
    let all = [
        offer("b", "{minimum: 2}"),
        offer("a", "{minimum: 2}"),
        deployment("x", "shop", 2, ""),
    ];
    let expected = "ConstraintPolicyOffer shop/b: spec.group: makes no group of Deployment shop/x, \
                    which offer a selects for its groups; let one offer with group select them";
    assert_eq!(found(&all), [expected]);
}
