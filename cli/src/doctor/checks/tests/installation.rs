use super::*;

#[test]
fn crds() {
    let kind = "constraintpolicyoffers.constraint.ciena.com";
    let fix = "tautline crds | kubectl apply --server-side -f -";
    finds((Problem, "CrdMissing", kind, "not installed", fix), |c| {
        remove(&mut c.crds, kind)
    });
    let schema = |crd: &mut Value| {
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].take()
    };
    let put = |crd: &mut Value, spec: Value| {
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = spec;
    };
    let old = "older than this tautline: spec.providerUnavailable, spec.targets[].mode, \
               spec.violationPolicy: \"Evict\" missing";
    finds((Problem, "CrdOld", kind, old, fix), |c| {
        edit(&mut c.crds, kind, |crd| {
            let mut spec = schema(crd);
            let fields = spec["properties"].as_object_mut().unwrap();
            fields.remove("providerUnavailable");
            let target = fields["targets"]["items"]["properties"]
                .as_object_mut()
                .unwrap();
            target.remove("mode");
            let values = fields["violationPolicy"]["enum"].as_array_mut().unwrap();
            values.retain(|v| v != "Evict");
            put(crd, spec);
        });
    });
    finds(
        (
            Warning,
            "CrdNewer",
            kind,
            "does not know: spec.later",
            "version",
        ),
        |c| {
            edit(&mut c.crds, kind, |crd| {
                let mut spec = schema(crd);
                spec["properties"]["later"] = json!({"type": "string"});
                put(crd, spec);
            });
        },
    );
    finds(
        (
            Problem,
            "CrdNotServed",
            kind,
            "names conflict",
            "kubectl get crds",
        ),
        |c| {
            edit(&mut c.crds, kind, |crd| {
                crd["status"] = json!({"conditions": [
                {"type": "NamesAccepted", "status": "False", "message": "names conflict"}]});
            });
        },
    );
}

#[test]
fn components() {
    let reapply = "kubectl apply --server-side -k deploy";
    finds(
        (
            Problem,
            "NamespaceMissing",
            "tautline-system",
            "not installed",
            reapply,
        ),
        |c| {
            c.namespace_exists = Some(false);
        },
    );
    for (name, title) in [
        ("tautline-extender", "extender"),
        ("tautline-controller", "controller"),
        ("tautline-admission", "admission server"),
    ] {
        finds(
            (Problem, "ComponentMissing", title, "no Deployment", reapply),
            |c| {
                remove(&mut c.deployments, name);
            },
        );
    }
    let not_ready = |status: Value| {
        move |c: &mut Cluster| {
            for node in ["n1", "n2"] {
                let status = status.clone();
                edit(&mut c.pods, &format!("tautline-extender-{node}"), |p| {
                    p["status"] = status.clone();
                });
            }
        }
    };
    let waits = |reason: &str| {
        json!({"phase": "Pending", "containerStatuses": [{
            "name": "tautline", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": reason, "message": "back-off"}}}]})
    };
    let deployment = "Deployment tautline-extender";
    let text = "0 of 2 pods ready; tautline-extender-n1: ImagePullBackOff: back-off";
    finds(
        (
            Problem,
            "ComponentNotReady",
            deployment,
            text,
            "correct the image",
        ),
        not_ready(waits("ImagePullBackOff")),
    );
    let logs = "kubectl -n tautline-system logs tautline-extender-n1 --previous";
    finds(
        (
            Problem,
            "ComponentNotReady",
            deployment,
            "CrashLoopBackOff: back-off",
            logs,
        ),
        not_ready(waits("CrashLoopBackOff")),
    );
    let mut ended = waits("");
    ended["containerStatuses"][0]["state"] =
        json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}});
    let text = "OOMKilled: exit code 137";
    finds(
        (Problem, "ComponentNotReady", deployment, text, logs),
        not_ready(ended),
    );
    let describe = "kubectl -n tautline-system describe pod tautline-extender-n1";
    finds(
        (
            Problem,
            "ComponentNotReady",
            deployment,
            "Pending: 0/2 nodes are available",
            describe,
        ),
        not_ready(json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}]})),
    );
    finds(
        (
            Problem,
            "ComponentNotReady",
            deployment,
            "not ready",
            "/readyz",
        ),
        not_ready(json!({"phase": "Running"})),
    );
    finds(
        (
            Warning,
            "ComponentNotReady",
            deployment,
            "1 of 2 pods ready; 1 pod not created",
            "",
        ),
        |c| {
            remove(&mut c.pods, "tautline-extender-n2");
        },
    );
    finds(
        (
            Problem,
            "ComponentNotReady",
            deployment,
            "exceeded quota",
            "describe deploy/",
        ),
        |c| {
            remove(&mut c.pods, "tautline-extender");
            edit(&mut c.deployments, "tautline-extender", |d| {
                d["status"] = json!({"conditions": [{"type": "ReplicaFailure", "status": "True",
                                                 "message": "exceeded quota"}]});
            });
        },
    );
    let scale = "kubectl -n tautline-system scale deploy/tautline-controller --replicas=2";
    let controller = "Deployment tautline-controller";
    finds(
        (
            Problem,
            "ComponentNotReady",
            controller,
            "0 replicas",
            scale,
        ),
        |c| {
            edit(&mut c.deployments, "tautline-controller", |d| {
                d["spec"]["replicas"] = json!(0)
            });
        },
    );
}

