//! Reads objects from files in place of a cluster, for `-f` and `--strict`.

pub(crate) mod admission;

use std::path::PathBuf;

use anyhow::{Context, Error, Result, anyhow, bail};
use k8s_openapi::api::core::v1::Pod;
use tautline_api::manifest::{FieldPath, Finding, Item, MAX_TEMPLATE_PODS, WorkloadTable};
use tautline_latency::{BANDWIDTH_TABLE_LABEL, Bandwidth, PairTable, RoundTrip, TABLE_LABEL};
use tautline_runtime::{
    input_files::InputFiles,
    manifest_files::{self, ManifestFileError, Manifests, ReadOptions, Skipped, Warning},
};

use crate::{local::builtin::is_labelled, pod_name::absent, program_name, scope, table::plain};

/// The maximum number of warnings that are shown: a file of a whole cluster may have one per pod.
const MAX_WARNINGS: usize = 50;
/// The maximum number of workloads without pods that are named.
const MAX_IDLE: usize = 10;

#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct ManifestArgs {
    /// Manifests: a file, a folder, or - for the standard input; may be given several times
    #[arg(short, long, value_name = "PATH", conflicts_with_all = ["kubeconfig", "context"])]
    file: Vec<PathBuf>,
    /// Refuse manifests with faults, instead of a warning
    #[arg(long, requires = "file")]
    strict: bool,
    /// More kinds with pod templates, as a table of kinds and paths; may be given several times
    #[arg(long, value_name = "FILE", requires = "file")]
    workloads: Vec<PathBuf>,
}

/// [`ManifestArgs`] of a command that has no other use for a namespace.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct NamespacedManifestArgs {
    #[command(flatten)]
    pub manifests: ManifestArgs,
    #[command(flatten)]
    namespace: FileNamespace,
}

/// The namespace of files, of a command that has no other use for one.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct FileNamespace {
    /// Namespace of the objects in the files that name none [default: default]
    #[arg(short, long, value_name = "NS", requires = "file", value_parser = scope::name)]
    pub namespace: Option<String>,
}

impl NamespacedManifestArgs {
    /// Calls [`ManifestArgs::read`] with the namespace.
    pub(crate) fn read(&self) -> Result<Option<Vec<Item>>> {
        self.manifests.read(self.namespace.namespace.as_deref())
    }

    /// Calls [`ManifestArgs::load`] with the namespace.
    pub(crate) fn load(&self) -> Result<Option<Manifests>> {
        self.manifests.load(self.namespace.namespace.as_deref())
    }
}

impl ManifestArgs {
    pub(crate) fn is_given(&self) -> bool {
        !self.file.is_empty()
    }

    /// Returns the paths that the user gave.
    pub(crate) fn files(&self) -> &[PathBuf] {
        &self.file
    }

    pub(crate) fn is_strict(&self) -> bool {
        self.strict
    }

    /// Reads the objects of the files; returns `None` without `-f`. Objects without a namespace get
    /// `namespace`.
    pub(crate) fn read(&self, namespace: Option<&str>) -> Result<Option<Vec<Item>>> {
        let Some(manifests) = self.load(namespace)? else {
            return Ok(None);
        };
        self.judge(&manifests)?;
        Ok(Some(manifests.items))
    }

