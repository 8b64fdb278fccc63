//! The real control plane with a dozen nodes and our servers, for use by hand:
//! `cargo run -p tautline-tests --bin playground`, until Ctrl-C.

use anyhow::Result;
use serde_json::json;
use tautline_tests::{control_plane::ControlPlane, objects, root, servers::Server};

#[tokio::main]
async fn main() -> Result<()> {
    println!("starting etcd, kube-apiserver, kwok (built first if need be) ...");
    let mut plane = ControlPlane::start().await?;
    let client = plane.client.clone();
    objects::apply_kustomization(&client, &root().join("deploy")).await?;
    plane.start_kwok().await?;
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vision"}});
    objects::apply_one(&client, namespace).await?;
    println!("starting the rule providers, the extender and the controller ...");
    let mut servers = Vec::new();
    for name in ["gpu-slice", "latency", "scripted"] {
        servers.push((
            name,
            Server::start(&plane, name, &["provider", name]).await?,
        ));
    }
    let (extender, ca) = Server::extender(&plane, &[]).await?;
    let url = format!("https://127.0.0.1:{}", extender.port);
    plane
        .start_scheduler(Some(("all-pods.yaml", &url, &ca)))
        .await?;
    let example = root().join("examples/edge-inference");
    let apply = async |file: &str| {
        let text = std::fs::read_to_string(example.join(file))?;
        objects::apply(&client, &text).await
    };
    for file in ["1-cluster.yaml", "2-providers.yaml", "3-policies.yaml"] {
        apply(file).await?;
    }
    // The example's Services lead to the processes here.
    for (service, at) in [
        ("gpu-slice", 0),
        ("latency-table", 1),
        ("latency-maintenance", 2),
    ] {
        let rules: &[&str] = match at {
            0 => &["gpu-slice"],
            1 => &["latency"],
            _ => &[],
        };
        objects::provider(&client, "vision", service, servers[at].1.port, rules).await?;
    }
    let _controller = Server::controller(&plane, "controller", &[]).await?;
    for app in ["detector", "tracker", "trainer"] {
        extender
            .wait_for_rules("vision", app, |rule| rule["outcome"] == "OK")
            .await;
    }
    apply("4-pods.yaml").await?;
    println!(
        "\nReady. Twelve nodes, the example edge-inference, kube-scheduler with the extender.\n\n  \
         export KUBECONFIG={}\n  kubectl -n vision get pods -o wide\n  \
         tautline explain vision/detector-0 --url http://127.0.0.1:{}\n  \
         tautline get bindings -n vision\n\n\
         Ctrl-C ends it all.",
        plane.kubeconfig("admin").display(),
        extender.admin
    );
    tokio::signal::ctrl_c().await?;
    println!("\nstopping");
    Ok(())
}
