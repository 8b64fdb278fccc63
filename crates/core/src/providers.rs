//! Finds the Service that provides a rule, and its addresses.

use std::{cmp::Reverse, net::IpAddr, sync::Arc};

use crate::{
    index::Snapshot,
    model::{EndpointSlice, Service, ServicePort},
    trust::TrustedNamespaces,
};

/// The label prefixes that make a Service a provider of the rule whose name follows the prefix.
pub const RULE_LABEL_PREFIXES: [&str; 2] = [
    "constraint.ciena.com/constraint-",
    "constraint.ciena.com/provider-",
];
/// The value that makes a rule label or the allocator annotation count.
pub const ENABLED: &str = "enabled";
/// The annotation with a provider's priority, 0 by default. The highest priority wins among the
/// providers of a rule.
pub const PRIORITY_ANNOTATION: &str = "constraint.ciena.com/priority";
/// The annotation with which a provider is called over TLS, if its value is `required`.
pub const TLS_ANNOTATION: &str = "constraint.ciena.com/tls";
/// The annotation of a provider that also serves the Allocator, if its value is `enabled`.
pub const ALLOCATOR_ANNOTATION: &str = "constraint.ciena.com/allocator";
/// A Service with this label, whatever its value, is an underlay controller.
pub const UNDERLAY_LABEL: &str = "constraint.ciena.com/underlay-controller";

/// The rule for the gRPC port of a Service: the port with this name or `grpc`, else the port with
/// this number, else the Service's only port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortPreference {
    /// The preferred port name.
    pub name: &'static str,
    /// The preferred port number, which is also the default.
    pub number: u16,
}

/// The port of rule providers.
pub const PROVIDER_PORT: PortPreference = PortPreference {
    name: "ruleprovider",
    number: 5309,
};
/// The port of underlay controllers.
pub const UNDERLAY_PORT: PortPreference = PortPreference {
    name: "underlay",
    number: 9999,
};

/// Returns the rules that a Service with these labels provides, sorted.
pub fn provided_rules<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<Box<str>> {
    let mut rules: Vec<Box<str>> = labels
        .filter(|(_, value)| *value == ENABLED)
        .filter_map(|(key, _)| {
            RULE_LABEL_PREFIXES
                .iter()
                .find_map(|prefix| key.strip_prefix(prefix))
        })
        .filter(|rule| !rule.is_empty())
        .map(Into::into)
        .collect();
    rules.sort();
    rules.dedup();
    rules
}

/// Chooses the provider of `rule` for `namespace`: a Service of the namespace before a trusted one,
/// then by the highest priority, the greatest age and the name.
pub fn choose_provider<'a>(
    snapshot: &'a Snapshot,
    rule: &str,
    namespace: &str,
    trusted: &TrustedNamespaces,
) -> Option<&'a Arc<Service>> {
    preferred(snapshot.providers(rule), namespace, trusted)
}

/// Chooses the underlay controller for an offer in `namespace`, by the order of
/// [`choose_provider`].
pub fn choose_underlay<'a>(
    snapshot: &'a Snapshot,
    namespace: &str,
    trusted: &TrustedNamespaces,
) -> Option<&'a Arc<Service>> {
    preferred(snapshot.underlay_services(), namespace, trusted)
}

/// Returns whether a Service may serve offers in `namespace`.
pub fn is_trusted_for(service: &Service, namespace: &str, trusted: &TrustedNamespaces) -> bool {
    *service.namespace == *namespace || trusted.contains(&service.namespace)
}

fn preferred<'a>(
    services: &'a [Arc<Service>],
    namespace: &str,
    trusted: &TrustedNamespaces,
) -> Option<&'a Arc<Service>> {
    services
        .iter()
        .filter(|s| is_trusted_for(s, namespace, trusted))
        .min_by_key(|s| {
            let own = *s.namespace == *namespace;
            (
                !own,
                Reverse(s.priority),
                s.created_unix,
                &s.namespace,
                &s.name,
            )
        })
}

