//! Finds the Deployments and DaemonSets that run a process of Tautline, by their arguments, since
//! their names may differ.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment},
        core::v1::{Container, Pod, PodCondition, PodSpec, PodTemplateSpec},
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use kube::core::{Selector, SelectorExt};

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
    GpuAgent,
}

impl Role {
    fn of(words: &[&str]) -> Option<Self> {
        let after = |word: &str| {
            let at = words.iter().position(|w| *w == word)?;
            Some(words.get(at + 1).copied().unwrap_or_default())
        };
        match (after("provider"), after("agent")) {
            (Some("gpu-slice"), _) => Some(Self::GpuSlice),
            (Some("latency"), _) => Some(Self::Latency),
            (Some("scripted"), _) => Some(Self::Scripted),
            (None, Some("latency")) => Some(Self::LatencyAgent),
            (None, Some("gpu")) => Some(Self::GpuAgent),
            (None, None) if after("extender").is_some() => Some(Self::Extender),
            (None, None) if after("controller").is_some() => Some(Self::Controller),
            (None, None) if after("admission").is_some() => Some(Self::Admission),
            _ => None,
        }
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
            Self::GpuAgent => "GPU agent",
        }
    }
}

/// A Deployment or DaemonSet.
#[derive(Clone, Debug)]
pub(crate) struct Workload<'a> {
    pub kind: &'static str,
    pub name: &'a str,
    pub role: Role,
    /// The number of pods that there should be, if the object has it.
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
        let (meta, spec) = (&deployment.metadata, deployment.spec.as_ref()?);
        let status = deployment.status.iter();
        let mut conditions = status.flat_map(|s| s.conditions.iter().flatten());
        let failure = conditions.find(|c| c.type_ == "ReplicaFailure" && c.status == "True");
        Some(Self {
            desired: Some(usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0)),
            failure: failure.and_then(|c| c.message.as_deref()),
            ..Self::new("Deployment", meta, &spec.selector, &spec.template)?
        })
    }

    pub(crate) fn of_daemon_set(daemon_set: &'a DaemonSet) -> Option<Self> {
        let (meta, spec) = (&daemon_set.metadata, daemon_set.spec.as_ref()?);
        Self::new("DaemonSet", meta, &spec.selector, &spec.template)
    }

    fn new(
        kind: &'static str,
        meta: &'a ObjectMeta,
        selector: &LabelSelector,
        template: &'a PodTemplateSpec,
    ) -> Option<Self> {
        let spec = template.spec.as_ref()?;
        type Map = Option<BTreeMap<String, String>>;
        let value = |map: &'a Map, key: &str| map.as_ref()?.get(key).map(String::as_str);
        let is_part = value(&meta.labels, "app.kubernetes.io/part-of") == Some("tautline");
        let process = |c: &'a Container| {
            let is_ours = is_part || c.image.as_ref()?.contains("tautline");
            let role = Role::of(&words(c).collect::<Vec<_>>())?;
            is_ours.then_some((c, role))
        };
        let (container, role) = spec.containers.iter().find_map(process)?;
        Some(Self {
            kind,
            name: meta.name.as_deref()?,
            role,
            desired: None,
            failure: None,
            helm_release: value(&meta.annotations, "meta.helm.sh/release-name"),
            template,
            spec,
            container,
            selector: selector.clone().try_into().ok(),
        })
    }

    pub(crate) fn object(&self) -> String {
        format!("{} {}", self.kind, self.name)
    }

    /// Returns the workload as an argument of kubectl: `deploy/NAME`.
    pub(crate) fn kubectl(&self) -> String {
        let is_deployment = self.kind == "Deployment";
        let kind = if is_deployment { "deploy" } else { "ds" };
        format!("{kind}/{}", self.name)
    }

    pub(crate) fn account(&self) -> &'a str {
        let name = self.spec.service_account_name.as_deref();
        name.filter(|n| !n.is_empty()).unwrap_or("default")
    }

    /// Returns the value of `--flag VALUE` or `--flag=VALUE`.
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

    /// Returns the namespace and the name of `--flag NAMESPACE/NAME`.
    pub(crate) fn object_flag(&self, flag: &str) -> Option<(&'a str, &'a str)> {
        self.flag(flag)?.split_once('/')
    }

    pub(crate) fn has_flag(&self, flag: &str) -> bool {
        words(self.container).any(|w| w == flag)
    }

    /// Returns the Secret, and its key, that a file of the container comes from.
    pub(crate) fn secret_of(&self, path: &str) -> Option<(&'a str, String)> {
        let mounts = self.container.volume_mounts.iter().flatten();
        let files = mounts.filter_map(|m| {
            let file = path.strip_prefix(&*m.mount_path)?.strip_prefix('/')?;
            Some((m, file.trim_start_matches('/')))
        });
        let (mount, file) = files.max_by_key(|(m, _)| m.mount_path.len())?;
        let mut volumes = self.spec.volumes.iter().flatten();
        let secret = volumes.find(|v| v.name == mount.name)?.secret.as_ref()?;
        let mut items = secret.items.iter().flatten();
        let key = items.find(|i| i.path == file).map_or(file, |i| &i.key);
        Some((secret.secret_name.as_deref()?, key.to_owned()))
    }

    /// Returns the Secret of a server's certificate.
    pub(crate) fn tls_secret(&self) -> Option<&'a str> {
        match (self.role, self.flag("--tls-cert")) {
            (Role::Extender | Role::Admission, Some(path)) => Some(self.secret_of(path)?.0),
            _ => self.generated_secret(),
        }
    }

    /// Returns the Secret of the certificates that a server generates.
    pub(crate) fn generated_secret(&self) -> Option<&'a str> {
        match (self.role, self.flag("--tls-cert")) {
            (Role::Extender, None) => self.flag("--tls-secret"),
            (Role::Admission, None) => Some("tautline-admission-tls"),
            _ => None,
        }
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

/// Returns a pod's condition.
pub(crate) fn condition<'p>(pod: &'p Pod, type_: &str) -> Option<&'p PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|c| c.type_ == type_)
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
        assert_eq!(of(ours, &["agent", "gpu"]), Some(Role::GpuAgent));
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
    }
}
