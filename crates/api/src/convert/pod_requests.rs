//! A pod's requests as kube-scheduler counts them: `PodRequests` of `k8s.io/component-helpers`,
//! after the defaults of the API server.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, ContainerStatus, Pod, PodSpec},
    apimachinery::pkg::api::resource::Quantity,
};
use tautline_core::{
    ContainerKind,
    model::{ContainerRequests, MAX_CONTAINERS, Resources},
    names::GATE_RESOURCE,
};

use super::{condition, milli, whole_units};

type Amounts<'a> = BTreeMap<&'a str, i64>;
type Quantities = BTreeMap<String, Quantity>;

/// Returns a pod's effective requests. During a resize of a bound pod, they also cover the amounts
/// that the kubelet has allocated and applied.
pub fn requests(pod: &Pod) -> Resources {
    let Some(spec) = &pod.spec else {
        return Resources::default();
    };
    let bound = spec.node_name.as_deref().is_some_and(|n| !n.is_empty());
    let resize = bound.then(|| Resize::new(pod));
    let mut sum = of_containers(spec, resize.as_ref());
    let of_pod = of_pod(spec);
    if of_pod.keys().any(|name| is_of_pods(name)) {
        let status = pod.status.as_ref();
        let actual = status.and_then(|s| Some((s, s.resources.as_ref()?)));
        let effective = match (&resize, actual) {
            (Some(resize), Some((status, actual))) => &resize.largest(
                of_pod.clone(),
                actual.requests.as_ref(),
                status.allocated_resources.as_ref(),
            ),
            _ => &of_pod,
        };
        for name in of_pod.keys().filter(|name| is_of_pods(name)) {
            sum.insert(name, effective.get(name).copied().unwrap_or(0));
        }
    }
    add(&mut sum, &amounts(spec.overhead.as_ref()));
    sum.into_iter()
        .map(|(name, milli)| (name, whole_units(name, milli)))
        .collect()
}

/// The status of a pod whose amounts may differ from those of its spec.
struct Resize<'a> {
    statuses: BTreeMap<&'a str, &'a ContainerStatus>,
    /// True if the kubelet has refused the amounts of the spec.
    is_infeasible: bool,
}

impl<'a> Resize<'a> {
    fn new(pod: &'a Pod) -> Self {
        let status = pod.status.iter();
        let statuses = status.flat_map(|s| [&s.container_statuses, &s.init_container_statuses]);
        let pending = condition(pod, "PodResizePending");
        Self {
            statuses: statuses
                .flatten()
                .flatten()
                .map(|s| (s.name.as_str(), s))
                .collect(),
            is_infeasible: pending.is_some_and(|c| c.reason.as_deref() == Some("Infeasible")),
        }
    }

    fn of(&self, container: &'a Container) -> Amounts<'a> {
        let desired = desired(container);
        match self.statuses.get(&*container.name) {
            Some(status) if status.resources.is_some() => self.largest(
                desired,
                status.resources.as_ref().and_then(|r| r.requests.as_ref()),
                status.allocated_resources.as_ref(),
            ),
            _ => desired,
        }
    }

    fn largest(
        &self,
        desired: Amounts<'a>,
        actual: Option<&'a Quantities>,
        allocated: Option<&'a Quantities>,
    ) -> Amounts<'a> {
        let mut largest = if self.is_infeasible {
            Amounts::default()
        } else {
            desired
        };
        raise(&mut largest, &amounts(actual));
        raise(&mut largest, &amounts(allocated));
        largest
    }
}

