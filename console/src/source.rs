//! The source of data that the console reads on demand, in addition to the objects that it watches.

use anyhow::Result;
use futures::future::BoxFuture;
use hyper::body::Bytes;
use k8s_openapi::api::core::v1::{Event, Pod};
use tautline_core::names;
use tautline_gpu_placement::dra::DeviceStore;

/// The result of reading, once it is there.
pub type Read<'a, T> = BoxFuture<'a, Result<T>>;

/// Reads data from a cluster or from processes on loopback, and never changes it.
pub trait Source: Send + Sync + 'static {
    /// Returns the answers of all replicas of a component to a GET of their admin port, or an error
    /// if no replica answers. `path` may have a query.
    fn admin<'a>(&'a self, component: Component, path: &'a str) -> Read<'a, Vec<AdminAnswer>>;

    /// Returns a pod as the API has it; `None` if it does not exist.
    fn pod<'a>(&'a self, namespace: &'a str, name: &'a str) -> Read<'a, Option<Pod>>;

    /// Returns the devices of manifests, with what a plan has allocated; `None`: those of the
    /// cluster count.
    fn planned_devices(&self) -> Option<DeviceStore> {
        None
    }

    /// Returns the Kubernetes events of a binding, in any order.
    fn events<'a>(&'a self, namespace: &'a str, binding: &'a str) -> Read<'a, Vec<Event>>;
}

/// A part of Tautline with an admin port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// The scheduler extender, alone or together with the second scheduler.
    Extender,
    /// The controller.
    Controller,
    /// The rule provider `gpu-slice`.
    Gpu,
    /// The rule provider `latency`.
    Latency,
}

impl Component {
    /// Returns the values of the label `app.kubernetes.io/name` of the component's pods.
    pub fn app_names(self) -> &'static [&'static str] {
        match self {
            Self::Extender => &["tautline-extender", "tautline-scheduler"],
            Self::Controller => &[names::CONTROLLER],
            Self::Gpu => &["tautline-gpu-slice"],
            Self::Latency => &["tautline-latency"],
        }
    }
}

/// The answer of one replica.
#[derive(Clone, Debug)]
pub struct AdminAnswer {
    /// The name of the replica, for the user.
    pub from: String,
    /// The HTTP status code.
    pub status: u16,
    /// The whole body.
    pub body: Bytes,
}
