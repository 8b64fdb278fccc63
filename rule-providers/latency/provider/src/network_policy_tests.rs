//! Tests: the NetworkPolicies match the deployed pods and ports.

use std::collections::BTreeSet;

use tautline_proto::RULE_PROVIDER_PORT;

const POLICY: &str = include_str!("../../../../deploy/network-policy/latency.yaml");
const PROVIDER: &str = include_str!("../../../../deploy/base/provider-latency.yaml");
const AGENT: &str = include_str!("../../../../deploy/base/agent-latency.yaml");
const CALLERS: [&str; 2] = [
    include_str!("../../../../deploy/base/extender.yaml"),
    include_str!("../../../../deploy/base/controller.yaml"),
];

/// All values of a key.
fn values<'a>(text: &'a str, key: &str) -> BTreeSet<&'a str> {
    let after = text.split(key).skip(1);
    let value = after.filter_map(|rest| rest.split([',', '}', '\n']).next());
    value.map(str::trim).collect()
}

#[test]
fn policies_admit_the_deployed_pods_to_the_served_ports() {
    let names = |text| values(text, "app.kubernetes.io/name: ");
    let mut deployed = names(PROVIDER);
    for text in [AGENT, CALLERS[0], CALLERS[1]] {
        deployed.extend(names(text));
    }
    assert_eq!(names(POLICY), deployed);
    let (provider, agent) = POLICY.split_once("---").unwrap();
    for (policy, pods) in [(provider, PROVIDER), (agent, AGENT)] {
        assert_eq!(values(policy, " port: "), values(pods, "containerPort: "));
    }
    assert!(values(provider, " port: ").contains(RULE_PROVIDER_PORT.to_string().as_str()));
}
