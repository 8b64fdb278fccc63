use super::*;

#[test]
fn offers() {
    let object = "ConstraintPolicyOffer shop/web";
    finds(
        (
            Problem,
            "PolicyMissing",
            object,
            "ConstraintPolicy far",
            "tautline get policies",
        ),
        |c| {
            web(c, |o| o["spec"]["policies"] = json!(["far"]));
        },
    );
    finds(
        (
            Problem,
            "OfferInvalid",
            object,
            "spec.grace",
            "correct the field",
        ),
        |c| {
            web(c, |o| o["spec"]["grace"] = json!("soon"));
        },
    );
    finds(
        (
            Problem,
            "PolicyInvalid",
            "ConstraintPolicy shop/near",
            "weight",
            "correct",
        ),
        |c| {
            edit(&mut c.policies, "near", |p| {
                p["spec"]["rules"][0]["weight"] = json!(-1)
            });
        },
    );
}

#[test]
fn bindings() {
    finds(
        (
            Problem,
            "BindingsInError",
            "ConstraintPolicyOffer shop/web",
            "1 of 1 binding cannot be evaluated; web-a: ProviderTimeout: no answer",
            "tautline describe binding web-a -n shop",
        ),
        |c| {
            edit(&mut c.bindings, "web-a", |b| {
                b["status"]["compliance"] = json!("Error");
                b["status"]["firstReason"] = json!("ProviderTimeout: no answer");
            });
        },
    );
}

#[test]
fn providers() {
    let object = "rule latency, namespace shop";
    let label = "label service NAME constraint.ciena.com/constraint-latency=enabled";
    finds(
        (Problem, "RuleWithoutProvider", object, "used by web", label),
        |c| {
            remove(&mut c.services, "tautline-latency");
        },
    );
    finds(
        (
            Problem,
            "RuleWithoutProvider",
            object,
            "pods stay Pending",
            label,
        ),
        |c| {
            remove(&mut c.services, "tautline-latency");
            web(c, |o| o["spec"]["providerUnavailable"] = json!("Reject"));
        },
    );
    let service = |namespace: &str, more: Value| {
        let mut service = json!({
            "metadata": {"name": "other", "namespace": namespace,
                         "labels": {"constraint.ciena.com/constraint-latency": "enabled"}},
            "spec": {"ports": [{"port": 5309}]}});
        for (key, value) in more.as_object().unwrap() {
            service["spec"][key] = value.clone();
        }
        service
    };
    let trust = "--provider-namespaces tautline-system,infra";
    finds(
        (
            Problem,
            "ProviderNotTrusted",
            object,
            "Service infra/other",
            trust,
        ),
        |c| {
            remove(&mut c.services, "tautline-latency");
            c.services
                .as_mut()
                .unwrap()
                .push(of(service("infra", json!({}))));
        },
    );
    let mut cluster = healthy();
    remove(&mut cluster.services, "tautline-latency");
    cluster
        .services
        .as_mut()
        .unwrap()
        .push(of(service("infra", json!({}))));
    extender_args(
        &mut cluster,
        &["--provider-namespaces", "tautline-system,infra"],
    );
    assert!(
        run(&cluster).iter().all(|f| f.level == Level::Ok),
        "{:#?}",
        run(&cluster)
    );

    let text = "only age or name decides";
    finds(
        (
            Warning,
            "ProviderAmbiguous",
            object,
            text,
            "constraint-latency-;",
        ),
        |c| {
            c.services
                .as_mut()
                .unwrap()
                .push(of(service("tautline-system", json!({}))));
        },
    );
    let latency = "Service tautline-system/tautline-latency";
    let text = "provides bandwidth, jitter, latency and has no ready endpoint";
    finds(
        (
            Problem,
            "ProviderNotReady",
            latency,
            text,
            "describe service tautline-latency",
        ),
        |c| {
            remove(&mut c.slices, "tautline-latency");
        },
    );
    let external = json!({"type": "ExternalName", "externalName": "a.example"});
    let own = "Service shop/other";
    finds(
        (
            Problem,
            "ProviderNotAllowed",
            own,
            "ExternalName",
            "--external-name-providers",
        ),
        |c| {
            c.services
                .as_mut()
                .unwrap()
                .push(of(service("shop", external)));
        },
    );
    finds(
        (
            Problem,
            "ProviderNotAllowed",
            own,
            "allocator",
            "--provider-namespaces",
        ),
        |c| {
            let mut allocator = service("shop", json!({}));
            allocator["metadata"]["annotations"] =
                json!({"constraint.ciena.com/allocator": "enabled"});
            c.services.as_mut().unwrap().push(of(allocator));
        },
    );
}

#[test]
fn calls_of_the_scheduler_have_an_age() {
    let found = run(&healthy());
    let calls = found.iter().find(|f| f.check == "SchedulerCalls").unwrap();
    let text = "14 filter requests so far, the last 3m ago";
    assert!(calls.text.contains(text), "{calls:?}");
}

#[test]
fn scheduler() {
    let none = |c: &mut Cluster| {
        c.filter_requests
            .values_mut()
            .for_each(|n| *n = Ok(FilterRequests::default()))
    };
    let object = "Deployment tautline-extender";
    let fix = "\"kube-scheduler's part\"";
    finds(
        (
            Problem,
            "SchedulerNeverCalls",
            object,
            "created since: shop/web-0",
            fix,
        ),
        none,
    );
    let fix = "spec.schedulerName of governed pods";
    finds(
        (Problem, "SchedulerNeverCalls", object, "shop/web-0", fix),
        |c| {
            none(c);
            edit(&mut c.deployments, "tautline-extender", |d| {
                let containers = &mut d["spec"]["template"]["spec"]["containers"];
                containers.as_array_mut().unwrap().push(json!({
                    "name": "kube-scheduler", "image": "registry.k8s.io/kube-scheduler:v1.36.0"}));
            });
        },
    );
    let mut cluster = healthy();
    none(&mut cluster);
    // Older than the extender.
    edit(&mut cluster.workload_pods, "web-0", |p| {
        p["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
    let found = run(&cluster);
    assert!(
        found.iter().any(|f| f.text.starts_with("not called yet")),
        "{found:#?}"
    );
    finds(
        (
            Warning,
            "NotChecked",
            object,
            "cannot be read through the API server: refused",
            "pods/proxy",
        ),
        |c| {
            none(c);
            c.filter_requests
                .insert("tautline-extender-n2".into(), Err("refused".into()));
        },
    );
    finds(
        (
            Warning,
            "NotChecked",
            object,
            "no pod of it runs",
            "get pods",
        ),
        |c| {
            c.filter_requests.clear();
        },
    );
    let pending = |name: &str| -> Pod {
        let message = "0/2 nodes are available: 1 gpu-slice/GpuBusy, 1 latency/OverLimit.";
        let mut pod = serde_json::to_value(pod(
            "shop",
            name,
            json!({"app": "web"}),
            json!({"containers": []}),
        ))
        .unwrap();
        pod["status"] = json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
             "message": message}]});
        of(pod)
    };
    let text = "for shop/web-1, shop/web-2: gpu-slice/GpuBusy (2), latency/OverLimit (2)";
    finds(
        (
            Warning,
            "PodsPending",
            "2 pending governed pods",
            text,
            "tautline explain shop/web-1",
        ),
        |c| {
            c.workload_pods
                .as_mut()
                .unwrap()
                .extend([pending("web-1"), pending("web-2")]);
        },
    );
}
