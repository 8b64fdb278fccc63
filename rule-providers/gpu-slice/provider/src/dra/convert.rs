mod claim;
mod slice;

use std::sync::Arc;

use k8s_openapi::{
    api::resource::v1::DeviceClass,
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use tautline_api::convert::ConvertError;
use tautline_core::quantity;
use tautline_gpu_placement::dra::{Class, PoolId};

pub use claim::resource_claim;
pub use slice::resource_slice;

/// Converts a class: its CEL selectors, and the extended resource that requests its devices.
pub fn device_class(class: &DeviceClass) -> Class {
    let selectors = class.spec.selectors.iter().flatten();
    let created = class.metadata.creation_timestamp.as_ref();
    Class {
        name: class.metadata.name.as_deref().unwrap_or_default().into(),
        created_unix: created.map_or(0, |t| t.0.as_second()),
        selectors: selectors
            .filter_map(|s| Some(s.cel.as_ref()?.expression.as_str().into()))
            .collect(),
        extended_resource: class.spec.extended_resource_name.as_deref().map(Into::into),
    }
}

fn name(meta: &ObjectMeta) -> Arc<str> {
    meta.name.as_deref().unwrap_or_default().into()
}

fn error(field: impl Into<String>, message: impl ToString) -> ConvertError {
    ConvertError {
        field: field.into(),
        message: message.to_string(),
    }
}

fn pool_id(driver: &str, pool: &str) -> PoolId {
    PoolId {
        driver: driver.into(),
        pool: pool.into(),
    }
}

fn amount(field: &str, quantity: &Quantity) -> Result<i64, ConvertError> {
    quantity::parse_milli(&quantity.0).map_err(|e| error(field, e))
}

#[cfg(test)]
mod tests;
