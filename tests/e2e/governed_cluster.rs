//! A whole cluster: Deployments, the extender, controllers, and a provider of one rule.

use std::time::Duration;

use anyhow::Result;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tautline_api::constraint::ConstraintPolicyBinding;
use tautline_sdk::testkit::{self, TestServer};
use tautline_tests::{
    PATIENCE, control_plane::ControlPlane, eventually, objects, root, servers::Server, workloads,
};

use crate::node_judge::NodeJudge;

/// The rule that the judge answers for, and the name of its policy.
pub const RULE: &str = "near";

pub struct GovernedCluster {
    pub plane: ControlPlane,
    pub judge: NodeJudge,
    pub provider: TestServer,
    pub extender: Server,
    pub controllers: Vec<Server>,
}

impl GovernedCluster {
    /// Nodes with their costs, and a controller with `args`.
    pub async fn start(nodes: &[(&str, i64)], args: &[&str]) -> Result<Self> {
        Self::with("all-pods.yaml", nodes, args, &[]).await
    }

    /// The same, with another scheduler sample and arguments for the extender.
    pub async fn with(
        sample: &str,
        nodes: &[(&str, i64)],
        args: &[&str],
        extender: &[&str],
    ) -> Result<Self> {
        let mut plane = ControlPlane::start().await?;
        let client = plane.client.clone();
        objects::apply_kustomization_except(&client, &root().join("deploy"), &["Deployment"])
            .await?;
        let role = std::fs::read_to_string(root().join("deploy/with-bind/role.yaml"))?;
        objects::apply(&client, &role).await?;
        plane.start_kwok().await?;
        plane.start_controller_manager().await?;
        for (name, _) in nodes {
            objects::node(&client, name, json!({})).await?;
        }
        let judge = NodeJudge::new(&client, nodes);
        let provider = testkit::start(judge.clone()).await?;
        let port = provider.address.port();
        objects::provider(&client, "default", "judge", port, &[RULE]).await?;
        let policy = json!({"apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicy",
            "metadata": {"name": RULE, "namespace": "default"}, "spec": {"rules": [{"name": RULE}]}});
        objects::apply_one(&client, policy).await?;
        let (extender, ca) = Server::extender(&plane, extender).await?;
        let url = format!("https://127.0.0.1:{}", extender.port);
        plane.start_scheduler(Some((sample, &url, &ca))).await?;
        let controllers = vec![Server::controller(&plane, "controller-a", args).await?];
        Ok(Self {
            plane,
            judge,
            provider,
            extender,
            controllers,
        })
    }

    pub fn client(&self) -> &Client {
        &self.plane.client
    }

    /// An offer of the judge's rule to pods labelled `app`, evaluated each second.
    pub async fn offer(&self, app: &str, more: Value) {
        let mut spec = json!({
            "targets": [{"apiVersion": "v1", "kind": "Pod", "labelSelector": {"matchLabels": {"app": app}}}],
            "policies": [RULE], "period": "1s",
        });
        if let (Some(spec), Some(more)) = (spec.as_object_mut(), more.as_object()) {
            spec.extend(more.clone());
        }
        workloads::offer(self.client(), "default", app, spec)
            .await
            .unwrap();
    }

    /// A Deployment that the extender knows to be governed by the offer `app`.
    pub async fn deployment(&self, app: &str, replicas: u32) {
        self.extender
            .wait_for_rules("default", app, |rule| rule["provider"].is_string())
            .await;
        workloads::deployment(self.client(), "default", app, app, replicas)
            .await
            .unwrap();
    }

    /// Waits until the offer has `count` bindings that pass `check`.
    pub async fn wait_for_bindings(
        &self,
        offer: &str,
        count: usize,
        what: &str,
        check: impl Fn(&ConstraintPolicyBinding) -> bool,
    ) -> Vec<ConstraintPolicyBinding> {
        let condition = async || {
            let all = workloads::bindings(self.client(), "default", offer).await;
            (all.len() == count && all.iter().all(&check)).then_some(all)
        };
        let what = format!("{count} bindings of {offer}: {what}");
        eventually(&what, PATIENCE, condition, async || self.state(offer).await).await
    }

    /// Waits until all `count` bindings of the offer have this compliance.
    pub async fn wait_for_compliance(&self, offer: &str, count: usize, compliance: &str) {
        self.wait_for_bindings(offer, count, compliance, |b| compliance_of(b) == compliance)
            .await;
    }

    /// Waits for an event with `text` on any object of that name.
    pub async fn wait_for_event(&self, object: &str, text: &str) {
        let condition = async || {
            let events = objects::events(self.client(), "default", object).await;
            events.contains(text).then_some(())
        };
        let what = format!("an event of {object} says {text}");
        eventually(&what, PATIENCE, condition, async || {
            objects::events(self.client(), "default", object).await + &self.state("").await
        })
        .await;
    }

    /// The sum of a metric over the controllers that run.
    pub async fn metric(&self, name: &str) -> f64 {
        let mut sum = 0.0;
        for controller in &self.controllers {
            sum += controller.metric(name).await;
        }
        sum
    }

    /// Waits until a metric of the controllers is at least `least`.
    pub async fn wait_for_metric(&self, name: &str, least: f64) {
        let condition = async || (self.metric(name).await >= least).then_some(());
        let what = format!("{name} reaches {least}");
        let state = async || {
            format!(
                "{name} {}\n{}",
                self.metric(name).await,
                self.state("").await
            )
        };
        eventually(&what, PATIENCE, condition, state).await;
    }

    /// The logs and state for a failed test.
    pub async fn state(&self, offer: &str) -> String {
        let mut out = String::new();
        for b in workloads::bindings(self.client(), "default", offer).await {
            let targets: Vec<&str> = b.spec.targets.values().map(|t| t.name.as_str()).collect();
            let reason = b.status.as_ref().map(|s| s.first_reason.clone());
            out += &format!(
                "{} {targets:?} {} {reason:?}\n",
                b.name_any(),
                compliance_of(&b)
            );
        }
        for controller in &self.controllers {
            out += &controller.process.tail();
            if let Ok((_, decisions)) = controller.admin("/decisions").await {
                out += &format!("{}\n", decisions.chars().take(2000).collect::<String>());
            }
        }
        out + &self.extender.process.tail() + &self.plane.logs()
    }
}

pub fn compliance_of(binding: &ConstraintPolicyBinding) -> String {
    let status = binding.status.as_ref();
    format!("{:?}", status.map(|s| s.compliance).unwrap_or_default())
}

/// Repeats `check` for this time; `check` panics if something changes.
pub async fn for_a_while(time: Duration, mut check: impl AsyncFnMut()) {
    let end = tokio::time::Instant::now() + time;
    while tokio::time::Instant::now() < end {
        check().await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