#[test]
fn a_chart_is_mended_by_helm() {
    let helm = "helm upgrade tl deploy/chart -n tautline-system --reuse-values";
    finds((Problem, "ComponentMissing", "controller", "", helm), |c| {
        remove(&mut c.deployments, "tautline-controller");
        edit(&mut c.deployments, "tautline-extender", |d| {
            d["metadata"]["annotations"] = json!({"meta.helm.sh/release-name": "tl"});
        });
    });
}

#[test]
fn rights_are_grouped_by_account() {
    let object = "ServiceAccount tautline-system/tautline-controller";
    let text = "may not create pods/eviction, update leases.coordination.k8s.io \
                tautline-system/tautline-controller";
    finds(
        (
            Problem,
            "RightMissing",
            object,
            text,
            "clusterrolebinding/tautline-controller",
        ),
        |c| {
            for (right, allowed) in c.rights.as_mut().unwrap() {
                let lost = right.resource == "pods/eviction" || right.verb == "update";
                *allowed = right.account != "tautline-controller" || !lost;
            }
        },
    );
}

#[test]
fn leases() {
    let object = "Lease tautline-system/tautline-controller";
    let fix = "kubectl -n tautline-system logs deploy/tautline-controller";
    finds(
        (Problem, "LeaseMissing", object, "no controller works", fix),
        |c| {
            remove(&mut c.leases, "tautline-controller");
        },
    );
    let text =
        "a_1 renewed it 5m ago (2026-01-02T11:55:00Z), more than 3 times its duration of 12 s";
    finds((Problem, "LeaseExpired", object, text, fix), |c| {
        edit(&mut c.leases, "tautline-controller", |l| {
            l["spec"]["renewTime"] = json!("2026-01-02T11:55:00.000000Z");
        });
    });
    finds((Problem, "LeaseExpired", object, "no holder", fix), |c| {
        edit(&mut c.leases, "tautline-controller", |l| {
            l["spec"]["holderIdentity"] = json!("")
        });
    });
    finds(
        (
            Problem,
            "LeaseMissing",
            "tautline-gpu-slice",
            "no replica reserves",
            "",
        ),
        |c| {
            remove(&mut c.leases, "tautline-gpu-slice");
        },
    );
}

#[test]
fn agents() {
    let object = "DaemonSet tautline-latency-agent";
    let fix = "describe ds/tautline-latency-agent";
    finds(
        (
            Problem,
            "AgentsMissing",
            object,
            "no agent on 1 of 2 nodes: n2",
            fix,
        ),
        |c| {
            remove(&mut c.pods, "tautline-latency-agent-n2");
        },
    );
    finds(
        (
            Warning,
            "AgentsMissing",
            "latency agent",
            "nothing is measured",
            "kubectl apply",
        ),
        |c| {
            c.daemon_sets.as_mut().unwrap().clear();
        },
    );
    let mut cluster = healthy();
    remove(&mut cluster.pods, "tautline-latency-agent-n2");
    edit(&mut cluster.nodes, "n2", |n| {
        n["spec"] = json!({"unschedulable": true})
    });
    assert!(run(&cluster).iter().all(|f| f.level == Level::Ok));
}

#[test]
fn versions() {
    let object = "images, namespace tautline-system";
    let text = "0.0.9 (2 pods: tautline-controller)";
    finds(
        (Warning, "VersionsDiffer", object, text, "one image"),
        |c| {
            for pod in ["tautline-controller-n1", "tautline-controller-n2"] {
                edit(&mut c.pods, pod, |p| {
                    p["spec"]["containers"][0]["image"] = json!("example.com/tautline:v0.0.9");
                });
            }
        },
    );
    finds(
        (
            Warning,
            "VersionsDiffer",
            object,
            "this tautline is of 0.2.0",
            "use tautline 0.1.0",
        ),
        |c| {
            c.version = "0.2.0".into();
        },
    );
}
