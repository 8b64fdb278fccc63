//! End-to-end tests on the real control plane. Each starts a control plane of its own, and mostly
//! waits for it, so that several run at once.

// The lint does not see helpers as tests; a failed step is a failed test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod admission;
mod allocator_replicas;
mod answers;
mod bandwidth;
mod bindings;
mod console;
mod cost_streams;
mod dispatch;
mod doctor;
mod dra;
mod dra_costs;
mod evictions;
mod extender_certificate;
mod faults;
mod fixed_costs;
mod floods;
mod governed_cluster;
mod gpu;
mod gpu_audit;
mod gpu_compliance;
mod gpu_interceptor;
mod gpu_leaks;
mod gpu_load;
mod gpu_restart;
mod gpu_shared;
mod groups;
mod harness;
mod in_flight;
mod interop;
mod kueue;
mod latency;
mod latency_agents;
mod leader_election;
mod manifests;
mod mutation;
mod node_judge;
mod open_reports;
mod other_clusters;
mod outside;
mod placement;
mod relabeling;
mod requeue;
mod reservations;
mod soft_preferences;
mod tenancy;
mod traces;
mod underlay;
mod volumes;

use std::path::PathBuf;

use anyhow::Result;
use tautline_tests::{control_plane::ControlPlane, objects, root, servers::Server};

/// A cluster of ready nodes with our kinds and roles, the real scheduler, and
/// the extender over TLS under its own account.
struct World {
    plane: ControlPlane,
    extender: Server,
    /// The certificate of the extender's port.
    extender_ca: PathBuf,
}

impl World {
    async fn start(nodes: &[&str], extender: &[&str]) -> Result<Self> {
        Self::with("all-pods.yaml", nodes, extender).await
    }

    async fn with(sample: &str, nodes: &[&str], extender: &[&str]) -> Result<Self> {
        Self::on(ControlPlane::start().await?, sample, nodes, extender).await
    }

    async fn on(
        mut plane: ControlPlane,
        sample: &str,
        nodes: &[&str],
        extender: &[&str],
    ) -> Result<Self> {
        objects::apply_kustomization(&plane.client, &root().join("deploy")).await?;
        let role = std::fs::read_to_string(root().join("deploy/with-bind/role.yaml"))?;
        objects::apply(&plane.client, &role).await?;
        plane.start_kwok().await?;
        for name in nodes {
            objects::node(&plane.client, name, serde_json::json!({})).await?;
        }
        let (extender, ca): (Server, PathBuf) = Server::extender(&plane, extender).await?;
        let url = format!("https://127.0.0.1:{}", extender.port);
        plane.start_scheduler(Some((sample, &url, &ca))).await?;
        Ok(Self {
            plane,
            extender,
            extender_ca: ca,
        })
    }

    /// The logs and state for a failed test.
    fn state(&self) -> String {
        self.extender.process.tail() + &self.plane.logs()
    }

    async fn bound(&self, name: &str) -> String {
        objects::wait_until_bound(&self.plane.client, "default", name, async || self.state()).await
    }
}
