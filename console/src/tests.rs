//! Helpers for the tests of pages: a console with the objects of manifests, and its answers.

// The lint does not see helpers as tests.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use anyhow::bail;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::{Event, Pod};
use serde_json::Value;
use tautline_api::manifest::{self, Item};
use tautline_runtime::http::HttpResponse;

use crate::{
    Console,
    server::answer,
    source::{AdminAnswer, Component, Read, Source},
};

/// Answers by component and path; a component without an answer gives an error.
#[derive(Default)]
pub(crate) struct FakeSource {
    pub admin: Vec<(Component, &'static str, String)>,
    pub pods: Vec<Pod>,
    pub events: Vec<Event>,
}

impl Source for FakeSource {
    fn admin<'a>(&'a self, component: Component, path: &'a str) -> Read<'a, Vec<AdminAnswer>> {
        Box::pin(async move {
            let is_wanted = |(c, p, _): &&(Component, &str, String)| *c == component && *p == path;
            let Some((_, _, body)) = self.admin.iter().find(is_wanted) else {
                bail!("no pod of {component:?} runs");
            };
            Ok(vec![AdminAnswer {
                from: "replica 1".to_owned(),
                status: 200,
                body: body.clone().into(),
            }])
        })
    }

    fn pod<'a>(&'a self, namespace: &'a str, name: &'a str) -> Read<'a, Option<Pod>> {
        let is_wanted = |pod: &&Pod| {
            pod.metadata.namespace.as_deref() == Some(namespace)
                && pod.metadata.name.as_deref() == Some(name)
        };
        let pod = self.pods.iter().find(is_wanted).cloned();
        Box::pin(std::future::ready(Ok(pod)))
    }

    fn events<'a>(&'a self, _: &'a str, _: &'a str) -> Read<'a, Vec<Event>> {
        Box::pin(std::future::ready(Ok(self.events.clone())))
    }
}

/// A console with the objects of a manifest.
pub(crate) fn console(yaml: &str, source: FakeSource) -> Console {
    let console = Console::new("test".to_owned(), String::new(), Arc::new(source));
    let (mut policies, mut offers) = (Vec::new(), Vec::new());
    let (mut slices, mut claims) = (Vec::new(), Vec::new());
    for item in manifest::parse(yaml).unwrap() {
        if let Some(object) = tautline_runtime::manifest_files::object(&item).unwrap() {
            console.store.apply(object);
        }
        match item {
            Item::Policy(policy) => policies.push(Arc::new(*policy)),
            Item::Offer(offer) => offers.push(Arc::new(*offer)),
            Item::ResourceSlice(slice) => slices.push(Arc::new(*slice)),
            Item::ResourceClaim(claim) => claims.push(Arc::new(*claim)),
            _ => {}
        }
    }
    console.slices.reset(slices);
    console.claims.reset(claims);
    console.policies.reset(policies);
    console.offers.reset(offers);
    console
}

/// The response to a GET.
async fn response(console: &Arc<Console>, uri: &str) -> HttpResponse {
    let request = hyper::Request::get(uri).header("host", "localhost");
    let request = request.body(()).unwrap().into_parts().0;
    answer(console, &request).await
}

/// The status and body of a page.
pub(crate) async fn get(console: &Arc<Console>, uri: &str) -> (u16, String) {
    let response = response(console, uri).await;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// A page as JSON.
pub(crate) async fn json(console: &Arc<Console>, uri: &str) -> Value {
    let sign = if uri.contains('?') { '&' } else { '?' };
    let (status, body) = get(console, &format!("{uri}{sign}format=json")).await;
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}
