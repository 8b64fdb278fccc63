//! Implements `tautline crds`, which prints the custom resource definitions or writes them, or JSON
//! Schemas of the kinds, to files.

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
    /// Write a JSON Schema of each kind into this folder, for editors and kubeconform
    #[arg(long, value_name = "DIR")]
    schemas: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    for crd in crds::all() {
        let (name, text) = crds::file(&crd)?;
        match (&args.dir, &args.schemas) {
            (Some(dir), _) => output::write_file(dir, &name, &text)?,
            (None, Some(_)) => {}
            (None, None) => output::write(&format!("---\n{text}"))?,
        }
        if let Some(dir) = &args.schemas {
            for (name, text) in crds::json_schemas(&crd)? {
                output::write_file(dir, &name, &text)?;
            }
        }
    }
    Ok(())
}
