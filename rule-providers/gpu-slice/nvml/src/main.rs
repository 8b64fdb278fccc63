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

fn main() -> ExitCode {
    match args::Args::parse(std::env::args_os().skip(1)) {
        Ok(Some(args)) => session::run(&args),
        Ok(None) => {
            print!("{}", args::HELP);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}; see tautline-nvml --help");
            ExitCode::from(2)
        }
    }
}
