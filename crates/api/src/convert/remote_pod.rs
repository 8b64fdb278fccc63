//! Converts a pod of another cluster.

use std::{net::IpAddr, sync::Arc};

use k8s_openapi::api::core::v1 as corev1;
use tautline_core::remote::RemotePod;

use super::{name, namespace, outside_place, pod};

/// Converts a pod of another cluster; `None` if it has finished. The pod's place is `port` at the
/// address of its node.
pub fn remote_pod(pod: &corev1::Pod, cluster: &Arc<str>, port: u16) -> Option<RemotePod> {
    let status = pod.status.as_ref();
    let phase = status.and_then(|s| s.phase.as_deref());
    if matches!(phase, Some("Succeeded" | "Failed")) {
        return None;
    }
    let host = status.and_then(|s| s.host_ip.as_deref());
    // Agents connect to the place, so a name is not taken for an address.
    let host = host.and_then(|host| host.parse::<IpAddr>().ok());
    Some(RemotePod {
        cluster: Arc::clone(cluster),
        namespace: namespace(&pod.metadata),
        name: name(&pod.metadata),
        uid: pod.metadata.uid.as_deref().unwrap_or_default().into(),
        labels: pod::pod_labels(pod),
        place: host.map(|ip| outside_place(&ip.to_canonical().to_string(), port)),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn converted(status: Value) -> Option<RemotePod> {
        let pod = json!({"metadata": {"name": "db-0", "namespace": "shop", "uid": "u",
                                      "labels": {"app": "db"}}, "status": status});
        remote_pod(&serde_json::from_value(pod).unwrap(), &"east".into(), 10250)
    }

    #[test]
    fn remote_pod_has_the_names_and_labels_of_the_pod() {
        let pod = converted(json!({"phase": "Running", "hostIP": "10.1.0.7"})).unwrap();
        assert_eq!(pod.reference().to_string(), "east:shop:v1:Pod:db-0");
        assert_eq!((&*pod.uid, pod.labels.get("app")), ("u", Some("db")));
    }

    #[test]
    fn place_of_a_remote_pod_is_the_address_of_its_node() {
        let place = |status: Value| converted(status).unwrap().place;
        for (host, expected) in [
            ("10.1.0.7", "10.1.0.7:10250"),
            ("fd00:0::7", "[fd00::7]:10250"),
            ("::ffff:10.1.0.7", "10.1.0.7:10250"),
        ] {
            let place = place(json!({"hostIP": host}));
            assert_eq!(place.as_deref(), Some(expected), "{host}");
        }
        for host in ["", "n1.example.com", "10.1.0.7:22", "[fd00::7]", "10.1.0"] {
            assert_eq!(place(json!({"hostIP": host})), None, "{host}");
        }
        assert_eq!(place(json!({"phase": "Pending"})), None);
        assert_eq!(place(Value::Null), None);
    }

    #[test]
    fn finished_pods_of_other_clusters_are_left_out() {
        for phase in ["Succeeded", "Failed"] {
            let status = json!({"phase": phase, "hostIP": "10.1.0.7"});
            assert_eq!(converted(status), None, "{phase}");
        }
    }
}
