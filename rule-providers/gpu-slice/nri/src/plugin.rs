//! What a plugin is to the runtime.

use std::{future::Future, time::Duration};

use tokio::time::Instant;

use crate::messages::{Container, ContainerAdjustment, PodSandbox};

/// A plugin's name and place among the runtime's plugins.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Letters, digits, `_`, `.`, `+` and `-`.
    pub name: &'static str,
    /// Two digits; the runtime calls plugins in this order.
    pub index: &'static str,
}

/// A container that the runtime is about to create.
#[derive(Clone, Debug)]
pub struct Request {
    /// The container's pod.
    pub pod: PodSandbox,
    /// The container, with the variables of image and pod.
    pub container: Container,
    /// The answer has to be there by then. The runtime creates no other container meanwhile.
    pub deadline: Instant,
}

/// Answers the runtime. All but [`Plugin::create_container`] must return at once.
pub trait Plugin: Send + Sync + 'static {
    /// The runtime told its name, version and how long it waits for an answer.
    fn configured(&self, runtime: &str, version: &str, request_timeout: Duration) {
        _ = (runtime, version, request_timeout);
    }

    /// The pods and containers that are there when the plugin connects; ended ones too.
    fn synchronize(&self, pods: Vec<PodSandbox>, containers: Vec<Container>);

    /// What changes in a container before it is created.
    ///
    /// # Errors
    /// The text with which the runtime refuses the container.
    fn create_container(
        &self,
        request: Request,
    ) -> impl Future<Output = Result<ContainerAdjustment, String>> + Send;

    /// A container stopped or was removed, or its creation failed.
    fn container_ended(&self, pod: PodSandbox, container: Container);

    /// All containers of a pod are stopped.
    fn pod_ended(&self, pod: PodSandbox);
}