/// Returns the requests of all containers together; without `resize`, the requests in the spec.
/// <https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers>
fn of_containers<'a>(spec: &'a PodSpec, resize: Option<&Resize<'a>>) -> Amounts<'a> {
    let of = |container| resize.map_or_else(|| desired(container), |r| r.of(container));
    let (mut sum, mut peak, mut sidecars) =
        (Amounts::default(), Amounts::default(), Amounts::default());
    for container in &spec.containers {
        add(&mut sum, &of(container));
    }
    for container in spec.init_containers.iter().flatten() {
        if container.restart_policy.as_deref() == Some("Always") {
            let own = of(container);
            add(&mut sum, &own);
            add(&mut sidecars, &own);
            raise(&mut peak, &sidecars);
        } else {
            let mut together = desired(container);
            add(&mut together, &sidecars);
            raise(&mut peak, &together);
        }
    }
    raise(&mut sum, &peak);
    sum
}

/// Returns the containers' requests of extended resources, in the order in which the containers
/// start. The list is empty unless at least two containers request some, since only then parts of
/// several devices may be needed. It ends one entry after [`MAX_CONTAINERS`], which shows that
/// there are more.
pub fn container_requests_of(spec: &PodSpec) -> Vec<ContainerRequests> {
    let inits = spec.init_containers.iter().flatten();
    let inits = inits.map(|c| match c.restart_policy.as_deref() {
        Some("Always") => (c, ContainerKind::Sidecar),
        _ => (c, ContainerKind::Init),
    });
    let mains = spec.containers.iter().map(|c| (c, ContainerKind::Main));
    let extended = |(container, kind): (&Container, ContainerKind)| {
        let of = desired(container).into_iter();
        let of = of.filter(|(n, v)| n.contains('/') && *n != GATE_RESOURCE && *v > 0);
        let requests: Resources = of.collect();
        let any = requests.iter().next().is_some();
        any.then_some(ContainerRequests { kind, requests })
    };
    let all = inits.chain(mains).filter_map(extended);
    let mut all: Vec<ContainerRequests> = all.take(MAX_CONTAINERS + 1).collect();
    if all.len() < 2 {
        all.clear();
    }
    all
}

/// Returns a container's requests. The default of a request is the limit, as in the API server.
fn desired(container: &Container) -> Amounts<'_> {
    let resources = container.resources.as_ref();
    let mut all = amounts(resources.and_then(|r| r.limits.as_ref()));
    all.extend(amounts(resources.and_then(|r| r.requests.as_ref())));
    all
}

/// Returns the requests of the pod as a whole. If it has limits, the default of a request is the
/// sum of its containers' requests for CPU and memory, or else the limit, as in the API server.
fn of_pod(spec: &PodSpec) -> Amounts<'_> {
    let resources = spec.resources.as_ref();
    let mut all = amounts(resources.and_then(|r| r.requests.as_ref()));
    let limits = amounts(resources.and_then(|r| r.limits.as_ref()));
    if limits.is_empty() {
        return all;
    }
    let of_containers = of_containers(spec, None).into_iter();
    let defaults = of_containers.filter(|(name, _)| matches!(*name, "cpu" | "memory"));
    for (name, milli) in defaults.chain(limits.into_iter().filter(|(name, _)| is_of_pods(name))) {
        all.entry(name).or_insert(milli);
    }
    all
}

/// Returns whether a pod may request the resource as a whole.
fn is_of_pods(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

fn amounts(of: Option<&Quantities>) -> Amounts<'_> {
    let all = of.into_iter().flatten();
    all.map(|(name, q)| (name.as_str(), milli(q))).collect()
}

fn add<'a>(sum: &mut Amounts<'a>, more: &Amounts<'a>) {
    for (name, amount) in more {
        let at = sum.entry(name).or_default();
        *at = at.saturating_add(*amount);
    }
}

