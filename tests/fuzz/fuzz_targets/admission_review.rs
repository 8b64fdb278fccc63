//! Any bytes are a review or an error, and any object that a review holds is
//! judged by GPU slices, the model registry and mutation policies:
//! `cargo +nightly fuzz run admission_review`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| tautline_admission::fuzz_review(data));
