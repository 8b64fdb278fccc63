//! Load on the extender, and its durations.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tautline_bench::{
    Times,
    cluster::{POD_EVENTS, each},
    node_name,
};
use tautline_tests::servers::{KeepAlive, Server};

use crate::{Size, objects};

/// Maximum delay of the extender's watch.
const PATIENCE: Duration = Duration::from_secs(300);

/// A filter of one governed pod over the first `names` nodes.
struct Filter {
    connection: KeepAlive,
    body: Vec<u8>,
}

impl Filter {
    async fn new(server: &Server, names: usize) -> Result<Self> {
        let mut pod = objects::pod(0, 1);
        pod["metadata"]["name"] = "filtered".into();
        pod["metadata"]["uid"] = "filtered".into();
        let names: Vec<String> = (0..names).map(node_name).collect();
        let body = json!({"Pod": pod, "Nodes": null, "NodeNames": names});
        Ok(Self {
            connection: KeepAlive::open(&format!("127.0.0.1:{}", server.port)).await?,
            body: body.to_string().into_bytes(),
        })
    }

    async fn run(&mut self) -> Result<Duration> {
        let start = Instant::now();
        let answer = self.connection.post("/filter", &self.body).await?;
        let took = start.elapsed();
        let answer: Value = serde_json::from_slice(&answer)?;
        let nodes = answer["nodenames"].as_array().map_or(0, Vec::len);
        ensure!(nodes > 0, "no node fits: {answer}");
        Ok(took)
    }
}

/// Sequential filters of `names` nodes.
pub async fn filters(server: &Server, names: usize, times: usize) -> Result<Times> {
    let mut filter = Filter::new(server, names).await?;
    for _ in 0..20 {
        filter.run().await?;
    }
    let mut all = Vec::with_capacity(times);
    for _ in 0..times {
        all.push(filter.run().await?);
    }
    Ok(Times::new(all))
}

/// Durations of the burst.
pub struct Burst {
    /// From the first update to the API server's last answer.
    pub sent_in: Duration,
    /// From then until the extender has seen all updates.
    pub drained_in: Duration,
    /// Filters of all nodes during the burst.
    pub filters: Times,
    pub cpu_s: f64,
}

/// Updates pods at an even rate with filters meanwhile, and waits until all updates are seen.
pub async fn burst(client: &Client, server: &Server, size: &Size) -> Result<Burst> {
    let (before, cpu) = (seen(server).await, server.process.cpu_seconds());
    let start = Instant::now();
    let pause = Duration::from_secs(size.seconds) / u32::try_from(size.updates)?;
    let update = async |i: usize| {
        let due = pause * u32::try_from(i)?;
        tokio::time::sleep(due.saturating_sub(start.elapsed())).await;
        let (namespace, name) = objects::pod_name(i * (size.pods / size.updates));
        let api: Api<Pod> = Api::namespaced(client.clone(), &namespace);
        let patch = json!({"metadata": {"labels": {"burst": "yes"}}});
        api.patch(&name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        anyhow::Ok(())
    };
    let updates = each(size.updates, update);
    let mut filter = Filter::new(server, size.nodes).await?;
    let mut times = Vec::new();
    // Ends only with an error.
    let filters = async {
        loop {
            match filter.run().await {
                Ok(took) => times.push(took),
                Err(e) => return e,
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        done = updates => done?,
        error = filters => return Err(error),
    }
    let sent_in = start.elapsed();
    let drained_in = until(server, before + size.updates as f64).await?;
    Ok(Burst {
        sent_in,
        drained_in,
        filters: Times::new(times),
        cpu_s: server.process.cpu_seconds() - cpu,
    })
}

/// The watch after a restart of the API server.
pub struct Resumed {
    /// From a change after the restart until the extender has seen it.
    pub seen_in: Duration,
    /// Number of pods that the watch delivered: one, or all again.
    pub delivered: f64,
}

/// Changes a pod, and waits until the watch has delivered it and is idle.
pub async fn resumed(client: &Client, server: &Server, before: f64) -> Result<Resumed> {
    let (namespace, name) = objects::pod_name(0);
    let api: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let patch = json!({"metadata": {"labels": {"restarted": "yes"}}});
    api.patch(&name, &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    let seen_in = until(server, before + 1.0).await?;
    let mut delivered = seen(server).await;
    loop {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let now = seen(server).await;
        if now == std::mem::replace(&mut delivered, now) {
            break;
        }
    }
    Ok(Resumed {
        seen_in,
        delivered: delivered - before,
    })
}

/// Number of pods that the watch has delivered.
pub async fn seen(server: &Server) -> f64 {
    server.metric(POD_EVENTS).await
}

/// Waits until the watch has delivered `count` pods in total; returns the duration.
pub async fn until(server: &Server, count: f64) -> Result<Duration> {
    let start = Instant::now();
    while seen(server).await < count {
        let now = seen(server).await;
        ensure!(start.elapsed() < PATIENCE, "{now} of {count} pods seen");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(start.elapsed())
}
