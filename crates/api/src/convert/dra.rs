//! `resource.k8s.io/v1`: slices, claims and classes, and the claims of pods.

use k8s_openapi::{api::resource::v1::DeviceClass, apimachinery::pkg::api::resource::Quantity};
use tautline_core::quantity;
use tautline_gpu_placement::dra::{Class, PoolId};

use super::{ConvertError, bad, name};

pub use claim::{PodClaims, claim, pod_claims};
pub use slice::slice;

mod claim;
mod slice;

/// A DeviceClass.
pub fn class(class: &DeviceClass) -> Class {
    let selectors = class.spec.selectors.iter().flatten();
    let created = class.metadata.creation_timestamp.as_ref();
    Class {
        name: (*name(&class.metadata)).into(),
        created_unix: created.map_or(0, |t| t.0.as_second()),
        selectors: selectors
            .filter_map(|s| Some(s.cel.as_ref()?.expression.as_str().into()))
            .collect(),
        extended_resource: class.spec.extended_resource_name.as_deref().map(Into::into),
    }
}

fn pool_id(driver: &str, pool: &str) -> PoolId {
    PoolId {
        driver: driver.into(),
        pool: pool.into(),
    }
}

fn amount(field: &str, quantity: &Quantity) -> Result<i64, ConvertError> {
    quantity::parse_milli(&quantity.0).map_err(|e| bad(field, e))
}

#[cfg(test)]
#[path = "dra/tests.rs"]
mod tests;
