//! Whole runs, in process.

use super::*;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

async fn run_folder(path: &Path, filter: Option<&str>) -> Result<Vec<CaseRun>, Vec<String>> {
    let trusted = TrustedNamespaces::default();
    run_all(&[path.to_owned()], filter, &trusted).await.unwrap()
}

#[tokio::test]
async fn the_tests_of_the_examples_pass() {
    let runs = run_folder(&root().join("examples"), None).await.unwrap();
    let report = report(&runs);
    assert_eq!(report.failed(), 0, "{}", table::text(&runs));
    let files: BTreeSet<&str> = report.cases.iter().map(|c| c.group.as_str()).collect();
    assert!(files.len() >= 3 && runs.len() >= 12, "{files:?}");
}

/// What kube-scheduler of Kubernetes 1.36 does with the same objects.
#[tokio::test]
async fn kubernetes_own_rules_decide_as_kube_scheduler_does() {
    let folder = root().join("cli/src/policy_test/scheduling");
    let runs = run_folder(&folder, None).await.unwrap();
    let report = report(&runs);
    assert_eq!(report.failed(), 0, "{}", table::text(&runs));
    let files: BTreeSet<&str> = report.cases.iter().map(|c| c.group.as_str()).collect();
    assert!(files.len() >= 7 && runs.len() >= 18, "{files:?}");
}

#[tokio::test]
async fn gpus_go_to_pods_as_they_can_be_given() {
    let cases = root().join("cli/testdata/gpu-cases");
    let runs = run_folder(&cases, None).await.unwrap();
    assert_eq!(report(&runs).failed(), 0, "{}", table::text(&runs));
    assert_eq!(runs.len(), 4);
}

const CLUSTER: &str = "
apiVersion: v1
kind: Node
metadata: {name: a}
status: {allocatable: {cpu: 2, pods: 10}}
---
apiVersion: v1
kind: Node
metadata: {name: b}
status: {allocatable: {cpu: 2, pods: 10}}
---
apiVersion: v1
kind: Service
metadata: {name: carbon, namespace: shop, labels: {constraint.ciena.com/constraint-carbon: enabled}}
spec: {}
---
apiVersion: constraint.ciena.com/v1
kind: CostProvider
metadata: {name: carbon, namespace: shop}
spec: {rule: carbon, target: .*, values: [{node: a, cost: 9}, {node: b, cost: 1}]}
---
apiVersion: constraint.ciena.com/v1alpha1
kind: ConstraintPolicy
metadata: {name: green, namespace: shop}
spec: {rules: [{name: carbon, limit: 5}]}
---
apiVersion: constraint.ciena.com/v1alpha1
kind: ConstraintPolicyOffer
metadata: {name: web, namespace: shop}
spec:
  policies: [green]
  targets: [{kind: Pod, labelSelector: {matchLabels: {app: web}}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: i, resources: {requests: {cpu: 1500m}}}]}
";

/// A folder with the cluster and these cases.
fn folder(cases: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("cluster.yaml"), CLUSTER).unwrap();
    let test = dir.path().join("tautline-test.yaml");
    fs::write(test, format!("namespace: shop\n{cases}")).unwrap();
    dir
}

async fn nodes(cases: &str, filter: Option<&str>) -> Vec<String> {
    let dir = folder(cases);
    let runs = run_folder(dir.path(), filter).await.unwrap();
    let place = |run: &CaseRun| run.placement.node.clone().unwrap_or("pending".into());
    runs.iter()
        .map(|run| format!("{} {}", run.placement.pod, place(run)))
        .collect()
}

#[tokio::test]
async fn cases_run_in_order_on_one_cluster() {
    let case = |name: &str, more: &str| {
        format!("- {{name: {name}, workload: deployment/web, expect: {{pending: false}}{more}}}\n")
    };
    let three = format!(
        "cases:\n{}{}{}",
        case("one", ""),
        case("two", ""),
        case("three", "")
    );
    // Two nodes have room for one pod each; the third pod is one more than the replicas.
    let expected = ["web-0 b", "web-1 a", "web-2 pending"];
    assert_eq!(nodes(&three, None).await, expected);
    assert_eq!(nodes(&three, Some("two")).await, ["web-1 a"]);

    let fresh = format!(
        "cases:\n{}{}",
        case("one", ""),
        case("two", ", fresh: true")
    );
    assert_eq!(nodes(&fresh, None).await, ["web-0 b", "web-0 b"]);
    let inline =
        "cases:\n- name: 'n'\n  pod: {metadata: {labels: {app: web}}}\n  expect: {node: b}\n";
    assert_eq!(nodes(inline, None).await, ["test-pod-1 b"]);
}

