//! Any text is a program or an error, and a program ends within its budget:
//! `cargo +nightly fuzz run cel_source`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| tautline_mutating_policy::fuzz_source(data));
