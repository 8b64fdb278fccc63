//! Tests of workloads and their pods.

use crate::manifest::{Item, MAX_TEMPLATE_PODS, add_template_pods, read};

fn names(text: &str) -> Vec<String> {
    let all = add_template_pods(read(text).unwrap().objects).into_iter();
    let pods = all.filter_map(|(_, item)| match item {
        Item::Pod(pod) => pod.metadata.name,
        _ => None,
    });
    pods.collect()
}

fn workload(kind: &str, spec: &str) -> String {
    let version = match kind {
        "Job" | "CronJob" => "batch/v1",
        "ReplicationController" => "v1",
        _ => "apps/v1",
    };
    format!(
        "apiVersion: {version}\nkind: {kind}\nmetadata: {{name: web, namespace: shop}}\nspec: \
         {spec}\n---\n"
    )
}

const TEMPLATE: &str = "template: {metadata: {labels: {app: web}}, spec: {containers: []}}";

#[test]
fn a_workload_has_as_many_pods_as_run_at_a_time() {
    for (kind, fields, expected) in [
        ("Deployment", "", 1),
        ("Deployment", "replicas: 3, ", 3),
        ("Deployment", "replicas: 0, ", 0),
        ("StatefulSet", "replicas: 2, ", 2),
        ("ReplicationController", "replicas: 2, ", 2),
        ("ReplicaSet", "replicas: 5000, ", MAX_TEMPLATE_PODS),
        ("DaemonSet", "", 0),
        ("Job", "", 1),
        ("Job", "parallelism: 4, ", 4),
        ("Job", "parallelism: 4, completions: 2, ", 2),
        ("Job", "completions: 9, ", 1),
        ("Job", "suspend: true, ", 0),
        ("Job", "completions: 0, ", 0),
    ] {
        let text = workload(kind, &format!("{{{fields}{TEMPLATE}}}"));
        assert_eq!(names(&text).len(), expected, "{kind} {fields}");
    }
    for (fields, status, expected) in [
        ("parallelism: 4, completions: 6, ", "succeeded: 3", 3),
        ("parallelism: 4, completions: 6, ", "succeeded: 6", 0),
        ("parallelism: 4, ", "succeeded: 1", 0),
        ("", "conditions: [{type: Failed, status: 'True'}]", 0),
        ("", "conditions: [{type: Failed, status: 'False'}]", 1),
        ("", "completionTime: 2026-01-01T00:00:00Z", 0),
    ] {
        let spec = format!("{{{fields}{TEMPLATE}}}\nstatus: {{{status}}}");
        assert_eq!(names(&workload("Job", &spec)).len(), expected, "{status}");
    }
    let job = format!("jobTemplate: {{spec: {{parallelism: 2, {TEMPLATE}}}}}");
    let cron = |suspend| format!("{{schedule: '* * * * *', suspend: {suspend}, {job}}}");
    assert_eq!(
        names(&workload("CronJob", &cron(false))),
        ["web-0", "web-1"]
    );
    assert_eq!(names(&workload("CronJob", &cron(true))), [""; 0]);
}

#[test]
fn pods_are_numbered_as_their_controllers_do() {
    let set = format!("{{replicas: 3, ordinals: {{start: 5}}, {TEMPLATE}}}");
    let text = workload("StatefulSet", &set);
    assert_eq!(names(&text), ["web-5", "web-6", "web-7"]);
    let job = format!(
        "{{parallelism: 4, completions: 8, completionMode: Indexed, {TEMPLATE}}}\n\
         status: {{succeeded: 4, completedIndexes: '0,2-4'}}"
    );
    let text = workload("Job", &job);
    assert_eq!(names(&text), ["web-1", "web-5", "web-6", "web-7"]);
    let all = add_template_pods(read(&text).unwrap().objects);
    let Item::Pod(pod) = &all[2].1 else {
        panic!("{all:?}")
    };
    let key = "batch.kubernetes.io/job-completion-index";
    for map in [&pod.metadata.labels, &pod.metadata.annotations] {
        assert_eq!(map.as_ref().unwrap()[key], "5");
    }
}