#[tokio::test]
async fn pods_without_a_name_are_pods_of_their_own() {
    let pod = |name: &str, metadata: &str, expect: &str| {
        let spec = "spec: {containers: [{name: m, image: i, resources: {requests: {cpu: 1500m}}}]}";
        format!("- {{name: {name}, pod: {{{metadata}{spec}}}, expect: {{{expect}}}}}\n")
    };
    let web = "metadata: {labels: {app: web}}, ";
    let cases = format!(
        "cases:\n{}{}{}",
        pod("one", web, "node: b"),
        pod("two", web, "node: a"),
        pod("three", "", "pending: true")
    );
    let placed = ["test-pod-1 b", "test-pod-2 a", "test-pod-3 pending"];
    assert_eq!(nodes(&cases, None).await, placed);

    // The second one is not that of the record of the first.
    let same = "- {name: one, pod: {metadata: {name: p, labels: {app: web}}}, expect: {node: b}}\n\
                - {name: two, pod: {metadata: {name: p}}, expect: {governed: false}}\n";
    let dir = folder(&format!("cases:\n{same}"));
    let runs = run_folder(dir.path(), None).await.unwrap();
    assert_eq!(report(&runs).failed(), 0, "{}", table::text(&runs));
}

#[tokio::test]
async fn costs_stand_in_for_the_provider() {
    let case = |name: &str, costs: &str| {
        format!("- {{name: {name}, pod: web-0, fresh: true, expect: {{pending: false}}{costs}}}\n")
    };
    let cases = format!(
        "costs: {{carbon: {{a: 1, b: 2}}}}\ncases:\n{}{}{}",
        case("file", ""),
        case("case", ", costs: {carbon: {a: OverLimit}}"),
        case("again", "")
    );
    assert_eq!(nodes(&cases, None).await, ["web-0 a", "web-0 b", "web-0 a"]);
    // Without those of the file, the manifests' provider is back.
    let cases = format!(
        "cases:\n{}{}",
        case("case", ", costs: {carbon: {a: 0}}"),
        case("own", "").replace("fresh: true, ", "")
    );
    assert_eq!(nodes(&cases, None).await, ["web-0 a", "web-0 b"]);
}