/// Returns another Service that loses to the provider of `rule` by age or name only, which is a
/// likely mistake.
pub fn ambiguous_provider<'a>(
    snapshot: &'a Snapshot,
    rule: &str,
    namespace: &str,
    trusted: &TrustedNamespaces,
) -> Option<&'a Arc<Service>> {
    let chosen = choose_provider(snapshot, rule, namespace, trusted)?;
    let own = |s: &Service| *s.namespace == *namespace;
    snapshot.providers(rule).iter().find(|s| {
        !Arc::ptr_eq(s, chosen)
            && is_trusted_for(s, namespace, trusted)
            && own(s) == own(chosen)
            && s.priority == chosen.priority
    })
}

/// The allowed hosts of ExternalName Services, whose author chooses the host that Tautline calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExternalNames {
    /// ExternalName Services are not called.
    #[default]
    Off,
    /// Any host is allowed except this machine and link-local addresses.
    Remote,
    /// Any host is allowed, for tests and for setups on one machine.
    Any,
}

/// Returns whether an address is loopback, unspecified or link-local (a cloud's metadata service).
pub fn is_local(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local() || v4.octets()[0] == 0,
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unspecified() || v6.is_unicast_link_local(),
    }
}

/// An address of a provider.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// An IP address or a DNS name.
    pub host: String,
    /// The port number.
    pub port: u16,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Returns the addresses of a Service, sorted; empty if it has a selector and no ready endpoint.
pub fn addresses(
    service: &Service,
    slices: &[Arc<EndpointSlice>],
    rule: PortPreference,
) -> Vec<Address> {
    let port_of = |ports: &[ServicePort]| port_of(ports, rule);
    if let Some(host) = &service.external_name {
        let host = host.trim_end_matches('.').to_owned();
        return vec![Address {
            host,
            port: port_of(&service.ports),
        }];
    }
    if slices.is_empty() {
        if service.has_selector {
            return Vec::new();
        }
        let host = format!("{}.{}.svc", service.name, service.namespace);
        return vec![Address {
            host,
            port: port_of(&service.ports),
        }];
    }
    let mut all: Vec<Address> = slices
        .iter()
        .flat_map(|slice| {
            // A slice's port has the name of the Service's port and the number of the pod's port.
            let port = port_of(&slice.ports);
            slice.ready.iter().map(move |host| Address {
                host: host.clone(),
                port,
            })
        })
        .collect();
    all.sort();
    all.dedup();
    all
}