#[test]
fn helm_hooks_take_no_room() {
    let hook = "annotations: {helm.sh/hook: test}";
    let job = workload("Job", &format!("{{{TEMPLATE}}}"));
    let hooks = job.replace("namespace: shop", &format!("namespace: shop, {hook}"));
    let pod = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: p, {hook}}}\nspec: {{containers: []}}\n"
    );
    assert_eq!(names(&format!("{hooks}{pod}")), [""; 0]);
    // In a cluster, it runs.
    let runs = format!("{pod}status: {{phase: Pending}}\n");
    assert_eq!(names(&runs), ["p"]);
}

#[test]
fn a_workload_with_pods_gets_no_others() {
    let web = workload("Deployment", &format!("{{replicas: 2, {TEMPLATE}}}"));
    let pod = |namespace: &str, metadata: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p, namespace: {namespace}, \
             {metadata}}}\nspec: {{containers: []}}\n---\n"
        )
    };
    let by_label = pod("shop", "labels: {app: web, a: b}");
    assert_eq!(names(&format!("{web}{by_label}")), ["p"]);
    let owner = "ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: u}]";
    assert_eq!(names(&format!("{}{web}", pod("shop", owner))), ["p"]);
    let other = pod("other", "labels: {app: web}");
    assert_eq!(names(&format!("{other}{web}")), ["p", "web-0", "web-1"]);
    let owned = web.replace(
        "namespace: shop",
        "namespace: shop, ownerReferences: [{apiVersion: a/v1, kind: Rollout, name: r, uid: u, \
         controller: true}]",
    );
    assert_eq!(names(&owned), [""; 0]);
}

#[test]
fn pods_of_equal_names_are_told_apart() {
    let of = |kind| {
        let template = TEMPLATE.replace("app: web", &format!("app: {kind}"));
        workload(kind, &format!("{{{template}}}"))
    };
    let both = of("Deployment") + &of("StatefulSet");
    assert_eq!(names(&both), ["web-0", "web-statefulset-0"]);
}

#[test]
fn a_pod_has_owner_and_labels_of_its_controller() {
    let item = |kind: &str| {
        let text = workload(kind, &format!("{{{TEMPLATE}}}"));
        match read(&text).unwrap().objects.remove(0).1 {
            Item::Workload(w) => *w,
            other => panic!("{other:?}"),
        }
    };
    let web = item("StatefulSet");
    let pod = web.pod(7);
    assert!(
        web.owns(&pod.metadata) && web.made(&pod.metadata),
        "{pod:?}"
    );
    assert!(
        !item("ReplicaSet")
            .pod(7)
            .metadata
            .labels
            .unwrap()
            .contains_key("job-name")
    );
    let labels = pod.metadata.labels.unwrap();
    assert_eq!(labels["app"], "web");
    assert_eq!(labels["apps.kubernetes.io/pod-index"], "7");
    assert_eq!(
        item("Job").pod(0).metadata.labels.unwrap()["job-name"],
        "web"
    );
}

/// Returns the names of the pods of a kind, with the labels of the controller.
fn planned(version: &str, kind: &str, spec: &str) -> Vec<(String, String)> {
    let text =
        format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: x}}\nspec: {spec}\n");
    let manifest = read(&text).unwrap();
    assert_eq!(manifest.findings, [], "{text}");
    let pods = add_template_pods(manifest.objects).into_iter();
    let pods = pods.filter_map(|(_, item)| match item {
        Item::Pod(pod) => Some(pod.metadata),
        _ => None,
    });
    let labels = |labels: std::collections::BTreeMap<String, String>| {
        let labels = labels.into_iter().filter(|(key, _)| key != "app");
        let labels = labels.map(|(k, v)| format!("{}={v}", k.rsplit('/').next().unwrap_or(&k)));
        labels.collect::<Vec<_>>().join(" ")
    };
    pods.map(|pod| (pod.name.unwrap(), labels(pod.labels.unwrap())))
        .collect()
}

