//! The program `tautline-nvml`, which reads the GPUs of this node by NVML and writes each reading
//! as a line of JSON. It also makes and destroys MIG instances on command.

mod args;
mod card;
mod commands;
mod events;
mod health;
mod library;
mod mig;
mod processes;
mod raw;
mod raw_mig;
mod session;
mod topology;
mod watchdog;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    session::run(&args::Args::parse())
}
