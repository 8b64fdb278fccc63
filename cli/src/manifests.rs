//! Reads objects from files in place of a cluster, for `-f` and `--strict`.

use std::path::PathBuf;

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Pod;
use tautline_api::manifest::{Item, MAX_TEMPLATE_PODS};
use tautline_runtime::{
    input_files::InputFiles,
    manifest_files::{self, ManifestFileError, Manifests, Warning},
};

use crate::{local::table_faults, pod_name::absent, table::plain};

/// The maximum number of warnings that are shown: a file of a whole cluster may have one per pod.
const MAX_WARNINGS: usize = 50;

#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct ManifestArgs {
    /// Manifests: a file, a folder, or - for the standard input; may be given several times
    #[arg(short, long, value_name = "PATH", conflicts_with_all = ["kubeconfig", "context"])]
    file: Vec<PathBuf>,
    /// Refuse manifests with faults, instead of a warning
    #[arg(long, requires = "file")]
    strict: bool,
}

impl ManifestArgs {
    pub(crate) fn is_given(&self) -> bool {
        !self.file.is_empty()
    }

    /// The paths that the user gave.
    pub(crate) fn files(&self) -> &[PathBuf] {
        &self.file
    }

    /// Reads the objects of the files; returns `None` without `-f`.
    pub(crate) fn read(&self) -> Result<Option<Vec<Item>>> {
        let Some(manifests) = self.load()? else {
            return Ok(None);
        };
        self.judge(&manifests)?;
        Ok(Some(manifests.items))
    }

    /// Reads the contents of the files; the caller passes them on to [`Self::judge`], which shows
    /// their warnings.
    pub(crate) fn load(&self) -> Result<Option<Manifests>> {
        if !self.is_given() {
            return Ok(None);
        }
        let manifests = read(&self.file, &mut InputFiles::default())?;
        for skipped in &manifests.skipped {
            note!("{}", plain(skipped));
        }
        for pair in manifests.items.windows(2) {
            if let [Item::Workload(w), Item::Pod(first)] = pair
                && w.replicas() > MAX_TEMPLATE_PODS
                && w.made(&first.metadata)
            {
                let (name, all) = (plain(&w.to_string()), w.replicas());
                note!("{name}: only {MAX_TEMPLATE_PODS} of its {all} pods are planned");
            }
        }
        Ok(Some(manifests))
    }

    /// Shows the warnings; with `--strict` they are an error.
    pub(crate) fn judge(&self, manifests: &Manifests) -> Result<()> {
        show(&manifests.warnings);
        match manifests.warnings.len() {
            count @ 1.. if self.strict => bail!("--strict: faults in the manifests: {count}"),
            _ => Ok(()),
        }
    }
}

/// Calls [`manifest_files::read`], and adds the faults of tables.
pub(crate) fn read(
    paths: &[PathBuf],
    inputs: &mut InputFiles,
) -> Result<Manifests, ManifestFileError> {
    let mut manifests = manifest_files::read(paths, inputs)?;
    let faults: Vec<_> = table_faults(&manifests.items).collect();
    manifests.warn(faults);
    Ok(manifests)
}

/// Prints the faults of manifests on standard error.
pub(crate) fn show(warnings: &[Warning]) {
    for warning in warnings.iter().take(MAX_WARNINGS) {
        note!("{}", plain(&warning.to_string()));
    }
    match warnings.len().saturating_sub(MAX_WARNINGS) {
        0 => {}
        hidden => note!("... and {hidden} warnings more"),
    }
}

pub(crate) fn pods(items: &[Item]) -> impl Iterator<Item = &Pod> {
    items.iter().filter_map(|item| match item {
        Item::Pod(pod) => Some(&**pod),
        _ => None,
    })
}

pub(crate) fn pod_namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or("default")
}

/// Finds a pod, as if it were not bound; the error is a text for people.
pub(crate) fn find_pod(items: &[Item], namespace: &str, name: &str) -> Result<Pod, String> {
    let is_named = |pod: &&Pod| pod.metadata.name.as_deref() == Some(name);
    let named: Vec<&Pod> = pods(items).filter(is_named).collect();
    match named.iter().find(|pod| pod_namespace(pod) == namespace) {
        Some(pod) => Ok(without_node((*pod).clone())),
        None => Err(absent(
            namespace,
            name,
            named.iter().map(|pod| pod_namespace(pod)),
        )),
    }
}

pub(crate) fn without_node(mut pod: Pod) -> Pod {
    if let Some(spec) = &mut pod.spec {
        spec.node_name = None;
    }
    pod
}
