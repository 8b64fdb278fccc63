//! What the console reads on demand, besides the objects that it watches.

use anyhow::Result;
use axum::body::Bytes;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Event, Pod};
use tautline_core::names;

/// Reads of a cluster, or of processes on loopback. None of them changes anything.
pub trait Source: Send + Sync + 'static {
    /// The answers of all replicas of a component to a GET of their admin port; `path` may have a
    /// query. An error if none answers.
    fn admin<'a>(
        &'a self,
        component: Component,
        path: &'a str,
    ) -> BoxFuture<'a, Result<Vec<AdminAnswer>>>;

    /// A pod as the API has it; `None` if it does not exist.
    fn pod<'a>(&'a self, namespace: &'a str, name: &'a str) -> BoxFuture<'a, Result<Option<Pod>>>;

    /// The events of an object, in any order.
    fn events<'a>(
        &'a self,
        namespace: &'a str,
        kind: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Event>>>;
}

/// A part of Tautline with an admin port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// The scheduler extender, alone or beside the second scheduler.
    Extender,
    /// The controller.
    Controller,
    /// The rule provider `gpu-slice`.
    Gpu,
    /// The rule provider `latency`.
    Latency,
}

impl Component {
    /// Values of the label `app.kubernetes.io/name` of its pods.
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
    /// The replica, for people.
    pub from: String,
    /// HTTP status.
    pub status: u16,
    /// The body, whole.
    pub body: Bytes,
}
