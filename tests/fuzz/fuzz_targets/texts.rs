//! Any text is a duration, a quantity, a reference or an error, and is read again
//! as it is written back: `cargo +nightly fuzz run texts`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| tautline_core::fuzz_texts(data));
