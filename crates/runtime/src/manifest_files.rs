//! Reads manifest files: a cluster's objects without a cluster.

use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tautline_api::{
    convert::{self, ConvertError, Indexed},
    manifest::{
        self, Document, FieldPath, Finding, Item, LineIndex, Location, StorageItem, WorkloadTable,
    },
};
use tautline_core::{index::Object, text::shorten, volumes::Storage};

use crate::input_files::{InputError, InputFiles, STDIN};

mod folder;
mod foreign;

/// The error of a file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {message}", Position { path, line: *line })]
pub struct ManifestFileError {
    /// The file, or the folder without manifests.
    pub path: PathBuf,
    /// The line, from 1 on, if it is known.
    pub line: Option<u64>,
    /// The problem.
    pub message: String,
    /// The files that were left out, if the paths have no objects.
    pub skipped: Vec<Skipped>,
}

impl ManifestFileError {
    fn of(path: &Path, message: impl fmt::Display) -> Self {
        Self {
            path: path.to_owned(),
            line: None,
            message: message.to_string(),
            skipped: Vec::new(),
        }
    }
}

/// A position, shown as `FILE:LINE`.
struct Position<'a> {
    path: &'a Path,
    line: Option<u64>,
}

impl fmt::Display for Position<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path {
            path if path == Path::new(STDIN) => f.write_str("standard input")?,
            path => write!(f, "{}", path.display())?,
        }
        match self.line {
            Some(line) => write!(f, ":{line}"),
            None => Ok(()),
        }
    }
}

/// An ignored part of a file that was probably meant to have an effect.
#[derive(Clone, Debug)]
pub struct Warning {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1 on, if it is known.
    pub line: Option<u64>,
    /// The problem and its fix.
    pub finding: Finding,
}

/// Shows a warning as `FILE:LINE: Kind namespace/name: field: problem; fix`.
impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, line) = (&*self.path, self.line);
        write!(f, "{}: {}", Position { path, line }, self.finding)
    }
}

/// The settings of a read.
#[derive(Debug, Default)]
pub struct ReadOptions {
    /// The namespace of objects that do not name one.
    pub namespace: Option<String>,
    /// The kinds whose objects make pods.
    pub workloads: WorkloadTable,
}

/// A file or folder without manifests, or with manifests that another program renders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The file or folder.
    pub path: PathBuf,
    /// The reason.
    pub reason: String,
    /// The shell command that prints its objects, such as `kubectl kustomize DIR`.
    pub render: Option<String>,
}

impl Skipped {
    fn of(path: &Path, reason: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            reason: reason.into(),
            render: None,
        }
    }

    fn rendered(path: &Path, reason: impl Into<String>, render: String) -> Self {
        let render = Some(render);
        Self {
            render,
            ..Self::of(path, reason)
        }
    }

    /// Returns the line for people. `receive` follows the command that prints the objects, such as
    /// `| tautline plan -f -`.
    pub fn line(&self, receive: &str) -> String {
        let (path, line) = (&*self.path, None);
        let path = Position { path, line };
        match &self.render {
            None => format!("{path}: {}", self.reason),
            Some(render) => format!("{path}: {}; use {render} {receive}", self.reason),
        }
    }
}

/// The contents of manifest files.
#[derive(Clone, Debug, Default)]
pub struct Manifests {
    /// The objects, in the order of the files; a workload without pods is followed by the pods of
    /// its template.
    pub items: Vec<Item>,
    /// The warnings in the order of the files and lines, then those of [`Self::warn`].
    pub warnings: Vec<Warning>,
    /// The files and folders that are no manifests.
    pub skipped: Vec<Skipped>,
    /// The file of each object, by its index in `files`, and its location there.
    places: Vec<(usize, Location)>,
    /// The path and text of each file.
    files: Vec<(PathBuf, String)>,
}

impl Manifests {
    /// Makes manifests of a cluster's objects, which have no files.
    pub fn from_items(items: Vec<Item>) -> Self {
        Self {
            items,
            ..Self::default()
        }
    }

    /// Adds findings about objects, each with the object's index in `items`.
    pub fn warn(&mut self, findings: impl IntoIterator<Item = (usize, Finding)>) {
        let located = findings.into_iter().filter_map(|(item, finding)| {
            let (file, place) = *self.places.get(item)?;
            let (path, text) = self.files.get(file)?;
            with_lines(path, text, std::iter::once((place, &finding))).pop()
        });
        let located: Vec<Warning> = located.collect();
        self.warnings.extend(located);
    }
}

/// Returns whether a file holds tests of policies, by its name, such as `near.tautline-test.yaml`.
/// [`read`] skips these files in folders.
pub fn is_test_file(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let ends = ["tautline-test.yaml", "tautline-test.yml"];
    name.is_some_and(|name| ends.iter().any(|end| name.ends_with(end)))
}

