//! The driver `gpu.tautline.io` of Dynamic Resource Allocation: it publishes the node's cards as
//! devices of ResourceSlices, of which kube-scheduler gives parts to ResourceClaims, and prepares
//! the claims of the node's pods for the kubelet.
//!
//! ```text
//! inventory ── slices ──▶ ResourceSlices ──▶ kube-scheduler ──▶ allocation of the claim
//! kubelet ── claim ──▶ grants ──▶ giver (limits, CDI) ──▶ CDI devices ──▶ container
//! ```

mod grants;
mod prepared;
mod publisher;
mod service;
mod slices;
mod status;

use std::{fmt, str::FromStr};

use tautline_gpu_placement::dra::AGENT_DRIVER as DRIVER;

#[cfg(test)]
pub(crate) use self::prepared::PreparedDevice;
pub(crate) use self::{
    prepared::{PreparedClaim, PreparedClaims},
    publisher::Publisher,
    service::{Driver, Server},
    status::StatusWriter,
};

/// The capacity of a device that claims consume: thousandths of the card.
const MILLI: &str = "milli";

/// The way in which containers get cards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// The extender writes a record of cards to the pod, and the kubelet counts their thousandths.
    #[default]
    DevicePlugin,
    /// kube-scheduler allocates ResourceClaims; Kubernetes 1.36 or later.
    Dra,
}

/// The error for a text that is not a [`Delivery`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("delivery {0:?} is unknown; write device-plugin or dra")]
pub struct DeliveryError(String);

impl FromStr for Delivery {
    type Err = DeliveryError;

    fn from_str(text: &str) -> Result<Self, DeliveryError> {
        let all = [Self::DevicePlugin, Self::Dra];
        let named = all.into_iter().find(|way| way.to_string() == text);
        named.ok_or_else(|| DeliveryError(text.to_owned()))
    }
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DevicePlugin => "device-plugin",
            Self::Dra => "dra",
        })
    }
}
