//! Any bytes are a provider's answer or an error, and what prost reads is no error:
//! `cargo +nightly fuzz run provider_answer`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| tautline_provider_client::fuzz_answer(data));