#[test]
fn foreign_kinds_have_the_pods_of_their_templates() {
    let all = [
        (
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            "{replicas: 2, leaderWorkerTemplate: {size: 3, worker*}}",
        ),
        (
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            "{replicatedJobs: [{name: w, replicas: 2, template: {spec: {parallelism: 2, completions: 2, *}}}]}",
        ),
        (
            "ray.io/v1",
            "RayCluster",
            "{headGroupSpec: {*}, workerGroupSpecs: [{groupName: g, replicas: 1, minReplicas: 2, numOfHosts: 2, *}]}",
        ),
        (
            "ray.io/v1",
            "RayJob",
            "{rayClusterSpec: {headGroupSpec: {*}, workerGroupSpecs: [{groupName: g, replicas: 1, *}]}}",
        ),
        (
            "ray.io/v1",
            "RayService",
            "{rayClusterConfig: {headGroupSpec: {*}}}",
        ),
        (
            "kubeflow.org/v1",
            "PyTorchJob",
            "{pytorchReplicaSpecs: {Master: {replicas: 1, *}, Worker: {replicas: 2, *}}}",
        ),
        (
            "kubeflow.org/v2beta1",
            "MPIJob",
            "{mpiReplicaSpecs: {Launcher: {*}, Worker: {replicas: 2, *}}}",
        ),
        (
            "kubeflow.org/v1",
            "TFJob",
            "{tfReplicaSpecs: {PS: {*}, Chief: {*}}}",
        ),
        (
            "batch.volcano.sh/v1alpha1",
            "Job",
            "{tasks: [{name: t, replicas: 2, *}]}",
        ),
        ("argoproj.io/v1alpha1", "Rollout", "{replicas: 2, *}"),
        (
            "serving.knative.dev/v1",
            "Service",
            "{template: {metadata: {annotations: {autoscaling.knative.dev/min-scale: '2'}, labels: {app: web}}}}",
        ),
        ("serving.knative.dev/v1", "Service", "{*}"),
    ];
    let mut text = String::new();
    for (version, kind, spec) in all {
        text += &format!("{kind}\n");
        let spec = spec.replace("worker*", &TEMPLATE.replace("template", "workerTemplate"));
        for (name, labels) in planned(version, kind, &spec.replace('*', TEMPLATE)) {
            text += &format!("  {name}  {labels}\n");
        }
    }
    insta::assert_snapshot!(text);
}

#[test]
fn negative_counts_are_faults() {
    for (kind, fields, expected) in [
        (
            "Deployment",
            "replicas: -3",
            "spec.replicas: is -3, and a count is 0 or more; correct it",
        ),
        (
            "Job",
            "parallelism: -2",
            "spec.parallelism: is -2, and a count is 0 or more; correct it",
        ),
        (
            "Job",
            "completions: -2",
            "spec.completions: is -2, and a count is 0 or more; correct it",
        ),
    ] {
        let error = read(&workload(kind, &format!("{{{fields}, {TEMPLATE}}}"))).unwrap_err();
        assert_eq!(error.to_string(), format!("{kind} shop/web: {expected}"));
    }
    let rollout = "apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec:\n";
    for (fields, expected) in [
        (
            "replicas: -1",
            "spec.replicas: is -1, and a count is 0 or more; correct it",
        ),
        (
            "replicas: '3'",
            "spec.replicas: is not a whole number; write one without quotes, such as 1",
        ),
        (
            "replicas: 1.5",
            "spec.replicas: is not a whole number; write one without quotes, such as 1",
        ),
    ] {
        // A stranger's kind does not stop the read.
        let text = format!("{rollout}  {fields}\n  {TEMPLATE}\n");
        let found = read(&text).unwrap().findings.remove(0).1;
        assert_eq!(found.to_string(), format!("Rollout r: {expected}"));
        assert_eq!(names(&text), [""; 0]);
    }
}

