//! `tautline`: every server and tool of Tautline in one binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    tautline::run()
}
