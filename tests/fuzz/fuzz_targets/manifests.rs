//! Any text is manifests or an error: `cargo +nightly fuzz run manifests`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| tautline_api::manifest::fuzz(data));
