//! The handlers of reviews, by the paths of the webhooks.

use std::{collections::BTreeMap, sync::Arc};

use futures::future::BoxFuture;

use crate::{response::Response, review::Request};

pub(crate) trait Handler: Send + Sync {
    /// Reviews a request. Its content is untrusted user input.
    fn review(self: Arc<Self>, request: Arc<Request>) -> BoxFuture<'static, Response>;
}

pub(crate) struct SyncHandler<F>(pub F);

impl<F: Fn(&Request) -> Response + Send + Sync> Handler for SyncHandler<F> {
    fn review(self: Arc<Self>, request: Arc<Request>) -> BoxFuture<'static, Response> {
        let response = (self.0)(&request);
        Box::pin(std::future::ready(response))
    }
}

#[derive(Clone)]
pub(crate) struct Route {
    pub name: &'static str,
    pub handler: Arc<dyn Handler>,
}

pub(crate) type Routes = BTreeMap<&'static str, Route>;
