//! Deployments and DaemonSets that run a process of Tautline, by their arguments: their names
//! may differ.

use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment},
        core::v1::{Container, Pod, PodSpec, PodTemplateSpec},
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use kube::core::{Selector, SelectorExt};

const PART_OF: &str = "app.kubernetes.io/part-of";
const ADMIN_PORT: i32 = 9090;

/// The process of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    Extender,
    Controller,
    Admission,
    GpuSlice,
    Latency,
    Scripted,
    LatencyAgent,
}

impl Role {
    fn of(words: &[&str]) -> Option<Self> {
        let at = |word: &str| words.iter().position(|w| *w == word);
        let after = |i: usize| words.get(i + 1).copied().unwrap_or_default();
        if let Some(i) = at("provider") {
            return match after(i) {
                "gpu-slice" => Some(Self::GpuSlice),
                "latency" => Some(Self::Latency),
                "scripted" => Some(Self::Scripted),
                _ => None,
            };
        }
        if let Some(i) = at("agent") {
            return (after(i) == "latency").then_some(Self::LatencyAgent);
        }
        let roles = [
            ("extender", Self::Extender),
            ("controller", Self::Controller),
            ("admission", Self::Admission),
        ];
        roles
            .into_iter()
            .find(|(word, _)| at(word).is_some())
            .map(|(_, role)| role)
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Extender => "extender",
            Self::Controller => "controller",
            Self::Admission => "admission server",
            Self::GpuSlice => "provider of gpu-slice",
            Self::Latency => "provider of latency",
            Self::Scripted => "scripted provider",
            Self::LatencyAgent => "latency agent",
        }
    }
}

/// A Deployment or DaemonSet.
#[derive(Clone, Debug)]
pub(crate) struct Workload<'a> {
    pub kind: &'static str,
    pub name: &'a str,
    pub role: Role,
    /// The pods that there should be, as far as the object says.
    pub desired: Option<usize>,
    /// The message of the condition ReplicaFailure.
    pub failure: Option<&'a str>,
    pub helm_release: Option<&'a str>,
    pub template: &'a PodTemplateSpec,
    pub spec: &'a PodSpec,
    pub container: &'a Container,
    selector: Option<Selector>,
}

impl<'a> Workload<'a> {
    pub(crate) fn of_deployment(deployment: &'a Deployment) -> Option<Self> {
        let spec = deployment.spec.as_ref()?;
        let conditions = deployment
            .status
            .as_ref()
            .and_then(|s| s.conditions.as_ref());
        let failure = conditions
            .into_iter()
            .flatten()
            .find(|c| c.type_ == "ReplicaFailure" && c.status == "True");
        Some(Self {
            kind: "Deployment",
            desired: Some(usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0)),
            failure: failure.and_then(|c| c.message.as_deref()),
            ..Self::new(&deployment.metadata, &spec.selector, &spec.template)?
        })
    }

    pub(crate) fn of_daemon_set(daemon_set: &'a DaemonSet) -> Option<Self> {
        let spec = daemon_set.spec.as_ref()?;
        Some(Self {
            kind: "DaemonSet",
            ..Self::new(&daemon_set.metadata, &spec.selector, &spec.template)?
        })
    }

    fn new(
        meta: &'a ObjectMeta,
        selector: &LabelSelector,
        template: &'a PodTemplateSpec,
    ) -> Option<Self> {
        let spec = template.spec.as_ref()?;
        let is_part = meta.labels.as_ref().and_then(|l| l.get(PART_OF)) == Some(&"tautline".into());
        let process = |c: &'a Container| {
            let image = c.image.as_deref().unwrap_or_default();
            let is_ours = is_part || image.contains("tautline");
            let words: Vec<&str> = words(c).collect();
            let role = Role::of(&words).filter(|_| is_ours)?;
            Some((c, role))
        };
        let (container, role) = spec.containers.iter().find_map(process)?;
        let annotations = meta.annotations.as_ref();
        Some(Self {
            kind: "",
            name: meta.name.as_deref()?,
            role,
            desired: None,
            failure: None,
            helm_release: annotations
                .and_then(|a| a.get("meta.helm.sh/release-name"))
                .map(String::as_str),
            template,
            spec,
            container,
            selector: selector.clone().try_into().ok(),
        })
    }

    pub(crate) fn object(&self) -> String {
        format!("{} {}", self.kind, self.name)
    }

    /// The workload as an argument of kubectl: `deploy/NAME`.
    pub(crate) fn kubectl(&self) -> String {
        let kind = if self.kind == "DaemonSet" {
            "ds"
        } else {
            "deploy"
        };
        format!("{kind}/{}", self.name)
    }

    pub(crate) fn account(&self) -> &'a str {
        let name = self.spec.service_account_name.as_deref();
        name.filter(|n| !n.is_empty()).unwrap_or("default")
    }

    /// The value of `--flag VALUE` or `--flag=VALUE`.
    pub(crate) fn flag(&self, flag: &str) -> Option<&'a str> {
        let mut words = words(self.container);
        while let Some(word) = words.next() {
            match word.strip_prefix(flag) {
                Some("") => return words.next(),
                Some(rest) if rest.starts_with('=') => return rest.get(1..),
                _ => {}
            }
        }
        None
    }

    pub(crate) fn has_flag(&self, flag: &str) -> bool {
        words(self.container).any(|w| w == flag)
    }

    /// The Secret and its key that a file of the container comes from.
    pub(crate) fn secret_of(&self, path: &str) -> Option<(&'a str, String)> {
        let mounts = self.container.volume_mounts.iter().flatten();
        let mount = mounts
            .filter(|m| {
                path.strip_prefix(&*m.mount_path)
                    .is_some_and(|p| p.starts_with('/'))
            })
            .max_by_key(|m| m.mount_path.len())?;
        let file = path
            .strip_prefix(&*mount.mount_path)?
            .trim_start_matches('/');
        let mut volumes = self.spec.volumes.iter().flatten();
        let secret = volumes.find(|v| v.name == mount.name)?.secret.as_ref()?;
        let mut items = secret.items.iter().flatten();
        let key = items.find(|i| i.path == file).map(|i| i.key.clone());
        Some((
            secret.secret_name.as_deref()?,
            key.unwrap_or_else(|| file.to_owned()),
        ))
    }

    pub(crate) fn admin_port(&self) -> i32 {
        let mut ports = self.container.ports.iter().flatten();
        let admin = ports.find(|p| p.name.as_deref() == Some("admin"));
        admin.map_or(ADMIN_PORT, |p| p.container_port)
    }

    pub(crate) fn pods<'p>(&'p self, pods: &'p [Pod]) -> impl Iterator<Item = &'p Pod> {
        let of = move |pod: &&Pod| {
            let labels = pod.metadata.labels.as_ref();
            let selector = self.selector.as_ref();
            pod.metadata.deletion_timestamp.is_none()
                && selector.zip(labels).is_some_and(|(s, l)| s.matches(l))
        };
        pods.iter().filter(of)
    }
}

