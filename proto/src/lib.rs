#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

#[allow(missing_docs, clippy::all, clippy::pedantic, rust_2018_idioms)] // generated
#[rustfmt::skip]
mod generated {
    pub mod ruleprovider { include!("generated/ruleprovider.rs"); }
    pub mod underlay { include!("generated/underlay.rs"); }
    pub mod tautline {
        pub mod allocator {
            pub mod v1 { include!("generated/tautline.allocator.v1.rs"); }
        }
        pub mod gpu {
            pub mod v1 { include!("generated/tautline.gpu.v1.rs"); }
        }
        pub mod latency {
            pub mod v1 { include!("generated/tautline.latency.v1.rs"); }
        }
    }
}

pub mod endpoint_cost;

pub use generated::ruleprovider;
pub use generated::tautline::allocator::v1 as allocator;
pub use generated::tautline::gpu::v1 as gpu;
pub use generated::tautline::latency::v1 as latency;
pub use generated::underlay;

/// All the contracts as an encoded `FileDescriptorSet`, for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/descriptors.bin");

/// Maximum time that a reservation is held for its Confirm; no Binding is written after it.
pub const MAX_HOLD: std::time::Duration = std::time::Duration::from_secs(10);

/// The default port of rule providers.
pub const RULE_PROVIDER_PORT: u16 = 5309;
