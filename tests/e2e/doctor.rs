//! `tautline doctor` names the fault of broken installations with its fix, and is silent once
//! it is mended. Deployments run on kwok: their pods are ready, and the test plays the processes.

mod components;
mod installation;
mod rules;
mod tls;

use std::process::{Command, Output};

use serde_json::{Value, json};
use tautline_tests::{PATIENCE, eventually, servers::binary};

use self::installation::Installation;

#[tokio::test]
async fn doctor_names_the_fault_of_each_broken_installation() {
    let mut installed = Installation::start().await;
    installed.healthy().await;
    components::kinds(&installed).await;
    components::components(&installed).await;
    tls::certificate(&installed).await;
    components::leases(&installed).await;
    components::agents(&installed).await;
    rules::providers(&installed).await;
    rules::calls_of_kube_scheduler(&mut installed).await;
    rules::pending_pods(&installed).await;
    tls::webhooks(&installed).await;
    components::elsewhere(&installed).await;
    installed.healthy().await;
}

impl Installation {
    async fn run(&self, user: &str, args: &[&str]) -> Output {
        let mut command = Command::new(binary().unwrap());
        command
            .args(["doctor", "--kubeconfig"])
            .arg(self.plane.kubeconfig(user))
            .args(args)
            .env_remove("POD_NAMESPACE");
        // The relay of the extender's metrics runs on this thread.
        let output = tokio::task::spawn_blocking(move || command.output()).await;
        output.unwrap().unwrap()
    }

    /// The exit code and the report.
    async fn doctor(&self, user: &str, args: &[&str]) -> (Option<i32>, Value) {
        let output = self.run(user, &[args, &["-o", "json"]].concat()).await;
        let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| {
            panic!("{e}: {output:?}");
        });
        (output.status.code(), report)
    }

    /// Waits until no check has a finding.
    async fn healthy(&self) {
        let check = async || {
            let (code, report) = self.doctor("admin", &[]).await;
            let expected = (json!(0), json!(self.unchecked()));
            let found = (report["problems"].clone(), report["warnings"].clone());
            (code == Some(0) && found == expected).then_some(())
        };
        let state = async || format!("{:#}", self.doctor("admin", &[]).await.1);
        eventually("the installation is healthy", PATIENCE, check, state).await;
    }

    /// Waits for a finding of the check about an object whose text and fix have these parts.
    async fn finds(&self, level: &str, check: &str, object: &str, text: &str, fix: &str) {
        let has = |finding: &Value, field: &str, part: &str| {
            finding[field].as_str().unwrap_or_default().contains(part)
        };
        let poll = async || {
            let (code, report) = self.doctor("admin", &[]).await;
            let is_expected = |f: &&Value| {
                f["level"] == level
                    && f["check"] == check
                    && has(f, "object", object)
                    && has(f, "text", text)
                    && has(f, "fix", fix)
            };
            let finding = report["findings"]
                .as_array()?
                .iter()
                .find(is_expected)?
                .clone();
            let is_problem = report["problems"] != 0;
            assert_eq!(code, Some(i32::from(is_problem)), "{report:#}");
            Some(finding)
        };
        let what = format!("doctor finds {level} {check} of {object}: {text}; fix {fix}");
        let state = async || format!("{:#}", self.doctor("admin", &[]).await.1);
        let finding = eventually(&what, PATIENCE, poll, state).await;
        println!(
            "{check:<22} {}: {}\n    fix: {}",
            finding["object"].as_str().unwrap_or_default(),
            finding["text"].as_str().unwrap_or_default(),
            finding["fix"].as_str().unwrap_or_default()
        );
    }

    /// Waits until the check has no finding about the object any more.
    async fn mended(&self, check: &str, object: &str) {
        let poll = async || {
            let (_, report) = self.doctor("admin", &[]).await;
            let is_left = |f: &Value| {
                f["check"] == check && f["object"].as_str().unwrap_or_default().contains(object)
            };
            let left = report["findings"].as_array()?.iter().any(is_left);
            (!left).then_some(())
        };
        let what = format!("{check} of {object} is gone");
        let state = async || format!("{:#}", self.doctor("admin", &[]).await.1);
        eventually(&what, PATIENCE, poll, state).await;
    }
}