/// A file with its documents that are Kubernetes objects.
#[derive(Debug)]
pub struct ReadFile {
    /// The file.
    pub path: PathBuf,
    /// The file's text.
    pub text: String,
    /// The objects, unchecked.
    pub documents: Vec<Document>,
}

/// Reads these files, and every `.yaml`, `.yml` and `.json` file below these folders, in the order
/// of their names. Leaves out hidden folders, tests in folders, Helm charts, kustomizations with
/// their patches, and files without Kubernetes objects. [`STDIN`] is the standard input.
///
/// # Errors
/// The first path that is unreadable, or is malformed and not of another tool; or no path has an
/// object.
pub fn documents(
    paths: &[PathBuf],
    inputs: &mut InputFiles,
    namespace: Option<&str>,
) -> Result<(Vec<ReadFile>, Vec<Skipped>), ManifestFileError> {
    let (mut files, mut skipped) = (Vec::new(), Vec::new());
    for path in paths {
        let before = (files.len(), skipped.len());
        let below = folder::files(path, inputs, &mut skipped)?;
        for path in below.files {
            let loaded = if below.is_folder {
                inputs.found(&path)
            } else {
                inputs.named(&path)
            };
            let text = match loaded {
                Ok(text) => text,
                Err(InputError::Binary | InputError::Archive) if below.is_folder => {
                    skipped.push(Skipped::of(&path, "is not a text, so it is left out"));
                    continue;
                }
                Err(_) if below.is_folder && path.is_symlink() && !path.exists() => {
                    let reason = "is a link to a file that does not exist, so it is left out";
                    skipped.push(Skipped::of(&path, reason));
                    continue;
                }
                Err(error) => return Err(ManifestFileError::of(&path, error)),
            };
            if !below.is_folder && text.trim().is_empty() {
                return Err(ManifestFileError::of(&path, empty(&path)));
            }
            let mut documents = foreign::split(&path, &text, below.is_folder, &mut skipped)?;
            if documents.is_empty() {
                continue;
            }
            if let Some(namespace) = namespace {
                let all = documents.iter_mut();
                all.for_each(|document| manifest::set_namespace(document, namespace));
            }
            files.push(ReadFile {
                path,
                text,
                documents,
            });
        }
        if before == (files.len(), skipped.len()) {
            let reason = "holds no manifests (.yaml, .yml, .json)";
            skipped.push(Skipped::of(path, reason));
        }
    }
    if let Some(first) = paths.first()
        && files.is_empty()
    {
        return Err(ManifestFileError {
            skipped,
            ..ManifestFileError::of(first, "holds no manifests (.yaml, .yml, .json)")
        });
    }
    Ok((files, skipped))
}

/// Reads the objects of the paths as [`documents`] does, and finds their faults.
///
/// # Errors
/// As [`documents`], or an object is malformed.
pub fn read(
    paths: &[PathBuf],
    inputs: &mut InputFiles,
    options: &ReadOptions,
) -> Result<Manifests, ManifestFileError> {
    let (read, skipped) = documents(paths, inputs, options.namespace.as_deref())?;
    let mut files: Vec<(PathBuf, String)> = Vec::new();
    let mut objects = Vec::new();
    let mut findings = Vec::new();
    for (file, found) in read.into_iter().enumerate() {
        let ReadFile {
            path,
            text,
            documents,
        } = found;
        let fail = |place: Option<Location>, field: &FieldPath, what| ManifestFileError {
            line: place.and_then(|p| LineIndex::new(&text).line(p, field)),
            ..ManifestFileError::of(&path, what)
        };
        let read = manifest::objects(documents, &options.workloads)
            .map_err(|e| fail(e.place(), &e.field(), e.to_string()))?;
        for (place, item) in &read.objects {
            if let Item::Policy(_) | Item::Offer(_) = item {
                object(item).map_err(|e| {
                    let what = shorten(&e.to_string()).into_owned();
                    fail(Some(*place), &FieldPath::default(), what)
                })?;
            }
        }
        objects.extend(read.objects.into_iter().map(|(at, o)| ((file, at), o)));
        findings.extend(read.findings.into_iter().map(|(at, f)| ((file, at), f)));
        files.push((path, text));
    }
    manifest::generate_names(&mut objects);
    findings.extend(manifest::check_duplicates(&objects));
    let objects = manifest::add_template_pods(objects);
    findings.extend(manifest::check_references(&objects));
    let mut warnings = Vec::new();
    for (file, (path, text)) in files.iter().enumerate() {
        let mut here = findings
            .iter()
            .filter(|((of, _), _)| *of == file)
            .map(|((_, place), finding)| (*place, finding))
            .peekable();
        if here.peek().is_some() {
            warnings.extend(with_lines(path, text, here));
        }
    }
    let (places, items) = objects.into_iter().unzip();
    Ok(Manifests {
        items,
        warnings,
        skipped,
        places,
        files,
    })
}

