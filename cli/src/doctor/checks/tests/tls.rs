use super::*;

#[test]
fn certificate_of_the_extender() {
    let finds = |expected: Expected, break_it: &dyn Fn(&mut Cluster)| {
        super::finds(expected, |c| {
            extender_files(c);
            break_it(c);
        });
    };
    let object = "Secret tautline-system/tautline-extender-tls";
    let fix = "docs/extender.md";
    finds(
        (Problem, "CertificateMissing", object, "does not exist", fix),
        &|c| {
            c.secrets.insert("tautline-extender-tls".into(), None);
        },
    );
    let (cert, key) = certificate(EXTENDER, (2027, 1, 1));
    finds(
        (
            Problem,
            "CertificateIncomplete",
            object,
            "has no tls.key",
            fix,
        ),
        &|c| {
            extender_secret(c, &[("tls.crt", &cert), ("tls.key", "")]);
        },
    );
    finds(
        (
            Problem,
            "CertificateIncomplete",
            object,
            "has no ca.crt",
            fix,
        ),
        &|c| {
            extender_args(c, &["--tls-client-ca=/tls/ca.crt"]);
        },
    );
    finds(
        (
            Problem,
            "CertificateInvalid",
            object,
            "tls.crt cannot be read",
            fix,
        ),
        &|c| {
            extender_secret(c, &[("tls.crt", "odd"), ("tls.key", &key)]);
        },
    );
    let (_, other) = certificate(EXTENDER, (2027, 1, 1));
    finds(
        (
            Problem,
            "CertificateInvalid",
            object,
            "tls.key does not fit tls.crt",
            fix,
        ),
        &|c| {
            extender_secret(c, &[("tls.crt", &cert), ("tls.key", &other)]);
        },
    );
    for (name, end, level, check, text) in [
        (
            EXTENDER,
            (2026, 1, 1),
            Problem,
            "CertificateExpired",
            "expired 36h ago",
        ),
        (
            EXTENDER,
            (2026, 1, 9),
            Warning,
            "CertificateExpiring",
            "expires in 6 days",
        ),
        (
            "other.svc",
            (2027, 1, 1),
            Problem,
            "CertificateName",
            "is for other.svc, not for tautline-extender",
        ),
    ] {
        let (cert, key) = certificate(name, end);
        finds((level, check, object, text, fix), &|c| {
            extender_secret(c, &[("tls.crt", &cert), ("tls.key", &key)]);
        });
    }
    let (cert, key) = certificate("*.tautline-system.svc", (2027, 1, 1));
    let mut cluster = healthy();
    extender_files(&mut cluster);
    extender_secret(&mut cluster, &[("tls.crt", &cert), ("tls.key", &key)]);
    assert!(run(&cluster).iter().all(|f| f.level == Level::Ok));
}

#[test]
fn generated_certificate_of_the_extender() {
    const NAME: &str = "tautline-extender-generated-tls";
    let object = "Secret tautline-system/tautline-extender-generated-tls";
    let with = |c: &mut Cluster, ca: Option<&str>| {
        edit(&mut c.deployments, "tautline-extender", |d| {
            d["spec"]["template"]["spec"]["containers"][0]["args"] =
                json!(["extender", format!("--tls-secret={NAME}")]);
        });
        let made = ca.map(|ca| secret(NAME, &[("ca.crt", ca)]));
        c.secrets.insert(NAME.into(), made);
    };
    let logs = "kubectl -n tautline-system logs deploy/tautline-extender";
    finds(
        (
            Problem,
            "CertificateMissing",
            object,
            "does not exist",
            logs,
        ),
        |c| with(c, None),
    );
    let delete = "delete secret tautline-extender-generated-tls";
    finds(
        (
            Problem,
            "CertificateInvalid",
            object,
            "ca.crt cannot be read",
            delete,
        ),
        |c| with(c, Some("odd")),
    );
    let (ends, _) = certificate("ca", (2026, 1, 9));
    finds(
        (
            Warning,
            "CertificateExpiring",
            object,
            "expires in 6 days",
            delete,
        ),
        |c| with(c, Some(&ends)),
    );
    let (ca, _) = certificate("ca", (2035, 1, 1));
    let mut cluster = healthy();
    with(&mut cluster, Some(&ca));
    assert!(run(&cluster).iter().all(|f| f.level == Level::Ok));
}

