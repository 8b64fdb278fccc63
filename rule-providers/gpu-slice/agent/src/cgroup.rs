//! Finds the container of a process in the text of `/proc/PID/cgroup`. The functions are pure.

/// A container, as its cgroup names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerRef {
    /// The UID of the pod.
    pub pod_uid: String,
    /// The ID of the container; empty if the process is in the pod's own cgroup.
    pub id: String,
}

/// Returns the containers that the text of `/proc/PID/cgroup` names, outermost first; empty if the
/// process belongs to no pod.
///
/// Each line is `HIERARCHY:CONTROLLERS:PATH`; cgroup v2 has only one line. The kubelet's part may
/// begin anywhere in the path, since the node itself may run in a container. A container that may
/// write cgroups can create one below its own that looks like another pod's, so the first pod in
/// the list that the node knows is the true one.
pub(crate) fn containers(text: &str) -> Vec<ContainerRef> {
    let paths = text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let mut named = paths.map(containers_in_path);
    named.find(|of| !of.is_empty()).unwrap_or_default()
}

fn containers_in_path(path: &str) -> Vec<ContainerRef> {
    // A runtime with the cgroupfs driver takes systemd's name `SLICE:cri-containerd:ID` for a path.
    let path = path.replace(".slice:", ".slice/");
    let parts: Vec<&str> = path.split('/').collect();
    let container = |at: usize| {
        let of_kubelet = at > 0 && is_parent(parts[at - 1]);
        let id = parts.get(at + 1).and_then(|part| container_id(part));
        Some(ContainerRef {
            pod_uid: pod_uid(parts[at], of_kubelet)?,
            id: id.unwrap_or_default().to_owned(),
        })
    };
    (0..parts.len()).filter_map(container).collect()
}

/// Returns whether the part of a path is `kubepods`, a QoS class below it, or systemd's slice of
/// either.
fn is_parent(part: &str) -> bool {
    matches!(part, "kubepods" | "burstable" | "besteffort")
        || (part.starts_with("kubepods") && part.ends_with(".slice"))
}

/// Returns the pod's UID in `poda-b-c` (cgroupfs) or `kubepods-burstable-poda_b_c.slice` (systemd).
fn pod_uid(part: &str, of_kubelet: bool) -> Option<String> {
    let uid = match part.strip_suffix(".slice") {
        Some(slice) => {
            // If the kubelet has a cgroup root of its own, the name begins with it:
            // `kubelet-kubepods-...`.
            let (root, rest) = slice.split_once("kubepods-")?;
            let classes = ["burstable-", "besteffort-"];
            let class = classes.iter().find_map(|c| rest.strip_prefix(c));
            let uid = class.unwrap_or(rest).strip_prefix("pod")?;
            (root.is_empty() || root.ends_with('-')).then(|| uid.replace('_', "-"))?
        }
        None if of_kubelet => part.strip_prefix("pod")?.to_owned(),
        None => return None,
    };
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    (!uid.is_empty() && uid.bytes().all(plain)).then_some(uid)
}

/// Returns the container's ID in `ID` (cgroupfs), `cri-containerd-ID.scope` or `crio-ID.scope`
/// (systemd).
fn container_id(part: &str) -> Option<&str> {
    let part = part.strip_suffix(".scope").unwrap_or(part);
    let id = part.rsplit(['-', ':']).next()?;
    let hex = id.len() >= 12 && id.bytes().all(|b| b.is_ascii_hexdigit());
    hex.then_some(id)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UID: &str = "0aa6b1f5-6b1f-4e4f-8e1a-0d2d7f2f9c11";
    const ID: &str = "3f1e5a7c9b2d4f6081a3c5e7092b4d6f8a1c3e507294b6d8fa1c3e507294b6d8";

    fn of(text: &str) -> Option<(String, String)> {
        let last = containers(text).pop();
        last.map(|c| (c.pod_uid, c.id))
    }

    #[test]
    fn each_driver_and_version_names_its_container() {
        let slice = UID.replace('-', "_");
        let known = Some((UID.to_owned(), ID.to_owned()));
        for path in [
            format!("/kubepods/burstable/pod{UID}/{ID}"),
            format!("/kubepods/besteffort/pod{UID}/{ID}"),
            format!("/kubepods/pod{UID}/{ID}"),
            format!("/tautline-n1/kubepods/burstable/pod{UID}/{ID}"),
            format!("/tautline-n1/kubepods/pod{UID}/{ID}/init"),
            format!(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{slice}.slice/cri-containerd-{ID}.scope"
            ),
            format!("/kubepods.slice/kubepods-pod{slice}.slice/crio-{ID}.scope"),
            format!("/kubepods.slice/kubepods-pod{slice}.slice/crio-{ID}.scope/container"),
            format!("/kubepods.slice/kubepods-pod{slice}.slice/docker-{ID}.scope"),
            format!(
                "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{slice}.slice/cri-containerd-{ID}.scope"
            ),
            format!("/kubelet/kubepods/burstable/pod{UID}/{ID}"),
            format!(
                "/system.slice/docker-{ID}.scope/kubelet.slice/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{slice}.slice/cri-containerd-{ID}.scope"
            ),
            format!(
                "/system.slice/containerd.service/kubepods-pod{slice}.slice:cri-containerd:{ID}"
            ),
        ] {
            assert_eq!(of(&format!("0::{path}\n")), known, "{path}");
            let v1 = format!("12:pids:/\n11:memory:{path}\n1:name=systemd:{path}\n0::/\n");
            assert_eq!(of(&v1), known, "{path}");
        }
    }

    #[test]
    fn pods_in_pods_are_told_from_the_outermost() {
        let outer = "11111111-2222-3333-4444-555555555555";
        let path = format!("0::/kubepods/pod{outer}/{ID}/kubepods/burstable/pod{UID}/{ID}");
        let uids: Vec<_> = containers(&path).into_iter().map(|c| c.pod_uid).collect();
        assert_eq!(uids, [outer, UID]);
    }

    #[test]
    fn processes_of_no_pod_have_none() {
        for text in [
            "",
            "0::/\n",
            "0::/system.slice/ssh.service\n",
            "0::/user.slice/user-1000.slice/session-2.scope\n",
            "0::/system.slice/containerd.service\n",
            "0::/machine.slice/libpod-pod1234/x\n",
            "0::/kubepods.slice\n",
            "0::/kubepods/burstable\n",
            "0::/kubepods/burstable/pod/x\n",
            "0::/kubepods/pod../x\n",
            "no colons",
        ] {
            assert_eq!(of(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_pods_own_cgroup_has_no_container() {
        let path = format!("0::/kubepods/pod{UID}\n");
        assert_eq!(of(&path), Some((UID.to_owned(), String::new())));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic_and_names_are_plain(text in "[a-z0-9:/._\\-\n]{0,120}") {
            for found in containers(&text) {
                prop_assert!(!found.pod_uid.contains(['/', ':', '\n']));
                prop_assert!(found.id.bytes().all(|b| b.is_ascii_hexdigit()));
            }
        }

        #[test]
        fn a_prefix_changes_nothing(prefix in "(/[a-z0-9.-]{1,9}){0,4}") {
            let text = format!("0::{prefix}/kubepods/burstable/pod{UID}/{ID}\n");
            prop_assert_eq!(of(&text), Some((UID.to_owned(), ID.to_owned())));
        }
    }
}
