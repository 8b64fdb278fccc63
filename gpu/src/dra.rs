//! Devices that DRA drivers publish.