fn words(container: &Container) -> impl Iterator<Item = &str> {
    let all = container.command.iter().chain(&container.args).flatten();
    all.map(String::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn deployment(containers: Value) -> Deployment {
        serde_json::from_value(json!({
            "metadata": {"name": "a"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"spec": {
                "containers": containers,
                "volumes": [{"name": "tls", "secret": {"secretName": "s",
                    "items": [{"key": "cert", "path": "tls.crt"}]}}]}}},
        }))
        .unwrap()
    }

    #[test]
    fn role_comes_from_the_arguments() {
        let of = |image: &str, args: &[&str]| {
            let d = deployment(json!([{"name": "c", "image": image, "args": args}]));
            Workload::of_deployment(&d).map(|w| w.role)
        };
        let ours = "example.com/tautline:1";
        assert_eq!(of(ours, &["extender", "--bind"]), Some(Role::Extender));
        assert_eq!(
            of(ours, &["--log", "info", "provider", "latency"]),
            Some(Role::Latency)
        );
        assert_eq!(of(ours, &["agent", "latency"]), Some(Role::LatencyAgent));
        assert_eq!(of(ours, &["provider", "other"]), None);
        assert_eq!(of(ours, &[]), None);
        assert_eq!(of("example.com/other", &["controller"]), None);
    }

    #[test]
    fn the_extender_may_share_its_pod_with_kube_scheduler() {
        let d = deployment(json!([
            {"name": "kube-scheduler", "image": "registry.k8s.io/kube-scheduler:v1.36.0"},
            {"name": "e", "image": "tautline", "args": ["extender", "--listen", "127.0.0.1:8888"]},
        ]));
        let workload = Workload::of_deployment(&d).unwrap();
        assert_eq!(workload.role, Role::Extender);
        assert_eq!(workload.flag("--listen"), Some("127.0.0.1:8888"));
        assert_eq!(workload.desired, Some(1));
    }

    #[test]
    fn files_are_traced_to_their_secret() {
        let d = deployment(json!([{"name": "e", "image": "tautline",
            "args": ["extender", "--tls-cert=/tls/tls.crt", "--tls-key", "/tls/tls.key"],
            "volumeMounts": [{"name": "tls", "mountPath": "/tls"}, {"name": "x", "mountPath": "/t"}],
        }]));
        let workload = Workload::of_deployment(&d).unwrap();
        let secret = |flag| {
            workload
                .flag(flag)
                .and_then(|path| workload.secret_of(path))
        };
        assert_eq!(secret("--tls-cert"), Some(("s", "cert".to_owned())));
        assert_eq!(secret("--tls-key"), Some(("s", "tls.key".to_owned())));
        assert_eq!(workload.flag("--tls"), None);
        assert_eq!(workload.secret_of("/tlsx/tls.crt"), None);
        assert_eq!(workload.admin_port(), 9090);
    }
}
