//! Any text compiles or is refused, and a program ends within its budget:
//! `cargo +nightly fuzz run cel_source`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| tautline_cel::fuzz_source(data));
