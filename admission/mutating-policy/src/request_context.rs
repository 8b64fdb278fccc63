use std::cell::OnceCell;

use tautline_cel::Value;

use crate::cluster::ClusterView;
use crate::lazy_value::LazyValue;
use crate::request::Request;

/// The values that are constant during a request.
pub(crate) struct RequestContext<'a> {
    pub request: &'a Request,
    pub cluster: &'a dyn ClusterView,
    /// The object's Namespace; null for cluster-scoped objects or if it does not exist.
    pub namespace: LazyValue,
    pub old_object: LazyValue,
    value_of_request: OnceCell<Value>,
}

impl<'a> RequestContext<'a> {
    pub fn new(request: &'a Request, cluster: &'a dyn ClusterView) -> Self {
        let namespace = if request.namespace.is_empty() || request.is_namespace() {
            None
        } else {
            cluster.namespace(&request.namespace)
        };
        Self {
            request,
            cluster,
            namespace: LazyValue::new(namespace.unwrap_or_default()),
            old_object: LazyValue::new(request.old_object.clone()),
            value_of_request: OnceCell::new(),
        }
    }

    pub fn namespace_missing(&self) -> bool {
        let named = !self.request.namespace.is_empty() && !self.request.is_namespace();
        named && self.namespace.json.is_null()
    }

    pub fn request_value(&self) -> Value {
        let describe = || (&self.request.to_json()).into();
        self.value_of_request.get_or_init(describe).clone()
    }
}
