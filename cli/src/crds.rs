//! Implements `tautline crds`, which prints the custom resource definitions or writes them to
//! files.

use std::path::PathBuf;

use anyhow::Result;
use tautline_api::crds;

use crate::output;

#[derive(clap::Args)]
#[command(after_help = "Example:\n  tautline crds | kubectl apply --server-side -f -")]
pub(crate) struct Args {
    /// Write one file for each kind into this folder instead of printing them
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    for crd in crds::all() {
        let (name, text) = crds::file(&crd)?;
        match &args.dir {
            None => output::write(&format!("---\n{text}"))?,
            Some(dir) => output::write_file(dir, &name, &text)?,
        }
    }
    Ok(())
}
