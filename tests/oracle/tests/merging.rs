//! Apply configurations: `tautline-structured-merge` against the API server's patcher.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result, bail};
use fastrand::Rng;
use serde_json::{Value, json};
use tautline_structured_merge::{MergeError, Schema, Schemas, apply, generate};
use tautline_tests::{
    oracle::{Oracle, openapi},
    root,
};

type Kind = (&'static str, &'static str, &'static str);

const KINDS: [Kind; 4] = [
    ("", "v1", "Pod"),
    ("apps", "v1", "Deployment"),
    ("", "v1", "Service"),
    ("batch", "v1", "CronJob"),
];
const DOCUMENTS: [&str; 3] = ["api/v1", "apis/apps/v1", "apis/batch/v1"];
/// A custom resource with every schema option for lists, maps and structs.
const STRANGE: Kind = ("example.org", "v1", "Strange");
const STRANGE_DOCUMENT: &str = "tests/oracle/tests/strange.json";
const MERGES: usize = 6_000;

fn request((group, version, kind): Kind, live: &Value, applied: &Value) -> Value {
    json!({"group": group, "version": version, "kind": kind, "live": live, "configuration": applied})
}

/// Compares with numbers as Go writes them: 5.0 is 5.
fn same(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, a)| b.get(k).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

/// The difference, if any.
fn difference(ours: &Result<Value, MergeError>, theirs: &Value) -> Option<String> {
    match (ours, theirs.get("object")) {
        (Ok(ours), Some(theirs)) if same(ours, theirs) => None,
        (Err(_), None) => None,
        (Ok(ours), Some(theirs)) => Some(format!("ours   {ours}\ntheirs {theirs}")),
        (Ok(ours), None) => Some(format!("ours   {ours}\ntheirs {theirs}")),
        (Err(ours), Some(theirs)) => Some(format!("ours   {ours}\ntheirs {theirs}")),
    }
}

/// Random merges into objects of these kinds, in turn.
fn compare(kinds: &[(Kind, Schema)], documents: &[PathBuf]) -> Result<()> {
    let seed = match std::env::var("TAUTLINE_SEED") {
        Ok(seed) => seed.parse().context("TAUTLINE_SEED is no number")?,
        Err(_) => 0,
    };
    let mut rng = Rng::with_seed(seed);
    let mut cases = Vec::with_capacity(MERGES);
    for (kind, schema) in kinds.iter().cycle().take(MERGES) {
        let mut live = generate::live(schema, &mut rng);
        live["apiVersion"] = json!(format!("{}/{}", kind.0, kind.1).trim_start_matches('/'));
        live["kind"] = json!(kind.2);
        let applied = generate::configuration(schema, &live, &mut rng);
        let ours = apply(schema, &live, &applied);
        cases.push((request(*kind, &live, &applied), ours));
    }
    let requests: Vec<Value> = cases.iter().map(|(request, _)| request.clone()).collect();
    let documents: Vec<String> = documents.iter().map(|d| d.display().to_string()).collect();
    let answers = Oracle::start("merge", &documents)?.ask(&requests)?;

    let mut differ = Vec::new();
    let (mut merged, mut refused) = (0, 0);
    for ((request, ours), theirs) in cases.iter().zip(&answers) {
        if let Some(how) = difference(ours, theirs) {
            differ.push((request, how));
        } else if ours.is_ok() {
            merged += 1;
        } else {
            refused += 1;
        }
    }
    println!("seed {seed}: {merged} merged and {refused} refused alike");
    // The shortest is the most readable.
    differ.sort_by_key(|(request, how)| request.to_string().len() + how.len());
    if let Some((request, how)) = differ.first() {
        bail!("seed {seed}: {} differ, as\n{request}\n{how}", differ.len());
    }
    // Both outcomes must be common, or the test is too weak.
    assert!(merged > MERGES / 4 && refused > MERGES / 20);
    Ok(())
}

#[test]
fn random_merges_are_those_of_the_api_server() -> Result<()> {
    let schemas = Schemas::bundled();
    let of = |kind: Kind| Some((kind, schemas.kind(kind.0, kind.1, kind.2)?));
    let kinds: Vec<_> = KINDS.into_iter().filter_map(of).collect();
    assert_eq!(kinds.len(), KINDS.len());
    let documents: Result<Vec<_>> = DOCUMENTS.into_iter().map(openapi).collect();
    compare(&kinds, &documents?)
}

#[test]
fn so_are_those_of_a_custom_resource() -> Result<()> {
    let document = root().join(STRANGE_DOCUMENT);
    let schemas = Schemas::read(&fs::read(&document)?)?;
    let (group, version, kind) = STRANGE;
    let schema = schemas.kind(group, version, kind).context("no schema")?;
    compare(&[(STRANGE, schema)], &[document])
}

/// The bundled schemas are those of the documents.
#[test]
fn bundled_schemas_are_current() -> Result<()> {
    let mut rng = Rng::with_seed(1);
    for (document, kind) in [
        ("api/v1", ("", "v1", "Pod")),
        ("apis/apps/v1", ("apps", "v1", "Deployment")),
        (
            "apis/autoscaling/v2",
            ("autoscaling", "v2", "HorizontalPodAutoscaler"),
        ),
        ("apis/batch/v1", ("batch", "v1", "Job")),
    ] {
        let full = Schemas::read(&fs::read(openapi(document)?)?)?;
        let of = |schemas: &Schemas| schemas.kind(kind.0, kind.1, kind.2).context(kind.2);
        let (full, bundled) = (of(&full)?, of(Schemas::bundled())?);
        for _ in 0..200 {
            let live = generate::live(&full, &mut rng);
            let applied = generate::configuration(&full, &live, &mut rng);
            assert_eq!(
                apply(&full, &live, &applied),
                apply(&bundled, &live, &applied),
                "{}: admission/structured-merge/bundle recreates the bundle",
                kind.2
            );
        }
    }
    Ok(())
}
