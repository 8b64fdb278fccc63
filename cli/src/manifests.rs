//! Objects from files in place of a cluster: `-f` and `--strict`.

use std::path::PathBuf;

use anyhow::{Result, bail};
use tautline_api::manifest::Item;
use tautline_runtime::manifest_files::{self, Warning};

use crate::table::plain;

/// Maximum number of warnings shown: a file of a whole cluster may have one per pod.
const MAX_WARNINGS: usize = 50;

#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct ManifestArgs {
    /// Manifests: a file, a folder, or - for the standard input; may be given several times
    #[arg(short, long, value_name = "PATH", conflicts_with_all = ["kubeconfig", "context"])]
    file: Vec<PathBuf>,
    /// Refuse manifests with parts that would be ignored, instead of a warning
    #[arg(long, requires = "file")]
    strict: bool,
}

impl ManifestArgs {
    pub(crate) fn is_given(&self) -> bool {
        !self.file.is_empty()
    }

    /// The objects of the files; `None` without `-f`.
    pub(crate) fn read(&self) -> Result<Option<Vec<Item>>> {
        if !self.is_given() {
            return Ok(None);
        }
        let manifests = manifest_files::read(&self.file)?;
        show(&manifests.warnings);
        match manifests.warnings.len() {
            count @ 1.. if self.strict => {
                bail!("--strict: parts of the manifests would be ignored: {count}")
            }
            _ => Ok(Some(manifests.items)),
        }
    }
}

/// Prints the ignored parts of manifests on standard error.
pub(crate) fn show(warnings: &[Warning]) {
    for warning in warnings.iter().take(MAX_WARNINGS) {
        note!("{}", plain(&warning.to_string()));
    }
    match warnings.len().saturating_sub(MAX_WARNINGS) {
        0 => {}
        hidden => note!("... and {hidden} warnings more"),
    }
}