fn raise<'a>(peak: &mut Amounts<'a>, to: &Amounts<'a>) {
    for (name, amount) in to {
        let at = peak.entry(name).or_default();
        *at = (*at).max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(spec: Value, status: Value) -> Resources {
        let pod = json!({"metadata": {}, "spec": spec, "status": status});
        requests(&serde_json::from_value(pod).unwrap())
    }

    fn container(name: &str, requests: Value) -> Value {
        json!({"name": name, "resources": {"requests": requests}})
    }

    #[test]
    fn requests_count_init_containers_and_sidecars() {
        let spec = json!({
            "containers": [
                {"name": "a", "resources": {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": "2"}}},
                container("b", json!({"cpu": "500m"}))],
            "initContainers": [
                {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
                container("big", json!({"cpu": "3", "memory": "1Gi"}))],
            "overhead": {"cpu": "250m"}});
        let requests = of(spec, json!({}));
        // init: 3 + the sidecar's 1 = 4 against 2.5 together; plus overhead
        assert_eq!(requests.milli("cpu"), 4_250);
        assert_eq!(requests.milli("nvidia.com/gpu"), 2_000);
        assert_eq!(requests.milli("memory"), 1_073_741_824_000);
    }

    #[test]
    fn requests_of_memory_are_whole_bytes() {
        let spec = json!({"containers": [
            container("a", json!({"memory": "1500m", "cpu": "1500m"})),
            container("b", json!({"memory": "1500m"}))]});
        let requests = of(spec, json!({}));
        assert_eq!(
            (requests.milli("memory"), requests.milli("cpu")),
            (3_000, 1_500)
        );
        let spec = json!({"containers": [container("a", json!({"memory": "1500m"}))]});
        assert_eq!(of(spec, json!({})).milli("memory"), 2_000);
    }

    #[test]
    fn requests_of_the_pod_replace_those_of_its_containers() {
        let pod_level = |resources: Value, container: Value| {
            let containers = json!([{"name": "one", "resources": container}, {"name": "two"}]);
            let spec = json!({"resources": resources, "containers": containers});
            of(spec, json!({}))
        };
        let half = || json!({"requests": {"cpu": "500m", "memory": "50Mi", "example.com/x": "2"}});
        let got = pod_level(json!({"requests": {"cpu": "3"}}), half());
        assert_eq!(got.milli("cpu"), 3_000);
        assert_eq!(got.milli("memory"), 50 * (1 << 20) * 1000);
        assert_eq!(got.milli("example.com/x"), 2_000);
        // Only limits: the containers' requests count where there are any.
        let limits = || json!({"limits": {"cpu": "3", "memory": "1Gi"}});
        assert_eq!(pod_level(limits(), json!({})).milli("cpu"), 3_000);
        let got = pod_level(limits(), json!({"requests": {"cpu": "1"}}));
        let gi = (1 << 30) * 1000;
        assert_eq!((got.milli("cpu"), got.milli("memory")), (1_000, gi));
        let huge = json!({"limits": {"cpu": "1", "hugepages-2Mi": "200Mi"}});
        let got = pod_level(huge, json!({}));
        assert_eq!(got.milli("hugepages-2Mi"), 200 * (1 << 20) * 1000);
        // A resource that pods cannot request as a whole does not count.
        let other = json!({"requests": {"example.com/x": "5"}});
        assert_eq!(pod_level(other, half()).milli("example.com/x"), 2_000);
        // 1 CPU each for the init container and the first container; the second asks for none.
        let spec = json!({
            "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}},
            "containers": [
                {"name": "one", "resources": {"limits": {"cpu": "1"}}},
                {"name": "two", "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "0"}}}],
            "initContainers": [container("i", json!({"cpu": "1"}))],
            "overhead": {"cpu": "100m"}});
        assert_eq!(of(spec, json!({})).milli("cpu"), 1_100);
    }

    /// A bound pod that asks for `desired` while the kubelet has allocated and runs other amounts.
    fn resized(desired: &str, allocated: &str, actual: &str, conditions: Value) -> i64 {
        let status = |name: &str| {
            json!({"name": name, "image": "", "imageID": "", "ready": true, "restartCount": 0,
                   "allocatedResources": {"cpu": allocated},
                   "resources": {"requests": {"cpu": actual}}})
        };
        let spec = |node: &str| json!({"nodeName": node, "containers": [container("main", json!({"cpu": desired}))]});
        let statuses = json!({"conditions": conditions, "containerStatuses": [status("main")]});
        // A pod without a node will start with the amounts of its spec.
        let unbound = of(spec(""), statuses.clone()).milli("cpu");
        assert_eq!(unbound, milli(&Quantity(desired.to_owned())));
        of(spec("n"), statuses).milli("cpu")
    }

    #[test]
    fn requests_of_a_resized_pod_are_the_largest_amounts() {
        let pending = |reason: &str| json!([{"type": "PodResizePending", "status": "True", "reason": reason}]);
        assert_eq!(resized("1", "3", "3", json!([])), 3_000);
        assert_eq!(resized("1", "1", "3", json!([])), 3_000);
        assert_eq!(resized("4", "1", "1", json!([])), 4_000);
        assert_eq!(resized("4", "1", "1", pending("Deferred")), 4_000);
        assert_eq!(resized("4", "1", "1", pending("Infeasible")), 1_000);
        assert_eq!(resized("4", "2", "1", pending("Infeasible")), 2_000);
    }

    #[test]
    fn resize_of_a_pod_counts_for_sidecars_and_the_pod() {
        let amounts = |cpu: &str| json!({"requests": {"cpu": cpu}});
        let status = |name: &str, cpu: &str| {
            json!({"name": name, "image": "", "imageID": "", "ready": true, "restartCount": 0,
                   "allocatedResources": {"cpu": cpu}, "resources": amounts(cpu)})
        };
        let spec = |resources: Value| {
            json!({"nodeName": "n", "resources": resources,
                   "containers": [{"name": "main", "resources": amounts("1")}],
                   "initContainers": [
                       {"name": "side", "restartPolicy": "Always", "resources": amounts("1")},
                       {"name": "init", "resources": amounts("1")}]})
        };
        // The status of an init container that ends does not count, that of a sidecar does.
        let statuses = json!([status("side", "2"), status("init", "8")]);
        let of_containers = json!({"initContainerStatuses": statuses});
        assert_eq!(of(spec(Value::Null), of_containers).milli("cpu"), 3_000);
        let of_pod = |conditions: Value| {
            let status = json!({"conditions": conditions, "resources": amounts("5"),
                                "allocatedResources": {"cpu": "6"}});
            of(spec(amounts("7")), status).milli("cpu")
        };
        assert_eq!(of_pod(json!([])), 7_000);
        let refused =
            json!([{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]);
        assert_eq!(of_pod(refused), 6_000);
        // Without actual amounts the allocated ones are not read, as by kube-scheduler.
        let status = json!({"allocatedResources": {"cpu": "9"}});
        assert_eq!(of(spec(amounts("7")), status).milli("cpu"), 7_000);
    }

    #[test]
    fn containers_are_kept_if_several_request_extended_resources() {
        let of = |json: &str| container_requests_of(&serde_json::from_str(json).unwrap());
        let several = of(
            r#"{"initContainers":[{"name":"i","resources":{"limits":{"a/x":"3"}}},
                                  {"name":"s","restartPolicy":"Always","resources":{"limits":{"a/x":"1","cpu":"1"}}}],
                "containers":[{"name":"a","resources":{"limits":{"a/x":"2","constraint.ciena.com/governed":"1"}}},
                              {"name":"b","resources":{"requests":{"cpu":"1","a/x":"0"}}}]}"#,
        );
        let kinds = [
            ContainerKind::Init,
            ContainerKind::Sidecar,
            ContainerKind::Main,
        ];
        let expected = kinds.into_iter().zip([3_000, 1_000, 2_000]);
        let expected = expected.map(|(kind, milli)| ContainerRequests {
            kind,
            requests: [("a/x", milli)].into_iter().collect(),
        });
        assert_eq!(several, expected.collect::<Vec<_>>());
        let one = of(
            r#"{"containers":[{"name":"a","resources":{"limits":{"a/x":"2"}}},
                              {"name":"b","resources":{"limits":{"constraint.ciena.com/governed":"1"}}}]}"#,
        );
        assert_eq!(one, []);
    }
}