/// The message of a file without a text.
fn empty(path: &Path) -> &'static str {
    if path == Path::new(STDIN) {
        "is empty; did the command before the pipe print anything?"
    } else {
        "is empty; name a file with manifests"
    }
}

/// The findings of a file with their lines, sorted by line.
pub fn with_lines<'a>(
    path: &Path,
    text: &str,
    findings: impl Iterator<Item = (Location, &'a Finding)>,
) -> Vec<Warning> {
    let lines = LineIndex::new(text);
    let warning = |(place, finding): (Location, &Finding)| Warning {
        path: path.to_owned(),
        line: lines.line(place, &finding.field),
        finding: finding.clone(),
    };
    let mut warnings: Vec<Warning> = findings.map(warning).collect();
    warnings.sort_by_key(|w| w.line);
    warnings
}

/// The namespaces of pods that no manifest describes. A cluster would have them; here they have
/// only the label of their name.
pub fn implied_namespaces(items: &[Item]) -> impl Iterator<Item = Object> {
    let described = items.iter().filter_map(|item| match item {
        Item::Namespace(o) => o.metadata.name.clone(),
        _ => None,
    });
    let pods = items.iter().filter_map(|item| match item {
        Item::Pod(o) => Some(o.metadata.namespace.as_deref().unwrap_or("default")),
        _ => None,
    });
    let described: BTreeSet<String> = described.collect();
    let used: BTreeSet<String> = pods.map(str::to_owned).collect();
    let implied: Vec<_> = used.difference(&described).cloned().collect();
    implied.into_iter().map(|name| {
        let name = Some(name);
        Object::Namespace(convert::namespace_labels(&ObjectMeta {
            name,
            ..ObjectMeta::default()
        }))
    })
}

/// The error of an object with an invalid field.
#[derive(Debug, thiserror::Error)]
#[error("{kind} {}/{}: {error}", .metadata.namespace.as_deref().unwrap_or("default"),
    .metadata.name.as_deref().unwrap_or_default())]
pub struct ObjectError {
    kind: &'static str,
    metadata: Box<ObjectMeta>,
    error: ConvertError,
}

/// Returns the index' form of a manifest, or `None` for kinds outside the index.
///
/// # Errors
/// An invalid field, with the object's name.
pub fn object(item: &Item) -> Result<Option<Object>, ObjectError> {
    let (kind, metadata, object) = match item {
        Item::Pod(o) => ("Pod", &o.metadata, o.object()),
        Item::Node(o) => ("Node", &o.metadata, o.object()),
        Item::Namespace(o) => ("Namespace", &o.metadata, o.object()),
        Item::DeviceClass(o) => ("DeviceClass", &o.metadata, o.object()),
        Item::Service(o) => ("Service", &o.metadata, o.object()),
        Item::EndpointSlice(o) => ("EndpointSlice", &o.metadata, o.object()),
        Item::Policy(o) => ("ConstraintPolicy", &o.metadata, o.object()),
        Item::Offer(o) => ("ConstraintPolicyOffer", &o.metadata, o.object()),
        Item::ConfigMap(_)
        | Item::ResourceSlice(_)
        | Item::ResourceClaim(_)
        | Item::ResourceClaimTemplate(_)
        | Item::CostProvider(_)
        | Item::RuleProvider(_)
        | Item::Storage(_)
        | Item::Admission(_)
        | Item::Workload(_)
        | Item::Other(_) => return Ok(None),
    };
    object.map(Some).map_err(|error| ObjectError {
        kind,
        metadata: Box::new(metadata.clone()),
        error,
    })
}

/// Returns the claims of a pod's volumes, which the index reads from manifests only; `None` for a
/// pod without claims, and for other kinds.
pub fn pod_volumes(item: &Item) -> Option<Object> {
    let Item::Pod(pod) = item else {
        return None;
    };
    let volumes = convert::pod_volumes(pod);
    (!volumes.claims.is_empty()).then_some(Object::PodVolumes(volumes))
}

/// Returns all storage objects of manifests for the index.
pub fn storage(items: &[Item]) -> Object {
    let mut all = Storage::default();
    for item in items {
        let Item::Storage(item) = item else { continue };
        match item {
            StorageItem::PersistentVolumeClaim(o) => all.add_claim(convert::volume_claim(o)),
            StorageItem::PersistentVolume(o) => all.add_volume(convert::volume(o)),
            StorageItem::StorageClass(o) => all.add_class(convert::storage_class(o)),
        }
    }
    Object::Storage(Box::new(all))
}
