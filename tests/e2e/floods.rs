//! Floods of the extender's ports: kube-scheduler's calls and the probes are still answered, in
//! bounded memory.

use std::{
    net::Ipv4Addr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Result;
use serde_json::json;
use tautline_tests::{
    PATIENCE, eventually, objects,
    servers::{get, insecure_connect, insecure_post, insecure_post_from},
};
use tokio::{io::AsyncWriteExt, net::TcpStream, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{World, placement::wait_for_offer};

const MIB: usize = 1 << 20;
const FINE: &str =
    r#"{"Pod":{"metadata":{"name":"p","namespace":"default","uid":"u"}},"NodeNames":["n1"]}"#;

/// Answers during a flood.
#[derive(Debug, Default)]
struct Seen {
    probes: usize,
    slowest_probe: Duration,
    filters: usize,
    slowest_filter: Duration,
}

/// Sends probes and filter requests to the extender, until `over`.
fn probe(world: &World, over: CancellationToken) -> tokio::task::JoinHandle<Result<Seen>> {
    let live = format!("http://127.0.0.1:{}/livez", world.extender.admin);
    let filter = format!("https://127.0.0.1:{}/filter", world.extender.port);
    tokio::spawn(async move {
        let mut seen = Seen::default();
        while !over.is_cancelled() || seen.probes < 20 {
            let start = Instant::now();
            let (status, _) = get(&live).await?;
            anyhow::ensure!(status == 200, "/livez: {status}");
            seen.probes += 1;
            seen.slowest_probe = seen.slowest_probe.max(start.elapsed());
            let start = Instant::now();
            let answer = insecure_post(&filter, FINE.as_bytes()).await?;
            anyhow::ensure!(answer == r#"{"nodenames":["n1"]}"#, "{answer}");
            seen.filters += 1;
            seen.slowest_filter = seen.slowest_filter.max(start.elapsed());
        }
        Ok(seen)
    })
}

/// During the flood kube-scheduler places a pod, and probes are answered.
async fn schedules_during(world: &World, flood: &str, over: CancellationToken) {
    let watching = probe(world, over.clone());
    let name = flood.replace(' ', "-");
    objects::pod(&world.plane.client, "default", &name, "web")
        .await
        .unwrap();
    assert_eq!(world.bound(&name).await, "n1");
    over.cancelled().await;
    let seen = watching.await.unwrap();
    let peak = world.extender.process.peak_bytes() >> 20;
    println!("{flood}: {seen:?}, {peak} MiB at most");
    seen.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn extender_schedules_and_answers_probes_during_floods() {
    // A debug build on a busy machine takes seconds to read 31 MiB.
    let args = ["--request-memory=256", "--deadline=60s"];
    let world = World::start(&["n1"], &args).await.unwrap();
    // Pods of app=web are governed, so the extender parses them completely.
    let policy = json!({"name": "nobody"});
    objects::policy(&world.plane.client, "default", "web", policy, json!({}))
        .await
        .unwrap();
    wait_for_offer(&world, "web").await;
    let address = format!("127.0.0.1:{}", world.extender.port);

    // Silent connections, more than either port takes, without and with a handshake.
    let mut silent = Vec::new();
    for _ in 0..600 {
        for port in [world.extender.port, world.extender.admin] {
            silent.push(TcpStream::connect(("127.0.0.1", port)).await.unwrap());
        }
    }
    let mut shaken = Vec::new();
    for _ in 0..600 {
        shaken.push(insecure_connect(&address).await.unwrap());
    }
    let over = CancellationToken::new();
    over.cancel();
    schedules_during(&world, "silent connections", over).await;
    drop((silent, shaken));

    // Half-sent bodies, more than the requests that may be under way.
    let mut half = Vec::new();
    for _ in 0..128 {
        let mut stream = insecure_connect(&address).await.unwrap();
        let head = format!(
            "POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{{",
            31 * MIB
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        half.push(stream);
    }
    let over = CancellationToken::new();
    over.cancel();
    schedules_during(&world, "half sent bodies", over).await;
    drop(half);

    let before = world.extender.process.peak_bytes();
    // Forty of the largest requests at once from three addresses, of shapes that take much memory once read.
    let many = |part: &str| vec![part; 31 * MIB / (part.len() + 1) - 100].join(",");
    let pod = |spec: &str, rest: &str| {
        let meta = r#"{"name":"p","namespace":"default","uid":"u","labels":{"app":"web"}}"#;
        format!(r#"{{"Pod":{{"metadata":{meta}{spec}}},{rest}}}"#)
    };
    let shapes = [
        (
            "filter",
            pod(
                "",
                &format!(r#""Nodes":null,"NodeNames":[{}]"#, many(r#""node-0001""#)),
            ),
        ),
        (
            "filter",
            pod("", &format!(r#""Nodes":{{"items":[{}]}}"#, many("1"))),
        ),
        (
            "filter",
            pod(
                &format!(r#","spec":{{"volumes":[{}]}}"#, many("{}")),
                r#""NodeNames":["n1"]"#,
            ),
        ),
        (
            "preempt",
            pod(
                "",
                &format!(r#""NodeNameToVictims":{{"n1":{{"Pods":[{}]}}}}"#, many("1")),
            ),
        ),
    ];
    let padding = " ".repeat(31 * MIB - 200);
    let alone = pod("", &format!(r#"{padding}"NodeNames":["n1"]"#));
    let mut requests = JoinSet::new();
    for (verb, body) in shapes {
        let (url, body) = (format!("https://{address}/{verb}"), Arc::new(body));
        for n in 0..10 {
            let (url, body) = (url.clone(), Arc::clone(&body));
            // Each address has half of what is left of the memory.
            let from = Ipv4Addr::new(127, 0, 0, 1 + n % 3);
            requests.spawn(async move { insecure_post_from(from, &url, body.as_bytes()).await });
        }
    }
    let over = CancellationToken::new();
    let flood = async {
        let (mut served, mut refused) = (0, Vec::new());
        while let Some(ended) = requests.join_next().await {
            match ended.unwrap() {
                Ok(_) => served += 1,
                Err(error) => refused.push(error.to_string()),
            }
        }
        over.cancel();
        (served, refused)
    };
    let ((served, refused), ()) = tokio::join!(
        flood,
        schedules_during(&world, "large requests", over.clone())
    );
    let count = refused.len();
    println!("of forty requests of 31 MiB {served} were served, {count} refused");
    // All of them may be refused; their memory is free again then.
    let url = format!("https://{address}/filter");
    let check = async || insecure_post(&url, alone.as_bytes()).await.ok();
    let what = "a large request alone is served";
    eventually(what, PATIENCE, check, async || format!("{refused:?}")).await;
    let grown = (world.extender.process.peak_bytes() - before) >> 20;
    // TLS and HTTP buffers of forty connections are the rest.
    assert!(grown < 256 + 128, "{grown} MiB more, with 256 allowed");
    assert!(!world.extender.process.log().contains("panicked"));
}