#[tokio::test]
async fn a_failed_case_is_explained() {
    let dir = folder(
        "cases:\n- {name: green first, pod: web-0, expect: {node: b}}\n\
         - {name: wrong, pod: web-1, expect: {node: b, scores: {a: 3}, reasons: {b: carbon/Far}}}\n",
    );
    let runs = run_folder(dir.path(), None).await.unwrap();
    let here = dir.path().display().to_string();
    insta::assert_snapshot!(table::text(&runs).replace(&here, "DIR"), @r#"
    DIR/tautline-test.yaml:
      RESULT   CASE          POD          NODE
      ok       green first   shop/web-0   b
      FAILED   wrong         shop/web-1   a

    FAILED DIR/tautline-test.yaml: wrong
      expected node: b
           got node: a (b is refused: insufficient cpu)
      expected reason of b: carbon/Far
           got reason of b: insufficient cpu
      expected score of a: 3
           got score of a: 10
      | pod shop/web-1 goes to a
      |   rule carbon of offer web, limit 5; provider shop/carbon
      |    NODE  VERDICT  SCORE  CARBON
      |  > a     chosen      10  9
      |   1 excluded by Kubernetes itself: insufficient cpu

    1 passed, 1 failed
    "#);
    let json = serde_json::to_value(&runs).unwrap();
    assert_eq!(
        (&json[1]["result"], &json[1]["placement"]["node"]),
        (&json!("failed"), &json!("a"))
    );
    let report = report(&runs);
    assert_eq!(report.failed(), 1);
    assert!(report.tap().contains("\nnot ok 2 - "), "{}", report.tap());
    let junit = report.junit();
    assert!(
        junit.contains("failure message=\"expected node: b; got node: a (b is refused"),
        "{junit}"
    );
}

#[tokio::test]
async fn a_rule_without_an_answer_has_a_fix() {
    let dir = folder("cases:\n- {name: 'n', pod: web-0, expect: {node: b}}\n");
    let cluster = CLUSTER.replace("constraint-carbon", "constraint-colour");
    fs::write(dir.path().join("cluster.yaml"), cluster).unwrap();
    let runs = run_folder(dir.path(), None).await.unwrap();
    let text = table::text(&runs);
    let fix = "fix: no Service provides rule carbon of offer web: add one";
    assert!(text.contains(fix), "{text}");

    // A Service of a cluster, whose provider does not run here.
    let (without, _) = CLUSTER
        .split_once("---\napiVersion: constraint.ciena.com/v1\n")
        .unwrap();
    let (_, policies) = CLUSTER
        .split_once("\n---\napiVersion: constraint.ciena.com/v1alpha1")
        .unwrap();
    let cluster = format!("{without}---\napiVersion: constraint.ciena.com/v1alpha1{policies}");
    fs::write(dir.path().join("cluster.yaml"), cluster).unwrap();
    let text = table::text(&run_folder(dir.path(), None).await.unwrap());
    let fix = "give it costs in the test file";
    assert!(text.contains(fix), "{text}");
}

#[tokio::test]
async fn names_that_are_not_in_the_manifests_are_faults() {
    let dir = folder(
        "costs: {carbon: {c: 1}, carbn: {a: 1}}\ncases:\n\
         - {name: one, pod: web-9, expect: {node: a}}\n\
         - {name: two, pod: other/web-0, expect: {node: a}}\n\
         - {name: three, workload: web, expect: {node: a}}\n\
         - {name: four, workload: Job/web, expect: {node: a}}\n\
         - {name: five, pod: web-0, expect: {nodes: [a, z], scores: {w: 1}, reasons: {x: r}}}\n\
         - {name: six, pod: {spec: {nodName: a}}, expect: {node: a}}\n\
         - {name: seven, pod: {metadata: 3}, expect: {node: a}}\n\
         - {name: eight, pod: {kind: Job, apiVersion: batch/v1}, expect: {node: a}}\n\
         - {name: nine, workload: {kind: Pod, apiVersion: v1, metadata: {name: p}}, expect: {node: a}}\n\
         - {name: ten, workload: deploy/web, expect: {node: a}}\n\
         - {name: eleven, workload: Pod/web-0, expect: {node: a}}\n\
         - {name: twelve, workload: Deployment/shop/web, expect: {node: a}}\n\
         - {name: thirteen, pod: web-0, expect: {counts: {carbn/Refused: 0, insufficient x.com/y: 0}}}\n\
         - {name: fourteen, pod: web-0, expect: {reasons: {a: carbn/Refused}}}\n",
    );
    let faults = run_folder(dir.path(), None).await.map(|_| ()).unwrap_err();
    let here = dir.path().display().to_string();
    insta::assert_snapshot!(faults.join("\n").replace(&here, "DIR"), @r#"
    DIR/tautline-test.yaml:2: costs.carbn: no ConstraintPolicy of the manifests has the rule carbn; correct the name, or add the policy
    DIR/tautline-test.yaml:2: costs.carbon.c: there is no Node c in the manifests; correct the name, or add the node
    DIR/tautline-test.yaml:4: cases[0].pod: there is no pod shop/web-9, nor one of that name in any namespace
    DIR/tautline-test.yaml:5: cases[1].pod: there is no pod other/web-0; there is shop/web-0
    DIR/tautline-test.yaml:6: cases[2].workload: "web" has no kind; write Deployment/web
    DIR/tautline-test.yaml:7: cases[3].workload: there is no Job shop/web in the manifests; correct the name, or write its namespace as namespace: NAME
    DIR/tautline-test.yaml:8: cases[4].expect.nodes: there is no Node z in the manifests; correct the name, or add the node
    DIR/tautline-test.yaml:8: cases[4].expect.reasons: there is no Node x in the manifests; correct the name, or add the node
    DIR/tautline-test.yaml:8: cases[4].expect.scores: there is no Node w in the manifests; correct the name, or add the node
    DIR/tautline-test.yaml:9: cases[5].pod.spec.nodName: unknown field, so it is ignored; correct or remove it
    DIR/tautline-test.yaml:10: cases[6].pod: Pod in document 1: metadata.name: is missing; give the object a name
    DIR/tautline-test.yaml:11: cases[7].pod: is not a Pod; write workload for other kinds
    DIR/tautline-test.yaml:12: cases[8].workload: has no pods to plan; write a Deployment, StatefulSet, ReplicaSet, Job or CronJob
    DIR/tautline-test.yaml:13: cases[9].workload: "deploy" is none of the kinds Deployment, StatefulSet, ReplicaSet, Job, CronJob, DaemonSet
    DIR/tautline-test.yaml:14: cases[10].workload: is a pod; write pod: web-0
    DIR/tautline-test.yaml:15: cases[11].workload: write Deployment/web, and namespace: shop beside it
    DIR/tautline-test.yaml:16: cases[12].expect.counts["carbn/Refused"]: no ConstraintPolicy of the manifests has the rule carbn; correct the name, or add the policy
    DIR/tautline-test.yaml:17: cases[13].expect.reasons.a: no ConstraintPolicy of the manifests has the rule carbn; correct the name, or add the policy
    "#);
}

#[tokio::test]
async fn manifests_outside_of_the_folder_are_refused() {
    let secret = tempfile::NamedTempFile::new().unwrap();
    fs::write(secret.path(), "password: [\n").unwrap();
    let named = secret.path().display().to_string();
    let case = "cases: [{name: a, pod: web-0, expect: {node: a}}]\n";
    let dir = folder(&format!("manifests: [{named}]\n{case}"));
    let refused = async || {
        let faults = run_folder(dir.path(), None).await.map(|_| ()).unwrap_err();
        let faults = faults.join("\n");
        assert!(
            faults.contains(" is outside of ") && !faults.contains("password"),
            "{faults}"
        );
    };
    refused().await;
    // A link in the folder that is read by default.
    fs::write(dir.path().join("tautline-test.yaml"), case).unwrap();
    std::os::unix::fs::symlink(secret.path(), dir.path().join("link.yaml")).unwrap();
    refused().await;
}

#[test]
fn manifests_must_be_in_the_repository_or_the_named_folder() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path().canonicalize().unwrap();
    let [repo, tests] = ["repo", "repo/tests"].map(|path| home.join(path));
    fs::create_dir_all(&tests).unwrap();
    fs::write(repo.join(".git"), "gitdir: elsewhere\n").unwrap();
    let file = tests.join("b.tautline-test.yaml");
    // Home is no repository.
    assert_eq!(manifests_root(&file, &file, &home), tests);
    assert_eq!(manifests_root(&repo, &file, &home), repo);
    for here in [&repo, &tests] {
        assert_eq!(manifests_root(&file, &file, here), repo);
        assert_eq!(manifests_root(&tests, &file, here), repo);
    }
    // The inner repository is a stranger's, too.
    fs::create_dir(home.join(".git")).unwrap();
    assert_eq!(manifests_root(&file, &file, &home), repo);
    let own = home.join("a.tautline-test.yaml");
    assert_eq!(manifests_root(&own, &own, &home), home);
    assert_eq!(manifests_root(&own, &own, &repo), home);
}

#[tokio::test]
async fn strangers_test_reads_nothing_of_the_folder_above() {
    let home = tempfile::tempdir().unwrap();
    let tests = home.path().join("repo/tests");
    fs::create_dir_all(&tests).unwrap();
    fs::write(home.path().join(".env"), "password: [\n").unwrap();
    let file = tests.join("b.tautline-test.yaml");
    let case = "cases: [{name: a, pod: web-0, expect: {node: a}}]\n";
    fs::write(&file, format!("manifests: [../../.env]\n{case}")).unwrap();
    for named in [file, home.path().join("repo")] {
        let faults = run_folder(&named, None).await.map(|_| ()).unwrap_err();
        assert!(faults[0].contains(" is outside of "), "{faults:?}");
    }
}

#[tokio::test]
async fn paths_without_tests_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join(".hidden")).unwrap();
    fs::write(dir.path().join(".hidden/tautline-test.yaml"), "").unwrap();
    let trusted = TrustedNamespaces::default();
    let failure = async |path: PathBuf, filter: Option<&str>| {
        let run = run_all(&[path], filter, &trusted).await;
        run.map(|_| ()).unwrap_err().to_string()
    };
    let error = failure(dir.path().to_owned(), None).await;
    assert!(error.contains("holds no tests"), "{error}");
    let error = failure(dir.path().join("none.yaml"), None).await;
    assert!(error.contains("none.yaml"), "{error}");
    let tests = folder("cases:\n- {name: one, pod: web-0, expect: {node: b}}\n");
    let error = failure(tests.path().to_owned(), Some("two")).await;
    assert!(error.contains("no case has \"two\""), "{error}");
}
