//! The binary `tautline`, which has every server and tool of Tautline.

use std::process::ExitCode;

fn main() -> ExitCode {
    tautline::run()
}
