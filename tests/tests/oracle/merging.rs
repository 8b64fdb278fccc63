//! Apply configurations: `tautline-merge` against the API server's patcher.

use std::fs;

use anyhow::{Context, Result};
use fastrand::Rng;
use serde_json::{Value, json};
use tautline_merge::{MergeError, Schemas, apply, generate};
use tautline_tests::oracle::{Oracle, openapi};

const KINDS: [(&str, &str, &str); 4] = [
    ("", "v1", "Pod"),
    ("apps", "v1", "Deployment"),
    ("", "v1", "Service"),
    ("batch", "v1", "CronJob"),
];
const DOCUMENTS: [&str; 3] = ["api/v1", "apis/apps/v1", "apis/batch/v1"];
const MERGES: usize = 6_000;

fn oracle() -> Result<Oracle> {
    let paths = DOCUMENTS.map(|document| Ok(openapi(document)?.display().to_string()));
    let paths: Vec<String> = paths.into_iter().collect::<Result<_>>()?;
    Oracle::start("merge", &paths)
}

fn request((group, version, kind): (&str, &str, &str), live: &Value, asked: &Value) -> Value {
    json!({"group": group, "version": version, "kind": kind, "live": live, "configuration": asked})
}

/// Both have numbers as Go writes them: 5.0 is 5.
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

/// What differs, if anything.
fn difference(ours: &Result<Value, MergeError>, theirs: &Value) -> Option<String> {
    match (ours, theirs.get("object")) {
        (Ok(ours), Some(theirs)) if same(ours, theirs) => None,
        (Err(_), None) => None,
        (Ok(ours), Some(theirs)) => Some(format!("ours   {ours}\ntheirs {theirs}")),
        (Ok(ours), None) => Some(format!("ours   {ours}\ntheirs {theirs}")),
        (Err(ours), Some(theirs)) => Some(format!("ours   {ours}\ntheirs {theirs}")),
    }
}

#[test]
fn random_merges_are_those_of_the_api_server() -> Result<()> {
    let seed = match std::env::var("TAUTLINE_SEED") {
        Ok(seed) => seed.parse().context("TAUTLINE_SEED is no number")?,
        Err(_) => fastrand::u64(..),
    };
    let mut rng = Rng::with_seed(seed);
    let mut cases = Vec::with_capacity(MERGES);
    for index in 0..MERGES {
        let (group, version, name) = KINDS[index % KINDS.len()];
        let schema = Schemas::bundled()
            .kind(group, version, name)
            .with_context(|| format!("{name} is not bundled"))?;
        let mut live = generate::live(&schema, &mut rng);
        live["apiVersion"] = json!(format!("{group}/{version}").trim_start_matches('/'));
        live["kind"] = json!(name);
        let asked = generate::configuration(&schema, &live, &mut rng);
        let ours = apply(&schema, &live, &asked);
        cases.push((request(KINDS[index % KINDS.len()], &live, &asked), ours));
    }
    let requests: Vec<Value> = cases.iter().map(|(request, _)| request.clone()).collect();
    let answers = oracle()?.ask(&requests)?;

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
    // The shortest says it best.
    differ.sort_by_key(|(request, how)| request.to_string().len() + how.len());
    if let Some((request, how)) = differ.first() {
        panic!("seed {seed}: {} differ, as\n{request}\n{how}", differ.len());
    }
    // Neither is rare, or the test says nothing.
    assert!(merged > MERGES / 3 && refused > MERGES / 20);
    Ok(())
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
            let asked = generate::configuration(&full, &live, &mut rng);
            assert_eq!(
                apply(&full, &live, &asked),
                apply(&bundled, &live, &asked),
                "{}: merge/bundle makes the bundle anew",
                kind.2
            );
        }
    }
    Ok(())
}