fn port_of(ports: &[ServicePort], rule: PortPreference) -> u16 {
    let named = [rule.name, "grpc"]
        .iter()
        .find_map(|name| ports.iter().find(|p| p.name == **name))
        .or_else(|| ports.iter().find(|p| p.port == rule.number));
    match (named, ports) {
        (Some(p), _) => p.port,
        (None, [only]) => only.port,
        (None, _) => rule.number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{Index, Object};

    fn service(namespace: &str, name: &str) -> Service {
        Service {
            namespace: namespace.into(),
            name: name.into(),
            rules: vec!["latency".into()],
            ..Service::default()
        }
    }

    fn chosen(services: &[Service], trusted: &[&str]) -> Option<String> {
        let trusted = TrustedNamespaces::new(trusted);
        let mut results: Vec<Option<String>> = [false, true]
            .map(|reverse| {
                let mut index = Index::default();
                let mut list = services.to_vec();
                if reverse {
                    list.reverse();
                }
                list.into_iter()
                    .for_each(|s| _ = index.apply(Object::Service(s)));
                let snapshot = index.snapshot();
                choose_provider(&snapshot, "latency", "shop", &trusted)
                    .map(|s| format!("{}/{}", s.namespace, s.name))
            })
            .to_vec();
        results.dedup();
        assert_eq!(
            results.len(),
            1,
            "the order of services matters: {results:?}"
        );
        results.remove(0)
    }

    #[test]
    fn choose_provider_order() {
        let a = service("infra", "a");
        let newer = Service {
            created_unix: 5,
            ..service("infra", "newer")
        };
        let high = Service {
            priority: 7,
            created_unix: 9,
            ..service("infra", "high")
        };
        let own = Service {
            priority: -1,
            created_unix: 9,
            ..service("shop", "own")
        };
        let all = [newer.clone(), a.clone(), high.clone(), own];
        let others = &all[..3];
        assert_eq!(chosen(&all, &["*"]).unwrap(), "shop/own");
        assert_eq!(chosen(others, &["infra"]).unwrap(), "infra/high");
        assert_eq!(
            chosen(&[newer.clone(), a.clone()], &["*"]).unwrap(),
            "infra/a"
        );
        assert_eq!(
            chosen(&[service("infra", "b"), a], &["*"]).unwrap(),
            "infra/a"
        );
        assert_eq!(chosen(&[newer, high], &["other"]), None);
    }

    #[test]
    fn choose_provider_requires_a_trusted_namespace() {
        let high = Service {
            priority: i64::MAX,
            ..service("tenant", "high")
        };
        let ours = service("infra", "ours");
        let all = [high.clone(), ours];
        assert_eq!(chosen(&all, &["infra"]).unwrap(), "infra/ours");
        assert_eq!(chosen(std::slice::from_ref(&high), &["infra"]), None);
        let own = Service {
            namespace: "shop".into(),
            ..high
        };
        assert_eq!(chosen(&[own], &["infra"]).unwrap(), "shop/high");
    }

    #[test]
    fn is_local_includes_loopback_and_link_local() {
        let local = |text: &str| is_local(text.parse().unwrap());
        for address in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "169.254.169.254",
            "::1",
            "::",
            "fe80::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
        ] {
            assert!(local(address), "{address}");
        }
        for address in ["10.0.0.1", "192.0.2.7", "fd00::1", "2001:db8::1"] {
            assert!(!local(address), "{address}");
        }
    }

    #[test]
    fn ambiguous_provider_differs_in_age_or_name_only() {
        let rivals = |services: &[Service]| {
            let mut index = Index::default();
            services
                .iter()
                .for_each(|s| _ = index.apply(Object::Service(s.clone())));
            ambiguous_provider(
                &index.snapshot(),
                "latency",
                "shop",
                &TrustedNamespaces::all(),
            )
            .map(|s| s.name.to_string())
        };
        let a = service("infra", "a");
        let newer = Service {
            created_unix: 5,
            ..service("infra", "newer")
        };
        assert_eq!(rivals(&[a.clone(), newer.clone()]).unwrap(), "newer");
        let high = Service {
            priority: 7,
            ..newer
        };
        assert_eq!(rivals(&[a.clone(), high]), None);
        assert_eq!(rivals(&[a.clone(), service("shop", "own")]), None);
        assert_eq!(rivals(&[a]), None);
    }

    #[test]
    fn provided_rules_require_the_value_enabled() {
        let labels = [
            ("constraint.ciena.com/constraint-latency", "enabled"),
            ("constraint.ciena.com/provider-jitter", "enabled"),
            ("constraint.ciena.com/provider-latency", "enabled"),
            ("constraint.ciena.com/provider-bandwidth", "true"),
            ("constraint.ciena.com/constraint-", "enabled"),
            ("app", "enabled"),
        ];
        let rules = provided_rules(labels.into_iter());
        assert_eq!(rules, ["jitter".into(), "latency".into()] as [Box<str>; 2]);
    }

    #[test]
    fn addresses_depend_on_the_service_type() {
        let port = |name: &str, port| ServicePort {
            name: name.into(),
            port,
        };
        let text = |s: &Service, slices: &[Arc<EndpointSlice>]| {
            addresses(s, slices, PROVIDER_PORT)
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        let mut s = service("infra", "p");
        assert_eq!(text(&s, &[]), ["p.infra.svc:5309"]);
        s.ports = vec![port("http", 80), port("grpc", 7000)];
        assert_eq!(text(&s, &[]), ["p.infra.svc:7000"]);
        s.ports = vec![port("http", 80)];
        assert_eq!(text(&s, &[]), ["p.infra.svc:80"]);
        s.has_selector = true;
        assert!(text(&s, &[]).is_empty());
        let slice = Arc::new(EndpointSlice {
            ports: vec![port("metrics", 1), port("ruleprovider", 9000)],
            ready: vec!["fd00::1".into(), "10.0.0.2".into()],
            ..EndpointSlice::default()
        });
        assert_eq!(
            text(&s, &[slice.clone(), slice]),
            ["10.0.0.2:9000", "[fd00::1]:9000"]
        );
        s.external_name = Some("provider.example.".into());
        assert_eq!(text(&s, &[]), ["provider.example:80"]);
    }
}