#[test]
fn the_reason_for_no_pods_is_known() {
    let idle = |text: &str| match read(text).unwrap().objects.remove(0).1 {
        Item::Workload(w) => w.idle().map(str::to_owned).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    for (kind, fields, expected) in [
        ("Deployment", "replicas: 0", &["spec.replicas is 0"][..]),
        ("Job", "suspend: true", &["spec.suspend is true"]),
        ("Job", "completions: 0", &["spec.completions is 0"]),
        ("Deployment", "replicas: 1", &[]),
    ] {
        let text = workload(kind, &format!("{{{fields}, {TEMPLATE}}}"));
        assert_eq!(idle(&text), expected);
    }
}

#[test]
fn daemon_sets_have_a_pod_on_each_node_that_admits_it() {
    let node = |name: &str, spec: &str| {
        format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{disk: {name}}}}}\n\
             spec: {{{spec}}}\nstatus: {{allocatable: {{pods: '1'}}}}\n---\n"
        )
    };
    let nodes = node("a", "")
        + &node("b", "unschedulable: true")
        + &node("c", "taints: [{key: k, effect: NoSchedule}]")
        + &node(
            "d",
            "taints: [{key: node.kubernetes.io/not-ready, effect: NoExecute}]",
        );
    let set = |spec: &str| {
        let template =
            format!("template: {{metadata: {{labels: {{app: web}}}}, spec: {{{spec}}}}}");
        names(&format!(
            "{nodes}{}",
            workload("DaemonSet", &format!("{{{template}}}"))
        ))
    };
    let all = "containers: [{name: m, resources: {requests: {cpu: 99}}}]";
    assert_eq!(set(all), ["web-a", "web-b", "web-d"]);
    assert_eq!(set(&format!("{all}, nodeSelector: {{disk: b}}")), ["web-b"]);
    let tolerates = "tolerations: [{operator: Exists}], affinity: {nodeAffinity: \
        {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: \
        [{matchExpressions: [{key: disk, operator: In, values: [c, d]}]}]}}}";
    assert_eq!(set(&format!("{all}, {tolerates}")), ["web-c", "web-d"]);
}

#[test]
fn pods_have_a_label_for_the_revision_of_their_template() {
    let template = "template: {metadata: {labels: {app: web}}, spec: {containers: [], affinity: \
        {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, \
        labelSelector: {matchLabels: {app: web}}, \
        mismatchLabelKeys: [pod-template-hash, controller-revision-hash]}]}}}}";
    for (kind, key) in [
        ("Deployment", "pod-template-hash"),
        ("StatefulSet", "controller-revision-hash"),
        ("DaemonSet", "controller-revision-hash"),
    ] {
        let text = workload(kind, &format!("{{{template}}}"));
        let mut objects = read(&text).unwrap().objects;
        let Some((_, Item::Workload(workload))) = objects.pop() else {
            panic!("no workload");
        };
        let pod = workload.pod(1);
        assert_eq!(pod.metadata.labels.unwrap()[key], "web", "{kind}");
        let affinity = pod.spec.unwrap().affinity.unwrap();
        let terms = affinity.pod_anti_affinity.unwrap();
        let mut terms = terms
            .required_during_scheduling_ignored_during_execution
            .unwrap();
        let selector = terms.remove(0).label_selector.unwrap();
        let merged = selector.match_expressions.unwrap();
        let merged: Vec<_> = merged.iter().map(|e| (&*e.key, &*e.operator)).collect();
        assert_eq!(merged, [(key, "NotIn")], "{kind}");
    }
}

#[test]
fn a_users_table_adds_kinds() {
    let mut table = crate::manifest::WorkloadTable::default();
    let own = "- {apiVersion: example.com/*, kind: Flock, pods: [{template: 'spec.birds[].pod', \
               counts: ['spec.birds[].count'], group: 'spec.birds[].name', name: '{name}-{group}-{0}'}]}\n\
               - {apiVersion: apps/v1, kind: Deployment, pods: [{template: spec.template}]}\n";
    table.add(own).unwrap();
    let text = format!(
        "apiVersion: example.com/v3\nkind: Flock\nmetadata: {{name: f}}\nspec:\n  birds:\n  \
         - {{name: owl, count: 2, pod: {{spec: {{containers: []}}}}}}\n  - {{name: jay}}\n---\n{}",
        workload("Deployment", &format!("{{replicas: 5, {TEMPLATE}}}"))
    );
    let documents = crate::manifest::documents(&text).unwrap();
    let objects = crate::manifest::objects(documents, &table).unwrap().objects;
    let pods = add_template_pods(objects)
        .into_iter()
        .filter_map(|(_, item)| match item {
            Item::Pod(pod) => pod.metadata.name,
            _ => None,
        });
    assert_eq!(pods.collect::<Vec<_>>(), ["f-owl-0", "f-owl-1", "web-0"]);
}