    /// Reads the contents of the files; the caller passes them on to [`Self::judge`], which shows
    /// their warnings.
    pub(crate) fn load(&self, namespace: Option<&str>) -> Result<Option<Manifests>> {
        if !self.is_given() {
            return Ok(None);
        }
        let mut inputs = InputFiles::default();
        let mut workloads = WorkloadTable::default();
        for path in &self.workloads {
            let named = || format!("--workloads {}", path.display());
            let text = inputs.named(path).map_err(Error::msg).with_context(named)?;
            workloads.add(&text).with_context(named)?;
        }
        let options = ReadOptions {
            namespace: namespace.map(str::to_owned),
            workloads,
        };
        let receive = format!("| {} -f -", command());
        let manifests =
            read(&self.file, &mut inputs, &options).map_err(|e| located(e, &receive))?;
        show_skipped(&manifests.skipped, &receive);
        for (at, item) in manifests.items.iter().enumerate() {
            if let (Item::Workload(w), Some(Item::Pod(first))) = (item, manifests.items.get(at + 1))
                && w.replicas() > MAX_TEMPLATE_PODS
                && w.made(&first.metadata)
            {
                let (name, all) = (plain(&w.to_string()), w.replicas());
                note!("{name}: only {MAX_TEMPLATE_PODS} of its {all} pods are planned");
            }
        }
        show_idle(&manifests.items);
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

/// Returns the command that was run, without its options.
pub(crate) fn command() -> String {
    let args = std::env::args()
        .skip(1)
        .take_while(|arg| !arg.starts_with('-'));
    let words = std::iter::once(program_name::current().to_owned()).chain(args);
    words.collect::<Vec<_>>().join(" ")
}

/// Returns an error with what was left out; `receive` as for [`Skipped::line`].
pub(crate) fn located(mut error: ManifestFileError, receive: &str) -> Error {
    let skipped = std::mem::take(&mut error.skipped);
    let own = format!("{}: {}", error.path.display(), error.message);
    let lines = skipped.iter().map(|skipped| skipped.line(receive));
    let mut lines = lines.filter(|line| *line != own && !error.to_string().starts_with(line));
    match lines.next() {
        Some(first) => anyhow!("{error}; {first}"),
        None => error.into(),
    }
}

/// Prints the files and folders that are left out.
pub(crate) fn show_skipped(skipped: &[Skipped], receive: &str) {
    for skipped in skipped {
        note!("{}", plain(&skipped.line(receive)));
    }
}

/// Names the workloads that have no pods because of their fields, in one line.
fn show_idle(items: &[Item]) {
    let idle = items.iter().filter_map(|item| match item {
        Item::Workload(w) => w.idle().next().map(|why| format!("{w} ({why})")),
        _ => None,
    });
    let idle: Vec<String> = idle.collect();
    if idle.is_empty() {
        return;
    }
    let mut text = idle[..idle.len().min(MAX_IDLE)].join(", ");
    if idle.len() > MAX_IDLE {
        text += &format!(" and {} more", idle.len() - MAX_IDLE);
    }
    note!("no pods of {}", plain(&text));
}

/// Calls [`manifest_files::read`], adds the faults of tables, and completes new pods.
pub(crate) fn read(
    paths: &[PathBuf],
    inputs: &mut InputFiles,
    options: &ReadOptions,
) -> Result<Manifests, ManifestFileError> {
    let mut manifests = manifest_files::read(paths, inputs, options)?;
    let faults = table_faults(&manifests.items);
    manifests.warn(faults);
    admission::admit(&mut manifests.items);
    Ok(manifests)
}

/// Returns the faults of tables of round-trip times and bandwidth, each with the ConfigMap's index
/// in `items`.
fn table_faults(items: &[Item]) -> Vec<(usize, Finding)> {
    let mut faults = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let Item::ConfigMap(map) = item else { continue };
        let namespace = map.metadata.namespace.as_deref().unwrap_or("default");
        let name = map.metadata.name.as_deref().unwrap_or_default();
        for (key, text) in map.data.iter().flatten() {
            let of_round_trips = || PairTable::<RoundTrip>::default().add(text).err();
            let of_bandwidths = || PairTable::<Bandwidth>::default().add(text).err();
            let round_trips = is_labelled(map, TABLE_LABEL).then(of_round_trips);
            let bandwidths = is_labelled(map, BANDWIDTH_TABLE_LABEL).then(of_bandwidths);
            let error = round_trips.flatten().or(bandwidths.flatten());
            faults.extend(error.map(|error| {
                let finding = Finding {
                    object: format!("ConfigMap {namespace}/{name}"),
                    field: FieldPath::from_keys(["data", key]),
                    message: format!("{error}; the rest of the table is left out"),
                };
                (at, finding)
            }));
        }
    }
    faults
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

#[cfg(test)]
mod tests {
    use super::*;
    use tautline_api::manifest;

    fn found(label: &str, rows: &str) -> Vec<String> {
        let text = format!(
            "apiVersion: v1\nkind: ConfigMap\n\
             metadata: {{name: t, namespace: shop, labels: {{{label}: enabled}}}}\n\
             data:\n  t.csv: |\n{rows}"
        );
        let items = manifest::parse(&text).unwrap();
        let found = table_faults(&items).into_iter();
        found.map(|(at, fault)| format!("{at}: {fault}")).collect()
    }

    #[test]
    fn malformed_rows_are_faults() {
        let rows = "    a,b,5ms\n    a,c,80\n    b,c,1ms\n";
        let found_faults = found(TABLE_LABEL, rows);
        assert_eq!(found_faults.len(), 1, "{found_faults:?}");
        let start = "0: ConfigMap shop/t: data[\"t.csv\"]: line 2: ";
        assert!(found_faults[0].starts_with(start), "{found_faults:?}");
        assert_eq!(found(BANDWIDTH_TABLE_LABEL, rows).len(), 1);
        assert_eq!(found(TABLE_LABEL, "    a,b,5ms\n"), [""; 0]);
        assert_eq!(found("example.com/other", rows), [""; 0]);
    }
}
