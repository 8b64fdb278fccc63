//! Any bytes are a request or an error: `cargo +nightly fuzz run extender_request`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| tautline_scheduler_extender::fuzz_request(data));
