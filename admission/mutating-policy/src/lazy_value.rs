//! An object and its CEL value, which is converted once.

use std::cell::OnceCell;
use std::sync::Arc;

use serde_json::Value as Json;
use tautline_cel::Value;

/// An object whose CEL value is converted when an expression first uses it.
pub(crate) struct LazyValue {
    pub json: Arc<Json>,
    value: OnceCell<Value>,
}

impl LazyValue {
    pub fn new(json: Arc<Json>) -> Self {
        let value = OnceCell::new();
        Self { json, value }
    }

    pub fn value(&self) -> Value {
        self.value.get_or_init(|| (&*self.json).into()).clone()
    }
}