#[test]
fn webhooks() {
    let object = "ValidatingWebhookConfiguration tautline-own-resources";
    let fix = "kubectl -n tautline-system logs deploy/tautline-admission";
    let bundles = |c: &mut Cluster, bundle: &str| {
        let webhooks = c.webhooks.iter_mut().flatten();
        for hook in webhooks.flat_map(|w| w.spec.webhooks.iter_mut().flatten()) {
            let bundle = bundle.as_bytes().to_vec();
            hook.client_config.ca_bundle = Some(k8s_openapi::ByteString(bundle));
        }
    };
    finds(
        (Problem, "WebhookWithoutCa", object, "no caBundle", fix),
        |c| bundles(c, ""),
    );
    let (other, _) = certificate("ca", (2027, 1, 1));
    finds(
        (
            Problem,
            "WebhookCaMismatch",
            object,
            "no CA of the Secret",
            fix,
        ),
        |c| bundles(c, &other),
    );
    finds(
        (
            Problem,
            "WebhookCaMismatch",
            object,
            "no CA of the Secret",
            fix,
        ),
        |c| bundles(c, "odd"),
    );
    let cert_manager = "cert-manager.io/inject-ca-from on ValidatingWebhookConfiguration";
    finds(
        (
            Problem,
            "WebhookWithoutCa",
            object,
            "no caBundle",
            cert_manager,
        ),
        |c| {
            bundles(c, "");
            edit(&mut c.deployments, "tautline-admission", |d| {
                d["spec"]["template"]["spec"]["containers"][0]["args"] = json!([
                    "admission",
                    "--tls-cert=/tls/tls.crt",
                    "--tls-key=/tls/tls.key"
                ]);
            });
        },
    );
    let secret_object = "Secret tautline-system/tautline-admission-tls";
    finds(
        (
            Problem,
            "CertificateMissing",
            secret_object,
            "no certificate",
            fix,
        ),
        |c| {
            c.secrets.insert("tautline-admission-tls".into(), None);
        },
    );
    let (ends, _) = certificate("ca", (2026, 1, 9));
    finds(
        (
            Warning,
            "CertificateExpiring",
            secret_object,
            "expires in 6 days",
            fix,
        ),
        |c| {
            let made = secret("tautline-admission-tls", &[("ca.crt", &ends)]);
            c.secrets
                .insert("tautline-admission-tls".into(), Some(made));
        },
    );
    let (ended, _) = certificate("ca", (2026, 1, 1));
    finds(
        (Problem, "CertificateExpired", secret_object, "expired", fix),
        |c| {
            let made = secret("tautline-admission-tls", &[("ca.crt", &ended)]);
            c.secrets
                .insert("tautline-admission-tls".into(), Some(made));
        },
    );
    let again = "kubectl -n tautline-system delete secret tautline-admission-tls";
    finds(
        (
            Problem,
            "CertificateInvalid",
            secret_object,
            "cannot be read",
            again,
        ),
        |c| {
            let made = secret("tautline-admission-tls", &[("ca.crt", "odd")]);
            c.secrets
                .insert("tautline-admission-tls".into(), Some(made));
        },
    );
    let missing =
        "Service tautline-system/tautline-admission does not exist: the API server refuses";
    finds(
        (
            Problem,
            "WebhookServiceMissing",
            object,
            missing,
            "kubectl apply",
        ),
        |c| {
            remove(&mut c.services, "tautline-admission");
        },
    );
    let skipped = "has no ready endpoint: the webhook is skipped (failurePolicy Ignore)";
    let slices = "MutatingWebhookConfiguration tautline-gpu-slices";
    finds(
        (Warning, "WebhookNotReady", slices, skipped, "get pods"),
        |c| {
            remove(&mut c.slices, "tautline-admission");
        },
    );
    finds(
        (
            Problem,
            "WebhookNotReady",
            object,
            "failurePolicy Fail",
            "get pods",
        ),
        |c| {
            remove(&mut c.slices, "tautline-admission");
        },
    );
    finds(
        (
            Problem,
            "WebhookServiceMissing",
            object,
            "has no port 443",
            "service.port",
        ),
        |c| {
            edit(&mut c.services, "tautline-admission", |s| {
                s["spec"]["ports"][0]["port"] = json!(1)
            });
        },
    );
}
